"""The playground and the executions, and that nothing a program prints or displays can act in them (hostile output)."""

import json
import re

from playwright.sync_api import expect

expect.set_options(timeout=60_000)

# What browsers say when they refuse what the programs below try.
REFUSED = [
    "Blocked script execution in 'about:srcdoc'",
    "Content Security Policy",
    "Refused to execute the redirect",
    "ERR_INVALID_URL",
]

HTML = (
    "<h1>Displayed</h1><script>parent.owned = document.cookie + parent.document.cookie; top.location = '/ui/keys'</script>"
    "<img src=x onerror='parent.owned = 1'><svg onload='parent.owned = 1'><script>parent.owned = 1</script></svg>"
    "<iframe src='javascript:parent.parent.owned = 1'></iframe><meta http-equiv=refresh content='0;url=/ui/logout'>"
    "<form action=/ui/logout method=post><button>go</button></form><a href='/ui/' target=_top>away</a><p id=end>the end</p>"
)
SVG = (
    "<svg xmlns='http://www.w3.org/2000/svg' width='120' height='60' onload='owned = 1; parent.owned = 1'>"
    "<script>owned = 1; parent.owned = 1</script><rect width='120' height='60' fill='teal'/></svg>"
)
MARKUP = "<script>owned = 1</script><img src=x onerror='owned = 1'>"
ESCAPES = "\x1b]0;owned\x07\x1b]52;c;b3duZWQ=\x07\x1b]8;;http://evil.example\x1b\\link\x1b]8;;\x1b\\ \x1b[31mred\x1b[0m"

HOSTILE = f"""
class Displayed:
    def __init__(self, **forms):
        self.forms = forms["data"]
    def _repr_mimebundle_(self, **_):
        return self.forms
from IPython.display import display
display(Displayed(data={{"text/html": {HTML!r}, "text/plain": {MARKUP!r}}}))
display(Displayed(data={{"image/svg+xml": {SVG!r}}}))
display(Displayed(data={{"application/javascript": "window.owned = 1"}}))
display(Displayed(data={{"text/markdown": {MARKUP!r}}}))
display(Displayed(data={{"image/png": {'"' + MARKUP!r}}}))
print({MARKUP + ESCAPES!r})
raise ValueError({MARKUP!r})
"""


def run(page, code):
    page.fill("#playground-code", code)
    page.press("#playground-code", "Control+Enter")
    cell = page.locator(".cell").first
    expect(cell.locator("pre.cell-code")).to_have_text(code)
    return cell


def in_python(page):
    page.select_option("#playground-template", "python")
    return page


def nothing_acted(page, path):
    frame = page.locator("iframe.result-frame")
    expect(frame.content_frame.locator("#end")).to_have_text("the end")
    assert frame.get_attribute("sandbox") == ""
    inside = next(one for one in page.frames if one.url == "about:srcdoc" and one.parent_frame == page.main_frame)
    assert inside.evaluate("self.origin") == "null"
    picture = page.locator(".result-picture").first
    expect(picture).to_have_js_property("complete", True)
    assert picture.get_attribute("src").startswith("data:image/svg+xml")
    assert page.evaluate("typeof window.owned") == "undefined"
    assert re.search(path, page.url) and "owned" not in page.title()
    assert page.locator("main script, main svg [onload], main [onerror], main a[href^='javascript'], main a[href*='evil']").count() == 0


def test_state_stays_between_runs_and_errors_are_shown(open_page):
    page = in_python(open_page("/ui/playground"))
    first = run(page, "x = 41\nprint('hello')")
    expect(first.locator(".badge")).to_have_text("Completed")
    expect(first.locator(".output").first).to_have_text("hello\n")
    second = run(page, "x += 1\nx")
    expect(second.locator(".result")).to_have_text("42")
    third = run(page, "x / 0")
    expect(third.locator(".badge")).to_have_text("Error")
    expect(third.locator(".problem")).to_contain_text("ZeroDivisionError")


def test_output_streams_and_a_run_is_interrupted(open_page):
    page = in_python(open_page("/ui/playground"))
    cell = run(page, "import time\ni = 0\nwhile True:\n    i += 1\n    print('tick', i, flush=True)\n    time.sleep(0.05)")
    expect(cell.locator(".output").first).to_contain_text("tick 3")
    expect(cell.locator(".badge")).to_have_text("Running")
    page.click("#playground-interrupt")
    expect(cell.locator(".badge")).to_have_text("Interrupted")
    expect(run(page, "i > 2").locator(".result")).to_have_text("True")


def test_tab_indents_and_after_escape_moves_on(open_page):
    page = open_page("/ui/playground")
    code = page.locator("#playground-code")
    code.press_sequentially("if x:")
    code.press("Enter")
    code.press("Tab")
    code.press_sequentially("y")
    expect(code).to_have_value("if x:\n        y")
    code.press("Shift+Tab")
    expect(code).to_have_value("if x:\n    y")
    code.press("Escape")
    code.press("Tab")
    expect(page.locator("#playground-run")).to_be_focused()


def test_hostile_output_is_inert_in_the_playground_and_in_the_history(open_page):
    page = in_python(open_page("/ui/playground", expected=REFUSED))
    cell = run(page, HOSTILE)
    expect(cell.locator(".badge")).to_have_text("Error")
    expect(cell.locator(".output").first).to_have_text(f"{MARKUP}link red\n")
    nothing_acted(page, "/ui/playground$")
    page.goto(page.url.replace("/ui/playground", cell.locator("header a").first.get_attribute("href")))
    nothing_acted(page, "/ui/executions/exec-[0-9a-z]+$")
    page.goto(page.url.split("/exec-")[0])
    expect(page.locator("tbody tr").first).to_contain_text("class Displayed:")
    assert page.evaluate("typeof window.owned") == "undefined"


def test_the_history_is_searched_runs_again_and_is_exported(open_page, client):
    ran = client.exec("needle = 'found'\nprint(needle)\n[1, 2]", language="python")
    try:
        page = open_page("/ui/executions")
        page.locator("#filter-text").press_sequentially("NEEDLE = 'fou")
        expect(page).to_have_url(re.compile(r"[?&]q=NEEDLE"))
        expect(page.locator("[data-live-badge]")).to_have_count(0)
        page.reload()
        expect(page.locator("#filter-text")).to_have_value("NEEDLE = 'fou")
        page.click(f"tr#{ran['execution_id']} a.code-line")
        expect(page.locator("#execution-results .result")).to_have_text("[1, 2]")
        with page.expect_download() as download:
            page.click("#execution-notebook")
        with open(download.value.path(), encoding="utf-8") as file:
            notebook = json.load(file)
        assert [cell["source"] for cell in notebook["cells"]] == ["needle = 'found'\nprint(needle)\n[1, 2]"]
        assert [output["output_type"] for output in notebook["cells"][0]["outputs"]] == ["stream", "execute_result"]
        page.click("text=Run again")
        expect(page).not_to_have_url(re.compile(ran["execution_id"]))
        expect(page.locator("#execution-results .result")).to_have_text("[1, 2]")
    finally:
        client.delete(ran["sandbox_id"])
