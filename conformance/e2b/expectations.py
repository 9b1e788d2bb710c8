"""What a larger suite of the SDKs is expected to say, and the page that is written from what it said: docs/compat/e2b.md."""

import pathlib
import sys
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "compat" / "e2b.md"

# Tests of what is not there yet. Each must fail: what begins to work is noticed, and moved to the table.
NOT_YET = {
    "network lists": ["test_update_network_blocks_egress_of_a_running_sandbox"],
    "R and Java": ["test_language[r-x <- 50; print(x + 5)-55]", "test_language[java-System.out.println(60 + 6);-66]"],
    "processes of a fork are not listed in it": ["test_fork_copies_state_and_then_diverges"],
}

# Tests of what an image has, which not every installation has made: these may pass or fail.
BY_IMAGE = {
    "where the image of the template data-science is made": [
        "test_dataframe_has_html_and_data", "test_matplotlib_figure_gives_png", "test_line_chart_data", "test_scatter_bar_pie_and_box_chart_data",
        "test_subplots_give_a_superchart",
        "test_language[javascript-const a = 20; a + 2-22]", "test_language[typescript-const n: number = 30; n + 3-33]",
        "test_javascript_state_persists_and_reports_errors",
    ],
    "where the image of the template base is made": ["test_git_helpers_init_commit_branch_status"],
    "where a registry can be reached": ["test_template_build_from_oci_image"],
}

# These send a command to a terminal and change its size right behind it: which of the two comes first is not the server's to say.
RACES = ["test_pty_runs_shell_resizes_and_reports_exit"]

# What users call, and the tests that show it.
METHODS = {
    "Sandbox.create": ["test_create_returns_id_and_is_running", "test_create_envs_are_visible_to_commands", "test_idempotency_key_returns_the_same_sandbox"],
    "Sandbox.connect": ["test_connect_by_id_shares_files_and_extends_timeout_only_upwards", "test_missing_sandbox_raises_not_found"],
    "Sandbox.list": [
        "test_list_filters_by_metadata_including_special_characters", "test_list_paginates_with_limit_and_next_token",
        "test_list_orders_by_start_time_and_filters_started_after", "test_list_filters_by_state",
    ],
    "Sandbox.get_info": ["test_get_info_reports_template_metadata_and_resources"],
    "Sandbox.set_timeout": ["test_set_timeout_moves_end_time_both_ways", "test_timeout_kills_sandbox"],
    "Sandbox.kill": ["test_kill_stops_sandbox_and_second_kill_returns_false", "test_context_manager_kills_on_exit", "test_kill_removes_a_paused_sandbox"],
    "Sandbox.is_running": ["test_requests_to_a_killed_sandbox_raise_timeout_exception"],
    "Sandbox.get_metrics": ["test_metrics_report_cpu_memory_and_disk"],
    "Sandbox.pause, connect to resume": [
        "test_pause_resume_keeps_files", "test_pause_twice_returns_false_and_info_says_paused", "test_pause_resume_keeps_memory",
        "test_pause_resume_keeps_interpreter_variables", "test_three_pause_resume_cycles_lose_nothing", "test_clock_is_correct_after_resume",
        "test_traffic_does_not_resume_without_auto_resume",
    ],
    "Sandbox.pause(mode=\"filesystem\")": ["test_pause_filesystem_mode_reboots_without_processes"],
    "GET /events/sandboxes": ["test_lifecycle_events_are_listed_over_rest"],
    "lifecycle on_timeout, auto_resume": ["test_auto_pause_on_timeout", "test_auto_resume_on_traffic"],
    "Sandbox.fork": ["test_fork_keeps_interpreter_state", "test_fork_copies_state_and_then_diverges"],
    "Sandbox.create_snapshot, list_snapshots, delete_snapshot": ["test_snapshot_boots_new_sandboxes_and_survives_the_source"],
    "Sandbox.get_host": ["test_port_is_reachable_through_host_name", "test_port_is_reachable_through_routing_headers", "test_closed_port_and_unknown_sandbox_answer_502_with_reason"],
    "network allow_public_traffic": ["test_private_ports_need_the_traffic_token"],
    "allow_internet_access=False": ["test_internet_access_can_be_switched_off"],
    "Sandbox.update_network": ["test_update_network_blocks_egress_of_a_running_sandbox"],
    "Sandbox.download_url, upload_url": [
        "test_signed_download_url_works_without_headers", "test_signed_upload_url_accepts_multipart", "test_tampered_or_expired_signature_is_refused",
    ],
    "commands.run": [
        "test_command_returns_stdout_stderr_and_exit_code", "test_command_nonzero_exit_raises_with_output", "test_command_streams_output_while_running",
        "test_command_stderr_callback", "test_command_cwd_and_envs", "test_command_default_user_home_and_root_user", "test_command_unknown_user_raises",
        "test_command_missing_cwd_raises_invalid_argument", "test_command_timeout_raises_and_kills_the_process", "test_multibyte_utf8_output_is_not_broken",
        "test_large_command_output_arrives_complete", "test_twenty_commands_run_concurrently_in_one_sandbox",
    ],
    "commands.run(background=True)": ["test_background_command_can_be_awaited", "test_background_command_can_be_killed", "test_disconnect_leaves_command_running"],
    "commands.list, kill": ["test_list_shows_running_commands"],
    "commands.connect": ["test_connect_to_running_command_from_second_client"],
    "commands.send_stdin, close_stdin, stream_input": [
        "test_send_stdin_then_close_ends_cat", "test_stdin_disabled_by_default_reads_eof", "test_stream_input_sends_chunks_in_order",
        "test_send_stdin_to_missing_pid_raises_not_found",
    ],
    "pty.create, resize, connect, kill": ["test_pty_runs_shell_resizes_and_reports_exit", "test_pty_kill_and_connect"],
    "files.read, write": [
        "test_write_then_read_text", "test_read_bytes_and_stream", "test_empty_file_reads_back_empty", "test_octet_stream_upload_from_file_object",
        "test_upload_from_chunk_iterable", "test_gzip_upload_and_download", "test_write_files_uploads_many_in_one_call",
        "test_write_creates_parent_directories_owned_by_user", "test_overwrite_truncates", "test_write_as_root_is_owned_by_root",
        "test_relative_and_tilde_paths_resolve_to_home", "test_reading_missing_file_raises_file_not_found", "test_file_metadata_is_stored_with_the_file",
        "test_writing_to_a_directory_path_raises_invalid_argument", "test_large_file_round_trip",
    ],
    "files.exists, make_dir, list, remove, rename, get_info": [
        "test_exists_make_dir_list_remove", "test_list_respects_depth", "test_rename_moves_file", "test_get_info_reports_size_mode_owner_and_time",
        "test_symlink_info_reports_target",
    ],
    "files.watch_dir": ["test_watch_dir_reports_create_write_rename_remove", "test_watch_dir_recursive_with_entry_info", "test_watch_missing_dir_raises"],
    "run_code": [
        "test_run_code_returns_last_expression", "test_state_persists_between_runs", "test_stream_stdout", "test_stderr_is_separate",
        "test_error_has_name_value_and_traceback", "test_syntax_error_is_reported", "test_execution_count_increases",
        "test_display_calls_come_before_the_main_result", "test_per_run_envs_are_removed_afterwards", "test_create_envs_are_visible_in_code",
        "test_code_and_commands_share_the_filesystem", "test_shell_and_magic_lines", "test_top_level_await", "test_run_timeout_raises_and_interrupts_the_kernel",
        "test_kill_during_run_raises_timeout_exception", "test_large_stdout_from_code", "test_kernel_crash_is_reported_and_recovers", "test_unknown_language_raises",
    ],
    "run_code(language=\"bash\")": ["test_language[bash-echo $((40 + 4))-44]"],
    "run_code(language=\"javascript\"), typescript": [
        "test_language[javascript-const a = 20; a + 2-22]", "test_language[typescript-const n: number = 30; n + 3-33]",
        "test_javascript_state_persists_and_reports_errors",
    ],
    "run_code(language=\"r\"), java": ["test_language[r-x <- 50; print(x + 5)-55]", "test_language[java-System.out.println(60 + 6);-66]"],
    "results: html, markdown, latex, svg, json, javascript, extra": [
        "test_rich_results_html_markdown_latex_svg_json_javascript", "test_custom_mime_type_arrives_as_extra", "test_dict_result_has_json",
        "test_runs_in_one_context_are_serialised",
    ],
    "results: png, data, chart": [
        "test_dataframe_has_html_and_data", "test_matplotlib_figure_gives_png", "test_line_chart_data", "test_scatter_bar_pie_and_box_chart_data",
        "test_subplots_give_a_superchart",
    ],
    "create_code_context, list, restart, remove": ["test_contexts_isolate_variables_and_cwd", "test_contexts_list_restart_and_remove"],
    "AsyncSandbox": ["test_async_client_runs_commands_files_and_watch"],
    "sandbox.git": ["test_git_helpers_init_commit_branch_status"],
    "Template.build, from_template, run_cmd, set_envs, set_workdir": [
        "test_template_build_from_template_runs_steps_and_streams_logs", "test_template_failing_step_raises_build_exception",
    ],
    "Template.from_image": ["test_template_build_from_oci_image"],
    "Template.copy": ["test_template_copy_uploads_build_context"],
    "Template.set_start_cmd, set_ready_cmd": ["test_template_start_command_is_running_in_new_sandboxes"],
    "Template.build_in_background, get_build_status, exists": ["test_template_background_build_status_and_exists"],
    "Template tags": ["test_template_tags_select_a_build"],
}

# What breaks these SDKs where a server is only nearly right, and the tests that hold it: of E2bTrapsTest, else with the file's name.
TRAPS = [
    ("the agent's version opens features", ["the_agents_version_opens_every_feature_of_the_sdks"]),
    ("JavaScript goes by the body's code, Python by the status", [
        "errors_of_the_api_have_their_status_as_a_number_and_those_of_rpcs_a_name", "a_pause_of_what_is_paused_is_a_409_in_both_ways",
    ]),
    ("Python repeats what failed, a create too", [
        "an_idempotency_key_makes_one_sandbox_and_without_one_nothing_may_be_repeated", "too_many_sandboxes_are_a_429_that_says_when_to_come_back",
        "an_idempotency_key_with_another_body_is_a_conflict",
    ]),
    ("streams begin with a start and end with an end", [
        "the_first_message_of_a_process_is_its_start_and_the_last_its_end", "a_stream_that_fails_says_so_in_its_last_message_with_status_200",
    ]),
    ("contexts are asked for without a token", ["contexts_are_open_without_a_token_and_running_code_is_not"]),
    ("clients of many names; bodies in chunks", ["bodies_come_in_chunks_and_from_clients_of_any_name"]),
    ("streams must not be packed", ["streams_are_never_packed"]),
    ("numbers as text, unknown fields", ["numbers_come_as_text_too_and_unknown_fields_are_left_out_of_account"]),
    ("silence", ["silent_code_is_kept_alive", "a_silent_process_is_kept_alive_as_often_as_its_client_asks"]),
    ("a connection for each command", ["two_hundred_commands_run_at_once_each_on_a_connection_of_its_own"]),
    ("keys that must be there", ["a_created_sandbox_has_every_key_that_an_sdk_reads"]),
    ("`secure` is passed over", ["every_sandbox_has_a_token_whatever_secure_says"]),
    ("clocks and pauses", ["time_that_a_sandbox_is_paused_is_not_taken_from_its_timeout", "signed_addresses_open_one_file_for_one_operation_until_they_expire"]),
    ("tokens outlive pauses; what is paused is not found", ["tokens_outlive_a_pause_in_which_a_sandbox_is_not_found_and_yet_listed"]),
    ("names with `/` and `:` in one segment", ["names_with_slashes_come_as_one_segment"]),
    ("a DELETE with a body", ["a_delete_may_have_a_body"]),
    ("bash, and a user with `sudo`", ["test_traps.py: test_every_template_has_bash_and_a_user_who_may_become_root"]),
    ("uploads to an address that must not be guessed, without a key", ["uploads_go_to_an_address_that_nobody_guesses_and_needs_no_key"]),
    ("signed addresses drop a prefix", ["what_is_signed_is_at_the_root_too"]),
]


def outcomes(report):
    """The outcome of each test by its name: passed, failed or skipped."""
    found = {}
    for case in xml.etree.ElementTree.parse(report).iter("testcase"):
        tags = {child.tag for child in case}
        found[case.get("name")] = "failed" if tags & {"failure", "error"} else "skipped" if "skipped" in tags else "passed"
    return found


def differences(found):
    """What is not as expected, in sentences."""
    missing = {name: why for why, names in NOT_YET.items() for name in names}
    either = {*RACES, *(name for names in BY_IMAGE.values() for name in names)}
    said = [f"{name} failed" for name, outcome in found.items() if outcome == "failed" and name not in missing and name not in either]
    said += [f"{name} passed, and was expected to fail ({why})" for name, why in missing.items() if found.get(name) == "passed"]
    known = {name for names in METHODS.values() for name in names}
    return said + [f"{name} is in the table, and the suite has no such test" for name in sorted(known - set(found))]


def page(found):
    missing = {name: why for why, names in NOT_YET.items() for name in names}
    by_image = {name: why for why, names in BY_IMAGE.items() for name in names}
    rows = []
    for method, tests in METHODS.items():
        failed = [name for name in tests if found.get(name) != "passed" and name not in by_image]
        reasons = sorted({missing.get(name, "see its tests") for name in failed} | {by_image[name] for name in tests if name in by_image})
        shown = all(found.get(name) == "passed" for name in tests)
        state = "works" if shown else "by image" if not failed else "not yet" if len(failed) == len(tests) else "differs"
        rows.append(f"| `{method}` | {state} | {'; '.join(reasons)} |")
    passed = sum(outcome == "passed" for outcome in found.values())
    failed = sum(outcome == "failed" for outcome in found.values())
    return "\n".join([
        "# E2B",
        "",
        "The SDKs `e2b` and `e2b-code-interpreter` (Python 2.63.0 and 2.11.5) and `e2b` and `@e2b/code-interpreter` (JavaScript 2.51.0 and 2.8.0) work",
        "unmodified against Atoll:",
        "",
        "```sh",
        "export E2B_API_URL=http://127.0.0.1:8080/compat/e2b E2B_SANDBOX_URL=http://127.0.0.1:8080/compat/e2b",
        "export E2B_API_KEY=\"$(sudo cat <data folder>/secret/api-key)\"",
        "```",
        "",
        "Clients that take only keys that begin with `e2b_` get that put in front of the key. Those that want hexadecimal digits behind it (Python 2.31) get the key in them:",
        "",
        "```sh",
        "export E2B_API_KEY=\"e2b_$(sudo cat <data folder>/secret/api-key | tr -d '\\n' | od -An -vtx1 | tr -d ' \\n')\"",
        "```",
        "",
        "## Older lines",
        "",
        "| SDK | commands, files, pauses | code |",
        "|---|---|---|",
        "| Python `e2b` 2.20.3, `e2b-code-interpreter` 2.6.2 | as above | by host names and TLS |",
        "| Python `e2b` 2.31.0, `e2b-code-interpreter` 2.9.0 | as above | as above |",
        "| JavaScript `e2b` 2.20.0 | as above | by host names and TLS |",
        "",
        "Code interpreters before Python's 2.9.0 (and JavaScript's of that time) leave `E2B_SANDBOX_URL` out of account and ask `https://49999-{id}.{domain}`, whatever is set. They need what every SDK",
        "needs without the two addresses: a domain whose names all lead to the server (`*.sandboxes.example`), something before the server that ends TLS with a certificate for these names and that the client",
        "trusts (Python: `SSL_CERT_FILE`, Node: `NODE_EXTRA_CA_CERTS`), and `domain=sandboxes.example` (with `:port` if it isn't 443) in the data folder's `server.conf`.",
        "`E2B_API_URL` may stay as above.",
        "",
        "## Programs",
        "",
        "Programs that use E2B, run against Atoll unmodified by `conformance/e2b/test_programs.py`; those that need a model have one that follows a script:",
        "",
        "| program | what of it | version |",
        "|---|---|---|",
        "| agno | `E2BTools` in an agent | 3.1.10 |",
        "| smolagents | `CodeAgent` with `executor_type=\"e2b\"`; the template must have numpy and Pillow | 1.26.0 |",
        "| ComputeSDK | `@computesdk/e2b` | 1.7.52 |",
        "| LangChain | `langchain-e2b` in a deep agent | 0.0.6 |",
        "| CrewAI | `E2BExecTool`, `E2BFileTool`, `E2BPythonTool` | 1.15.30 |",
        "| Haystack | `E2BToolset` of `e2b-haystack` | 2.0.0 |",
        "| sandboxio | `sandboxio-e2b` | 0.1.0 |",
        "| E2B's command line | `sandbox` (create, list, exec, info, metrics, pause, resume, kill), `template list` | 2.19.0 |",
        "| Mastra | `@mastra/e2b` | 0.8.0 |",
        "",
        "## Templates",
        "",
        "`base` is this installation's template `base` and `code-interpreter-v1` its `data-science`, where their images are made already; else both are `python`. `e2b-templates=base=NAME,code-interpreter-v1=NAME`",
        "in `server.conf` sets others. The installation's own templates and snapshots are taken by their names and ids.",
        "",
        "## Building templates",
        "",
        "`Template.build` makes a template of this installation: its steps become a Dockerfile, which [is built here](../builds.md), `from_image` of any registry and `from_template` of any template.",
        "Commands run in a login shell of bash as `user` in `/home/user`, as in sandboxes; images that lack bash, `user` or `sudo` get them (by apt or apk, where the build reaches a mirror). Variables in",
        "`set_envs` and `set_workdir` are replaced by those that the image or a step set before; `PATH` is set anew by login shells, so programs belong into folders such as `/usr/local/bin`. What `set_start_cmd` starts runs, and its ready command has succeeded, before a sandbox is handed out, not at",
        "the build's end. `skip_cache` anywhere builds all steps anew. Files of `copy` are kept for a day, so that they are not sent again.",
        "Each tag is a template of its own: `NAME` for `default`, else `NAME.TAG`; names have no dot, a namespace before them is passed over, and those of the installation's own templates can't be had.",
        "Entries of a build's log have the time at which it began. `fromImageRegistry` with a username and a password is kept by the installation for all builds from that registry; those of AWS and GCP are refused.",
        "",
        "## Network, ports and the rest",
        "",
        "Sandboxes reach no network outside. A sandbox's port is at `{port}-{id}.localhost:8080` (`domain=` in `server.conf` sets another name), or with the headers `E2b-Sandbox-Id` and `E2b-Sandbox-Port`.",
        "",
        "A table that is longer than [results.md](../results.md) says comes as `extra`, not as `data`, since that can't tell that rows are missing.",
        "",
        "`pause(mode=\"filesystem\")` keeps files and nothing that ran; `connect(on_resume=\"reboot\")` of a sandbox that was paused with its memory brings that back for a moment and leaves it then.",
        "`on_timeout` with `mode: \"filesystem\"` is refused. Events are read at `GET /events/sandboxes` and `GET /events/sandboxes/{id}` (`created`, `updated`, `paused`, `resumed`, `killed`; not of snapshots), with no ids of builds and executions; there are no webhooks.",
        "",
        "## Traps",
        "",
        "What breaks these SDKs where a server is only nearly right, and the tests that hold it (`compat/e2b/…/E2bTrapsTest`, or the file that is named):",
        "",
        "| trap | tests |",
        "|---|---|",
        *(f"| {trap} | {', '.join(f'`{test}`' for test in tests)} |" for trap, tests in TRAPS),
        "",
        "## Methods",
        "",
        f"Written by `python conformance/e2b/expectations.py REPORT.xml` from the results of a suite of {passed + failed} tests with the Python SDKs ({passed} passed).",
        "",
        "| method | | |",
        "|---|---|---|",
        *rows,
        "",
    ])


def check(report):
    said = differences(outcomes(report))
    assert not said, "\n".join(said)


if __name__ == "__main__":
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(page(outcomes(sys.argv[1])))
