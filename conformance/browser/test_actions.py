"""What people do in the dashboard, each in the browser and to its end."""

import contextlib
import os
import re
import signal
import time
import uuid

import pytest
from conftest import login_with_key
from playwright.sync_api import expect

expect.set_options(timeout=60_000)

HOSTILE = '"><script>document.title="owned"</script><img src=x onerror=document.title="owned">'


def new_id():
    return f"browser-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def sandbox(client):
    """sandbox(**fields) -> the id of a new one of the template python; they end with the test."""
    made = []

    def make(**fields):
        made.append(client.call("POST", "/v1/sandboxes", {"template": "python", **fields})["sandbox_id"])
        return made[-1]

    yield make
    for one in made:
        with contextlib.suppress(Exception):
            client.delete(one)


@pytest.fixture
def template(client):
    """template(dockerfile) -> the id of a new one, which goes with the test."""
    made = []

    def make(dockerfile, **fields):
        made.append(client.call("POST", "/v1/templates", {"id": new_id(), "dockerfile": dockerfile, **fields})["id"])
        return made[-1]

    yield make
    for one in made:
        with contextlib.suppress(Exception):
            client.call("DELETE", f"/v1/templates/{one}")


def confirm(page):
    page.click("#confirm [data-confirmed]")


# Templates


def test_a_template_is_made_built_with_a_live_log_used_edited_and_duplicated(open_page, client):
    name = new_id()
    page = open_page("/ui/templates/new")
    page.fill('[name="id"]', name)
    page.check('[name="source"][value="dockerfile"]')
    page.fill('[name="dockerfile"]', "FROM atoll/python\nRUN echo first words\nRUN sleep 2; echo made-here > /made\n")
    page.click("text=Save and build")
    log = page.locator("#build-log")
    # Words of the second step while the third one runs.
    expect(log).to_contain_text("first words")
    expect(page.locator("#build-state")).to_have_text("ready")
    expect(log).to_contain_text("[3/3]")
    page.goto(page.url.split("/templates/")[0])
    try:
        page.locator(f"#template-{name}").get_by_role("link", name="Run", exact=True).click()
        expect(page.locator("#playground-template")).to_have_value(name)
        page.select_option("#playground-language", "bash")
        page.fill("#playground-code", "cat /made")
        page.click("#playground-run")
        expect(page.locator(".cell .output").first).to_have_text("made-here\n")
        page.goto(page.url.split("/ui/")[0] + f"/ui/templates/{name}/edit")
        page.fill('[name="description"]', "said later")
        page.fill('[name="memory"]', "300")
        page.get_by_role("button", name="Save", exact=True).click()
        expect(page.locator(f"#template-{name}")).to_contain_text("said later")
        expect(page.locator(f"#template-{name}")).to_contain_text("300 MiB")
        page.locator(f"#template-{name}").get_by_role("link", name="Duplicate").click()
        page.click("main button:has-text('Duplicate')")
        expect(page.locator(f"#template-{name}-copy")).to_contain_text("300 MiB")
        for one in (f"{name}-copy", name):
            page.locator(f"#template-{one}").get_by_role("button", name="Delete").click()
            confirm(page)
            expect(page.locator(f"#template-{one}")).to_have_count(0)
    finally:
        for one in client.call("GET", "/v1/sandboxes?limit=100")["items"]:
            if one["template"] == name and one["state"] != "ended":
                client.delete(one["sandbox_id"])
        for one in (f"{name}-copy", name):
            with contextlib.suppress(Exception):
                client.call("DELETE", f"/v1/templates/{one}")


def test_a_failed_build_names_its_step_and_shows_hostile_words_as_words(open_page, template):
    name = template(f"FROM atoll/python\nRUN echo fine\nRUN printf '\\033]0;owned\\007\\033[31m%s\\n' '{HOSTILE}' >&2; exit 7\n", name=HOSTILE)
    page = open_page("/ui/")
    page.locator(f"#template-{name}").get_by_role("button", name="Build", exact=True).click()
    expect(page.locator("#build-state")).to_have_text("failed")
    expect(page.locator("#build-problem")).to_contain_text("step 3 of 3 failed")
    expect(page.locator("#build-problem")).to_contain_text("exit code 7")
    expect(page.locator("#build-log .log-error")).to_have_text(re.compile(re.escape(HOSTILE)))
    page.reload()
    expect(page.locator("#build-problem")).to_contain_text("step 3 of 3 failed")
    assert "owned" not in page.title().replace(HOSTILE, "") and page.locator("main img, main script").count() == 0
    page.goto(page.url.split("/templates/")[0])
    expect(page.locator(f"#template-{name}")).to_contain_text("Build failed")


def test_the_depth_of_a_pool_is_set(open_page, client, template):
    name = template("FROM atoll/python\n")
    page = open_page("/ui/pools")
    page.click("text=Set a depth")
    page.select_option('#pool-depth [name="template"]', name)
    page.fill('#pool-depth [name="depth"]', "20000")
    # The browser itself refuses what is out of bounds.
    page.click("#pool-depth button.primary")
    expect(page.locator("#pool-depth")).to_be_visible()
    page.fill('#pool-depth [name="depth"]', "3")
    page.click("#pool-depth button.primary")
    expect(page.locator("#pool-depth")).to_be_hidden()
    expect(page.locator("#toasts")).to_contain_text("depth 3")
    assert client.call("GET", f"/v1/templates/{name}")["pool_depth"] == 3


# Sandboxes


def test_forks_snapshots_and_a_rollback(open_page, client, sandbox):
    box = sandbox(name=new_id())
    client.exec("x = 'before'", sandbox_id=box)
    page = open_page(f"/ui/sandboxes/{box}")
    made, moment = [], new_id()
    try:
        page.click("main >> text=Snapshot")
        page.fill('#snapshot [name="name"]', moment)
        page.click("text=Make snapshot")
        kept = page.locator(".kept li", has_text=moment)
        expect(kept).to_contain_text("ready")
        client.exec("x = 'after'", sandbox_id=box)
        kept.get_by_role("button", name="Roll back").click()
        confirm(page)
        expect(page.locator("#toasts")).to_contain_text("Rolled back")
        assert client.exec("print(x)", sandbox_id=box)["output"] == "before"
        expect(page.locator(".timeline")).to_contain_text("Rolled back")
        kept.get_by_role("button", name="New sandbox from it").click()
        expect(page).not_to_have_url(re.compile(box))
        made.append(page.url.split("/")[-1])
        assert client.exec("print(x)", sandbox_id=made[0])["output"] == "before"
        page.goto(page.url.replace(made[0], box))
        page.click("main >> text=Fork >> nth=0")
        page.fill('#fork [name="count"]', "2")
        page.click("#fork button.primary")
        tree = page.locator(".fork-tree")
        # Beside the one from the snapshot.
        expect(tree.locator("a")).to_have_count(3)
        made += [one for link in tree.locator("a").all() if (one := link.get_attribute("href").split("/")[-1]) not in made]
        # The tree is the same on the page of a copy, with a copy of the copy below it.
        page.goto(page.url.replace(box, made[1]))
        page.click("main >> text=Fork >> nth=0")
        page.click("#fork button.primary")
        expect(page.locator("#toasts")).to_contain_text("This is the fork")
        made.append(page.url.split("/")[-1])
        expect(page.locator(f".fork-tree #branch-{made[1]} #branch-{made[3]} strong")).to_be_visible()
        expect(page.locator(f".fork-tree > #branch-{box}")).to_be_visible()
        page.goto(page.url.replace(made[3], box))
        page.locator(".kept li", has_text=moment).get_by_role("button", name="Delete").click()
        confirm(page)
        expect(page.locator(".kept li", has_text=moment)).to_have_count(0)
    finally:
        for one in made:
            client.delete(one)


def test_why_each_ended_is_said_in_words_in_the_list_and_on_its_page(open_page, atoll, client, sandbox):
    prefix = new_id()
    ended = {
        "killed": (sandbox(name=f"{prefix}-killed"), "Killed by a user", "Deleted by key"),
        "timeout": (sandbox(name=f"{prefix}-timeout", lifetime_seconds=1, on_timeout="kill"), "Timeout: its time was up", "lifetime of 1 s"),
        "idle": (sandbox(name=f"{prefix}-idle", idle_timeout_seconds=1, on_timeout="kill"), "Timeout: not used", "for 1 s"),
        "main": (sandbox(name=f"{prefix}-main", main={"argv": ["sh", "-c", "sleep 2; exit 5"]}), "Main process ended", "exit code 5"),
        "crashed": (sandbox(name=f"{prefix}-crashed"), "Crashed", "signal 9"),
    }
    for pid in atoll.sentries(ended["crashed"][0]):
        os.kill(pid, signal.SIGKILL)
    page = open_page("/ui/sandboxes")
    row = page.locator(f"#row-{ended['killed'][0]}")
    row.get_by_role("button", name="Kill").click()
    confirm(page)
    for box, words, detail in ended.values():
        expect(page.locator(f"#row-{box}")).to_contain_text(words)
        expect(page.locator(f"#row-{box}")).to_contain_text(detail)
    for box, words, detail in ended.values():
        page.goto(f"{atoll.url}/ui/sandboxes/{box}")
        expect(page.locator(".sandbox-end")).to_contain_text(f"Ended: {words}.")
        expect(page.locator(".sandbox-end")).to_contain_text(detail)
        expect(page.locator(".timeline")).to_contain_text("Ended")
        assert page.locator("#sandbox-head button").count() == 0


def test_a_cell_out_of_memory_says_so(open_page, client, sandbox):
    box = sandbox()
    page = open_page(f"/ui/sandboxes/{box}")
    client.exec("x = []\nwhile True: x.append(bytearray(16 << 20))", sandbox_id=box)
    expect(page.locator(".ran").first).to_contain_text("out of memory")


# Inside


def test_files_are_uploaded_shown_edited_downloaded_and_deleted_and_hostile_names_are_names(open_page, client, sandbox):
    box = sandbox()
    names = ["<img src=x onerror=document.title=1>.txt", "a\"'b.txt", "n" * 200, "\x1b]0;owned\x07.txt", "\u202etxt.exe", "two\nlines"]
    client.exec(f"import os\nfor name in {names!r}: open(os.path.expanduser('~/') + name, 'w').write('inside ' + name)", sandbox_id=box)
    page = open_page(f"/ui/sandboxes/{box}/files", expected=["404"])
    expect(page.locator("#files-path")).to_have_value("/home/user")
    for name in names:
        expect(page.locator("#files-rows button.file-link").filter(has_text=name.split("\n")[0].strip("\x1b\x07")[:40]).first).to_be_visible()
    assert page.locator("#files-rows img, #files-rows script").count() == 0
    page.set_input_files("#files-upload", {"name": "up<b>.txt", "mimeType": "text/plain", "buffer": b"first"})
    row = page.locator("#files-rows tr", has_text="up<b>.txt")
    row.locator("button.file-link").click()
    expect(page.locator("#file-text")).to_have_value("first")
    page.fill("#file-text", "second\n</textarea><script>document.title='owned'</script>")
    page.click("#file-save")
    expect(page.locator("#file")).to_be_hidden()
    with page.expect_download() as download:
        row.locator("text=Download").click()
    with open(download.value.path(), encoding="utf-8") as file:
        assert file.read().startswith("second\n</textarea>")
    row.get_by_role("button", name="Delete").click()
    confirm(page)
    expect(row).to_have_count(0)
    # What goes wrong says why, and what to do.
    page.fill("#files-path", "/nothing/here")
    page.press("#files-path", "Enter")
    expect(page.locator("#files-problem")).to_contain_text("/nothing/here")
    page.click("#files-home")
    expect(page.locator("#files-path")).to_have_value("/home/user")
    expect(page.locator("#files-problem")).to_have_text("")
    assert "owned" not in page.title()


def test_what_runs_is_killed_and_what_listens_is_opened(open_page, client, sandbox, chromium):
    box = sandbox()
    served = client.call("POST", f"/v1/sandboxes/{box}/processes", {"argv": ["python3", "-m", "http.server", "8000"]})
    asleep = client.call("POST", f"/v1/sandboxes/{box}/processes", {"argv": ["sh", "-c", f"sleep 1000; : '{HOSTILE}'"]})
    page = open_page(f"/ui/sandboxes/{box}/processes")
    ports = page.locator("#ports-rows tr", has_text="8000")

    def listens():
        page.click("#inside-refresh")
        return ports.count()

    end = time.monotonic() + 60
    while not listens():
        assert time.monotonic() < end
        page.wait_for_timeout(200)
    link = ports.locator("a")
    assert re.fullmatch(r"http://8000-[0-9a-z]{26}\.localhost:\d+/", link.get_attribute("href"))
    with page.context.expect_page() as opened:
        link.click()
    expect(opened.value.locator("h1")).to_contain_text("Directory listing")
    assert opened.value.evaluate("window.opener") is None and not opened.value.evaluate("document.cookie")
    opened.value.close()
    page.locator(f"#{asleep['process_id']}").get_by_role("button", name="Kill").click()
    confirm(page)
    expect(page.locator(f"#{asleep['process_id']}")).to_contain_text("signaled")
    inside = page.locator("#inside-rows tr", has_text="http.server")
    inside.get_by_role("button", name="Kill").click()
    confirm(page)
    expect(page.locator(f"#{served['process_id']}")).to_contain_text("signaled")
    assert page.locator("main img, main script").count() == 0 and "owned" not in page.title()


def test_escapes_in_a_terminal_change_neither_title_nor_clipboard_and_links_lead_nowhere(open_page, sandbox):
    page = open_page(f"/ui/sandboxes/{sandbox()}/terminal")
    page.locator(".xterm-helper-textarea").focus()
    page.evaluate("void (navigator.clipboard.writeText = () => { window.owned = 1; return Promise.resolve(); })")
    page.keyboard.type("printf '\\033]0;owned\\007\\033]52;c;b3duZWQ=\\007\\033]8;;javascript:window.owned=1\\033\\\\cli''ck\\033]8;;\\033\\\\<img src=x onerror=window.owned=1>\\nshown''-all\\n'\n")
    rows = page.locator(".xterm-rows")
    expect(rows).to_contain_text("shown-all")
    page.locator(".xterm-rows > div", has_text="click<img").first.click()
    assert "owned" not in page.title() and page.evaluate("typeof window.owned") == "undefined"
    assert page.locator(".xterm a[href], .xterm img").count() == 0 and len(page.context.pages) == 1


# Sessions, errors


def test_a_login_link_works_once_and_a_session_that_ended_leads_to_the_login(open_page, atoll, chromium, client):
    link = atoll.launcher("login-link").strip().splitlines()[-1]
    first, second = chromium.new_context(), chromium.new_context()
    try:
        page = first.new_page()
        page.goto(link)
        page.wait_for_url(f"{atoll.url}/ui/")
        page = second.new_page()
        page.goto(link)
        expect(page.locator(".problem")).to_contain_text("link")
        assert page.url.startswith(f"{atoll.url}/ui/login")
    finally:
        first.close()
        second.close()
    key = client.call("POST", "/v1/keys", {"name": "soon gone", "scopes": ["read", "execute"]})
    third = chromium.new_context()
    login_with_key(atoll, third, key["key"])
    state = third.storage_state()
    third.close()
    page = open_page("/ui/sandboxes", state=state, expected=["401"])
    expect(page.locator("[data-live-badge]")).to_have_attribute("data-state", "live")
    client.call("DELETE", f"/v1/keys/{key['key_id']}")
    # Without a click: the page that is open says so by itself, and after the login it is the same page.
    page.wait_for_url(re.compile("/ui/login\\?next="))
    page.fill('[name="key"]', atoll.key)
    page.click("button")
    page.wait_for_url(f"{atoll.url}/ui/sandboxes")


def test_an_address_where_nothing_is_and_an_action_that_fails_say_what_to_do(open_page, atoll, axe):
    page = open_page("/ui/no/such/page", expected=["404", "400", "409"])
    expect(page.locator("h1")).to_have_text("Not found")
    page.click("#nav >> text=Sandboxes")
    page.click("text=New sandbox")
    page.fill('#create [name="memory"]', "1")
    page.click("#create button.primary")
    expect(page.locator("#create [data-problem]")).to_contain_text("memory")
    page.fill('#create [name="memory"]', "")
    page.fill('#create [name="snapshot"]', HOSTILE)
    page.click("#create button.primary")
    expect(page.locator("#create [data-problem]")).to_contain_text("onerror")
    page.goto(f"{atoll.url}/ui/templates/new")
    page.fill('[name="id"]', "python")
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.locator("[data-problem]")).to_contain_text("Choose another id")
    assert "owned" not in page.title() and page.locator("main img").count() == 0


# Keyboard

DIALOGS = [
    ("/ui/sandboxes", "New sandbox", "create"),
    ("/ui/keys", "New key", "new-key"),
    ("/ui/pools", "Set a depth", "pool-depth"),
    ("SANDBOX", "Fork", "fork"),
    ("SANDBOX", "Snapshot", "snapshot"),
    ("SANDBOX", "Kill", "confirm"),
]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_dialogs_open_by_keyboard_keep_the_focus_close_by_escape_and_are_accessible(open_page, atoll, axe, sandbox, scheme):
    box = sandbox()
    page = open_page("/ui/", scheme=scheme)
    for path, opener, dialog in DIALOGS:
        page.goto(atoll.url + path.replace("SANDBOX", f"/ui/sandboxes/{box}"))
        page.locator("main").get_by_role("button", name=opener, exact=True).focus()
        page.keyboard.press("Enter")
        expect(page.locator(f"#{dialog}")).to_be_visible()
        for _ in range(12):
            page.keyboard.press("Tab")
            # The browser's own bar is between the last and the first element, and then the page says: body.
            inside = page.evaluate("id => document.activeElement === document.body || document.getElementById(id).contains(document.activeElement)", dialog)
            assert inside, f"{dialog}: the focus got out to {page.evaluate('document.activeElement.outerHTML')}"
        page.evaluate(axe)
        found = page.evaluate("axe.run(document, {resultTypes: ['violations']}).then(result => result.violations)")
        assert not [(dialog, one["id"], one["nodes"][0]["html"]) for one in found if one["impact"] in ("serious", "critical")]
        page.keyboard.press("Escape")
        expect(page.locator(f"#{dialog}")).to_be_hidden()
        assert page.evaluate("document.activeElement.textContent.trim()") == opener
    expect(page.locator("#sandbox-head")).to_have_attribute("data-state", "running")


def test_every_control_is_reached_by_tab_and_shows_that_it_is(open_page, atoll, sandbox):
    box = sandbox()
    page = open_page("/ui/")
    for path in ("/ui/", "/ui/sandboxes", f"/ui/sandboxes/{box}", f"/ui/sandboxes/{box}/files", "/ui/keys", "/ui/pools", "/ui/playground"):
        page.goto(atoll.url + path)
        expect(page.locator("h1")).to_be_visible()
        result = page.evaluate(
            """() => {
              const wrong = [];
              const all = [...document.querySelectorAll('a[href], button, input, select, textarea')].filter((one) => one.checkVisibility() && !one.disabled && one.type !== 'hidden');
              for (const one of all) {
                if (one.tabIndex < 0 && !one.closest('.xterm')) wrong.push('not reached: ' + one.outerHTML.slice(0, 120));
                one.focus({focusVisible: true});
                const shown = one.classList.contains('hidden') || one.classList.contains('skip') || getComputedStyle(one).outlineStyle !== 'none' || getComputedStyle(one).boxShadow !== 'none';
                if (document.activeElement === one && !shown) wrong.push('no focus seen: ' + one.outerHTML.slice(0, 120));
              }
              return [all.length, wrong];
            }"""
        )
        assert result[0] > 5 and not result[1], (path, result)


def test_nothing_moves_where_motion_is_not_wanted(atoll, chromium, operator):
    context = chromium.new_context(reduced_motion="reduce", storage_state=operator)
    try:
        page = context.new_page()
        page.goto(atoll.url + "/ui/")
        expect(page.locator("[data-live-badge]").first).to_have_attribute("data-state", "live")
        assert page.evaluate("document.getAnimations().length") == 0
    finally:
        context.close()
