// Code, typed and run: streamed output, displayed values, and a sandbox that keeps its state from one run to the next.
"use strict";

(() => {
  const $ = (id) => document.getElementById(id);
  const { make } = atollResults;
  const code = $("playground-code");
  const template = $("playground-template");
  const sandbox = $("playground-sandbox");
  const language = $("playground-language");
  const run = $("playground-run");
  const stop = $("playground-interrupt");
  const log = $("playground-log");
  const empty = $("playground-empty");
  if (!run) return; // For keys that only read.
  let current = null; // what runs: {execution}
  let number = 0;

  // --- what to run in --------------------------------------------------------------------------------------------------

  function chosen() {
    if (!sandbox.value) return template.selectedOptions[0];
    const made = sandbox.selectedOptions[0].dataset.template;
    return [...template.options].find((option) => option.value === made) ?? template.selectedOptions[0];
  }

  function choose() {
    const languages = (chosen()?.dataset.languages ?? "").split(",").filter(Boolean);
    const before = language.value;
    language.replaceChildren(...languages.map((name) => new Option(name, name)));
    if (languages.includes(before)) language.value = before;
    template.disabled = sandbox.value !== "";
    if (sandbox.value && chosen()) template.value = chosen().value;
  }

  function goOnIn(id) {
    if (![...sandbox.options].some((option) => option.value === id)) {
      const option = new Option(`${id} · ${template.value}`, id);
      option.dataset.template = template.value;
      sandbox.add(option, 1);
    }
    sandbox.value = id;
    choose();
  }

  template.addEventListener("change", choose);
  sandbox.addEventListener("change", choose);
  $("playground-new").addEventListener("click", () => {
    sandbox.value = "";
    choose();
    code.focus();
  });

  // --- typing ----------------------------------------------------------------------------------------------------------

  function type(text) {
    // The one way that can be undone.
    if (!document.execCommand("insertText", false, text)) code.setRangeText(text, code.selectionStart, code.selectionEnd, "end");
  }

  function indent(back) {
    const start = code.value.lastIndexOf("\n", code.selectionStart - 1) + 1;
    const end = code.selectionEnd;
    const before = code.value.slice(start, end);
    const after = back ? before.replace(/^( {1,4}|\t)/gm, "") : before.replace(/^(?=.)/gm, "    ");
    code.setSelectionRange(start, end);
    if (after !== before) type(after);
    code.setSelectionRange(start, start + after.length);
  }

  let tabLeaves = false;
  code.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      begin();
    } else if (event.key === "Tab" && !tabLeaves && !event.ctrlKey && !event.altKey && !event.metaKey) {
      event.preventDefault();
      const several = code.value.slice(code.selectionStart, code.selectionEnd).includes("\n");
      if (event.shiftKey || several) indent(event.shiftKey);
      else type("    ");
    } else if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      const line = code.value.slice(code.value.lastIndexOf("\n", code.selectionStart - 1) + 1, code.selectionStart);
      const space = /^[ \t]*/.exec(line)[0];
      const opens = /[:{([]\s*$/.test(line) ? "    " : "";
      if (space || opens) {
        event.preventDefault();
        type("\n" + space + opens);
      }
    }
    // After Escape the tab key goes on to the next control, for who has a keyboard only.
    tabLeaves = event.key === "Escape" || (tabLeaves && event.key === "Shift");
  });

  // --- running ---------------------------------------------------------------------------------------------------------

  function cell(text) {
    const element = make("article", "card cell");
    const head = make("header", "row");
    const state = make("span", "badge dot info", "Running");
    const time = make("span", "muted number");
    const links = make("span", "row push");
    head.append(make("strong", "", `Run ${++number}`), state, time, links);
    const source = make("pre", "cell-code", text);
    source.tabIndex = 0;
    const output = make("div", "output");
    output.tabIndex = 0;
    output.setAttribute("role", "log");
    output.setAttribute("aria-label", `Output of run ${number}`);
    const results = make("div", "results");
    const problem = make("div", "problem");
    problem.setAttribute("role", "alert");
    element.append(head, source, output, results, problem);
    empty?.remove();
    log.prepend(element);
    return { element, state, time, links, problem, printer: new atollResults.Printer(output), results: new atollResults.Results(results) };
  }

  function link(words, path) {
    const element = make("a", "", words);
    element.href = path;
    return element;
  }

  function mark(shown, [words, kind]) {
    shown.state.textContent = words;
    shown.state.className = `badge dot ${kind}`;
  }

  function fail(shown, text) {
    mark(shown, ["Not run", "bad"]);
    shown.problem.textContent = text;
  }

  function finish(shown, end) {
    if (!end) {
      mark(shown, ["Connection lost", "warn"]);
      shown.problem.textContent = "The connection broke off. What runs goes on: its page has all of it.";
    } else if (end.name === "error") fail(shown, [end.data.message, end.data.remediation].filter(Boolean).join(" · "));
    else {
      const outcome = end.data;
      mark(shown, atollResults.words[outcome.exit_reason] ?? [outcome.exit_reason, ""]);
      shown.time.textContent = atollResults.duration(outcome.duration_ms) + (outcome.exit_code ? ` · exit code ${outcome.exit_code}` : "");
      const error = outcome.error;
      if (error) shown.problem.append(make("pre", "output", atollResults.plain(error.traceback || `${error.name}: ${error.message}`)));
      if (outcome.detail) shown.problem.append(make("p", "", outcome.detail));
      if (outcome.state_kept === false) shown.problem.append(make("p", "", "The interpreter was started afresh: its names, imports and open files are gone."));
    }
  }

  async function begin() {
    if (current || code.value.trim() === "") return;
    const request = { code: code.value, language: language.value || undefined, stream: true };
    if (sandbox.value) request.sandbox_id = sandbox.value;
    else request.template = template.value;
    const shown = cell(code.value);
    current = { execution: null, asked: false };
    run.disabled = true;
    stop.disabled = false;
    try {
      const response = await atoll.call("/ui/v1/code_exec", { json: request, headers: { Accept: "text/event-stream" } });
      const end = await atollResults.follow(response, shown.printer, shown.results, (start) => {
        current.execution = start.execution_id;
        goOnIn(start.sandbox_id);
        shown.links.append(link("Execution", `/ui/executions/${start.execution_id}`), link("Sandbox", `/ui/sandboxes/${start.sandbox_id}`));
        if (current.asked) interrupt();
      });
      finish(shown, end);
    } catch (error) {
      if (error.status === 401) atoll.leave("/ui/login?next=" + encodeURIComponent(location.pathname + location.search));
      fail(shown, atoll.words(error));
    } finally {
      current = null;
      run.disabled = false;
      stop.disabled = true;
    }
  }

  async function interrupt() {
    if (!current) return;
    current.asked = true;
    if (!current.execution) return; // As soon as it has an id.
    try {
      await atoll.call(`/ui/v1/executions/${current.execution}:interrupt`, { method: "POST" });
    } catch (error) {
      atoll.toast(atoll.words(error), "bad");
    }
  }

  run.addEventListener("click", begin);
  stop.addEventListener("click", interrupt);
  choose();
  if (language.dataset.first) language.value = language.dataset.first;
  code.focus();
})();
