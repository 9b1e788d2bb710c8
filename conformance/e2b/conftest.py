"""An installation of the tests' own, and the environment that points the E2B SDKs at it."""

import os
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "native"))

import installation as installations  # noqa: E402


def pytest_addoption(parser):
    parser.addoption("--all", action="store_true", help="the long tests too")


def pytest_configure(config):
    config.addinivalue_line("markers", "long: only with --all")


def pytest_collection_modifyitems(config, items):
    """Not skipped: without --all the long ones are not part of the suite."""
    if not config.getoption("--all"):
        items[:] = [item for item in items if item.get_closest_marker("long") is None]


@pytest.fixture(scope="session")
def atoll():
    with installations.installation() as running:
        yield running


@pytest.fixture(scope="session")
def environment(atoll):
    base = atoll.url + "/compat/e2b"
    return {**os.environ, "E2B_API_URL": base, "E2B_SANDBOX_URL": base, "E2B_API_KEY": atoll.key, "ATOLL_E2B_URL": base, "ATOLL_API_KEY": atoll.key}
