import pytest
from kernel import NODE24, RUNTIMES, Kernel


def pytest_generate_tests(metafunc):
    """Each test on each runtime. `only` marks what belongs to some of them: their kinds (bun, node, deno). What is the same in all versions
    of Node, the language and the output, is tested on one, but for what is marked `versions`."""
    if "runtime" not in metafunc.fixturenames:
        return
    only = metafunc.definition.get_closest_marker("only")
    runtimes = [runtime for runtime in RUNTIMES if only is None or runtime.kind in only.args]
    if metafunc.module.__name__ in ("test_language", "test_output") and metafunc.definition.get_closest_marker("versions") is None:
        runtimes = [runtime for runtime in runtimes if runtime is not NODE24]
    metafunc.parametrize("runtime", runtimes, ids=repr, scope="module")


def pytest_configure(config):
    config.addinivalue_line("markers", "only(*kinds): the runtimes that a test is about")
    config.addinivalue_line("markers", "versions: not the same in all versions of a runtime")


def pytest_collection_modifyitems(items):
    """One runtime after the other within a file, so that each file starts one shared kernel of each."""

    def order(item):
        callspec = getattr(item, "callspec", None)
        runtime = callspec.params.get("runtime") if callspec else None
        return (str(item.path), RUNTIMES.index(runtime) if runtime else 0)

    items.sort(key=order)


@pytest.fixture(scope="module")
def shared(tmp_path_factory, runtime):
    """One kernel for the tests of a module; a test that may end it takes `kernel`."""
    kernel = Kernel(tmp_path_factory.mktemp("home"), runtime=runtime)
    # An interrupt in the moment in which Node loads one of its own modules leaves that module unusable.
    kernel.run("require('timers/promises'); require('http'); require('async_hooks'); 0")
    yield kernel
    kernel.close()


@pytest.fixture
def kernel(tmp_path, runtime):
    kernel = Kernel(tmp_path, runtime=runtime)
    yield kernel
    kernel.close()
