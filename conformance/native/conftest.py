import pytest

import installation as installations
from inside import Box


def pytest_addoption(parser):
    parser.addoption("--all", action="store_true", help="the long tests too")


def pytest_collection_modifyitems(config, items):
    """Not skipped: without --all the long ones are not part of the suite."""
    if not config.getoption("--all"):
        long = [item for item in items if item.get_closest_marker("long")]
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item not in long]


# Machines that test are shared, and a busy one may break what depends on when something happens. One more try, shown as RERUN with its
# failure: every one is a bug, of the test or of Atoll, until its cause is known. More than so many of them are no accident.
MOST_RERUNS = 6


def pytest_configure(config):
    config.addinivalue_line("markers", "long: only with --all")
    if config.option.reruns is None:
        config.option.reruns = 1
    config.option.reportchars += "R"


def pytest_runtest_logreport(report):
    if report.outcome == "rerun":
        print(f"\nRERUN {report.nodeid}\n{report.longreprtext}", flush=True)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session, exitstatus):
    reruns = len(session.config.pluginmanager.get_plugin("terminalreporter").stats.get("rerun", []))
    if exitstatus == 0 and reruns > MOST_RERUNS:
        print(f"\n{reruns} tests passed only in a second run (expected: at most {MOST_RERUNS})", flush=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture(scope="session")
def atoll():
    with installations.installation(build_allow=installations.mirrors_of_this_network()) as running:
        yield running


@pytest.fixture
def client(atoll):
    client = atoll.client()
    yield client
    client.close()


@pytest.fixture
def sandbox(client):
    """Makes sandboxes and deletes them afterwards: sandbox(language="python") -> id."""
    made = []

    def make(language="python", **fields):
        made.append(client.exec("", language=language, **fields)["sandbox_id"])
        return made[-1]

    yield make
    for one in made:
        client.delete(one)


@pytest.fixture
def box(client, sandbox):
    """A new Python sandbox, as tests of what happens inside say it."""
    return Box(client, sandbox())


@pytest.fixture
def boxes(client):
    """Makes sandboxes as POST /v1/sandboxes does: boxes(limits={...}) -> Box."""
    made = []

    def make(template="python", **fields):
        made.append(client.call("POST", "/v1/sandboxes", {"template": template, **fields})["sandbox_id"])
        return Box(client, made[-1])

    yield make
    for one in made:
        client.delete(one)


@pytest.fixture(autouse=True)
def healthy_afterwards(request):
    """Whatever a test did: afterwards the server answers and a fresh sandbox works."""
    yield
    if "atoll" in request.fixturenames:
        client = request.getfixturevalue("atoll").client(timeout=60)
        answer = client.exec("print(6 * 7)", language="python")
        assert answer["output"] == "42"
        client.delete(answer["sandbox_id"])
        client.close()
