import pytest

import installation as installations


@pytest.fixture(scope="session")
def atoll():
    with installations.installation() as running:
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
