"""Every page in both themes and two widths, and what is done on them."""

import json
import re
import uuid

import pytest
from playwright.sync_api import expect

expect.set_options(timeout=60_000)

PAGES = {
    "code-execution": "/ui/",
    "template-new": "/ui/templates/new",
    "template-edit": "/ui/templates/python/edit",
    "template-duplicate": "/ui/templates/python/duplicate",
    "playground": "/ui/playground",
    "executions": "/ui/executions",
    "pools": "/ui/pools",
    "node": "/ui/node",
    "keys": "/ui/keys",
}
LOOKS = [(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")]
HOSTILE = '"><script>document.title="owned"</script><img src=x onerror=document.title="owned">'


@pytest.fixture(scope="session", autouse=True)
def something_to_see(client):
    """Pages with content: executions that ended well and badly, with hostile output and error."""
    answer = client.exec(f"x = 41\nprint({HOSTILE!r})\nx + 1", language="python")
    client.exec(f"raise ValueError({HOSTILE!r})", sandbox_id=answer["sandbox_id"])
    yield answer
    client.delete(answer["sandbox_id"])


def paths(page, seen):
    """Those above, what else the navigation leads to, and those of one sandbox and one execution."""
    sandbox = f"/ui/sandboxes/{seen['sandbox_id']}"
    of_one = {"sandbox": sandbox, **{f"sandbox-{part}": f"{sandbox}/{part}" for part in ("terminal", "files", "processes")}, "execution": f"/ui/executions/{seen['execution_id']}"}
    return {**of_one, **{path.split("/")[-1]: path for path in page.locator("#nav a").evaluate_all("all => all.map(one => one.getAttribute('href'))") if path != "/ui/"}, **PAGES}


@pytest.mark.parametrize(("width", "scheme"), LOOKS)
def test_pages_open_fit_and_are_accessible(open_page, axe, screenshots, something_to_see, width, scheme):
    page = open_page("/ui/", width, scheme)
    problems = {}
    for name, path in paths(page, something_to_see).items():
        page.goto(page.url.split("/ui/")[0] + path)
        page.wait_for_load_state("load")
        expect(page.locator("h1")).to_be_visible()
        if page.locator("[data-live-badge]").count():
            expect(page.locator("[data-live-badge]").first).to_have_attribute("data-state", "live")
        if name == "pools":
            expect(page.locator("#chart-latency canvas")).to_be_visible()
        page.screenshot(path=screenshots / f"{name}-{width}-{scheme}.png", full_page=True)
        # By the debugger, which the page's policy does not bind.
        page.evaluate(axe)
        found = page.evaluate("axe.run(document, {resultTypes: ['violations']}).then(result => result.violations)")
        serious = [f"{one['id']}: {[node['html'][:160] for node in one['nodes'][:3]]}" for one in found if one["impact"] in ("serious", "critical")]
        wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        if serious or wide > 0 or page.title() == "owned":
            problems[name] = [*serious, *([f"{wide} px too wide"] if wide > 0 else []), page.title()]
    assert not problems, json.dumps(problems, indent=1)


def test_counters_change_while_the_page_is_open(open_page, client):
    page = open_page("/ui/")
    executions = page.locator('[data-region="totals"] dd').first
    expect(page.locator("[data-live-badge]").first).to_have_attribute("data-state", "live")
    # What a template was chosen for, before what every Debian has.
    expect(page.locator("#template-python")).to_contain_text("httpx")
    page.evaluate("window.stayed = true")
    before = int(executions.inner_text().replace(",", ""))
    sandbox = client.exec("1", language="python")["sandbox_id"]
    expect(executions).to_have_text(f"{before + 1:,}")
    assert page.evaluate("window.stayed")
    client.delete(sandbox)


def test_a_template_is_made_chosen_and_deleted(open_page, client):
    name = f"browser-{uuid.uuid4().hex[:8]}"
    default = next(one["id"] for one in client.call("GET", "/v1/templates")["items"] if one.get("is_default") or one.get("default"))
    page = open_page("/ui/")
    page.click("text=New template")
    page.fill('[name="id"]', name)
    page.fill('[name="name"]', HOSTILE)
    page.fill('[name="description"]', HOSTILE)
    page.get_by_role("button", name="Save", exact=True).click()
    card = page.locator(f"#template-{name}")
    expect(card).to_contain_text("onerror=")
    assert page.title() != "owned" and page.locator("main img, main script").count() == 0
    card.get_by_role("button", name="Set default").click()
    expect(card).to_contain_text("Default")
    page.locator(f"#template-{default}").get_by_role("button", name="Set default").click()
    expect(page.locator(f"#template-{default} .badge.accent")).to_be_visible()
    card.get_by_role("button", name="Delete").click()
    page.click("#confirm [data-confirmed]")
    expect(card).to_have_count(0)


def test_a_key_is_made_shown_once_used_and_revoked(open_page, atoll, chromium):
    page = open_page("/ui/keys")
    name = f"for {HOSTILE[:40]} {uuid.uuid4().hex[:8]}"
    page.click("text=New key")
    page.fill('#new-key [name="name"]', name)
    page.select_option('#new-key [name="days"]', "7")
    page.click("text=Make the key")
    expect(page.locator("#made-key-secret code")).to_have_text(re.compile("^atoll_"))
    secret = page.locator("#made-key-secret code").inner_text().strip()
    page.click("#made-key >> text=Done")
    row = page.locator("tr", has_text=name)
    expect(row).to_contain_text("execute")
    expect(row).not_to_contain_text("admin")
    assert secret not in page.content()
    page.reload()
    assert secret not in page.content()
    used = type(atoll.client())(atoll.url, secret)
    used.call("GET", "/v1/templates")
    expect(row.locator("td").nth(5)).not_to_have_text("never")
    row.get_by_role("button", name="Revoke").click()
    page.click("#confirm >> text=Cancel")
    expect(row).to_be_visible()
    row.get_by_role("button", name="Revoke").click()
    page.click("#confirm [data-confirmed]")
    expect(row).to_have_count(0)
    with pytest.raises(Exception, match="401"):
        used.call("GET", "/v1/templates")
    used.close()


def test_pools_count_what_is_taken(open_page, client):
    page = open_page("/ui/pools")
    expect(page.locator("[data-live-badge]")).to_have_attribute("data-state", "live")
    note = page.locator('[data-region="sum"] .note').first
    before = note.inner_text()
    sandbox = client.exec("1", language="python")["sandbox_id"]
    expect(note).not_to_have_text(before)
    client.delete(sandbox)


def test_the_node_says_what_it_is(open_page, client):
    node = client.call("GET", "/v1/node")
    page = open_page("/ui/node")
    expect(page.locator("main")).to_contain_text("gvisor")
    expect(page.locator("main")).to_contain_text(f"v{node['cgroup_version']}")


def test_a_read_only_key_changes_nothing(open_page, atoll, chromium, client, something_to_see):
    made = client.call("POST", "/v1/keys", {"name": "reads", "scopes": ["read"]})
    context = chromium.new_context()
    page = context.new_page()
    page.goto(f"{atoll.url}/ui/login")
    page.fill('[name="key"]', made["key"])
    page.click("button")
    page.wait_for_url(f"{atoll.url}/ui/")
    state = context.storage_state()
    context.close()
    templates = client.call("GET", "/v1/templates")
    page = open_page("/ui/", state=state, expected=["Failed to load resource"])
    for path in paths(page, something_to_see).values():
        if path.startswith("/ui/templates/"):
            continue
        page.goto(atoll.url + path)
        assert page.locator('main form[method="post"]').count() == 0, path
    # What the API's own description says that changes something, with the session's token: each is refused.
    routes = client.call("GET", "/openapi.json")["paths"]
    answers = {}
    for path, methods in routes.items():
        for method in methods.keys() & {"post", "put", "patch", "delete"}:
            if path.startswith("/v1/"):
                filled = "/ui" + path.replace("{template_id}", "python").replace("{key_id}", made["key_id"]).replace("{", "").replace("}", "")
                answers[method + " " + path] = page.evaluate(
                    "([path, method]) => fetch(path, {method, body: '{}', headers: {'Content-Type': 'application/json',"
                    " 'Atoll-Form-Token': document.querySelector('[name=form-token]').content}}).then(answer => answer.status)",
                    [filled, method.upper()],
                )
    assert len(answers) > 10
    # 404 and 400: of names that are none. Nothing may have been done, and nothing may break.
    done = {route: status for route, status in answers.items() if status not in (400, 403, 404, 405)}
    assert not done, done
    assert client.call("GET", "/v1/templates") == templates
    assert client.call("GET", f"/v1/keys/{made['key_id']}")["name"] == "reads"
    client.call("DELETE", f"/v1/keys/{made['key_id']}")


def test_a_terminal_goes_on_after_a_reload(open_page, client):
    sandbox = client.call("POST", "/v1/sandboxes", {"template": "python"})["sandbox_id"]
    page = open_page(f"/ui/sandboxes/{sandbox}/terminal")
    screen = page.locator(".xterm-rows")
    page.locator(".xterm-helper-textarea").focus()
    page.keyboard.type("kept=$((6*7)); echo it=$kept\n")
    expect(screen).to_contain_text("it=42")
    page.reload()
    page.locator(".xterm-helper-textarea").focus()
    page.keyboard.type("echo still=$kept\n")
    expect(screen).to_contain_text("still=42")
    client.delete(sandbox)


def test_a_sandbox_is_forked_and_killed_and_says_why_it_ended(open_page, client):
    sandbox = client.exec("x = 41", language="python")["sandbox_id"]
    page = open_page(f"/ui/sandboxes/{sandbox}")
    forks = client.call("POST", f"/v1/sandboxes/{sandbox}:fork", {"count": 2})["items"]
    for fork in forks:
        # The tree comes without a reload.
        expect(page.locator(f'main a[href="/ui/sandboxes/{fork["sandbox_id"]}"]').first).to_be_visible()
        assert client.exec("print(x)", sandbox_id=fork["sandbox_id"])["output"] == "41"
        client.delete(fork["sandbox_id"])
    page.get_by_role("button", name="Kill", exact=True).click()
    page.click("#confirm [data-confirmed]")
    expect(page.locator("main")).to_contain_text("Killed by a user")
    assert client.call("GET", f"/v1/sandboxes/{sandbox}")["end_reason"] == "deleted"
