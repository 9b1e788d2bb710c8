import pytest

from kernel import Kernel, build


@pytest.fixture(scope="session")
def binary(tmp_path_factory):
    return build(tmp_path_factory.mktemp("kernel"))


@pytest.fixture
def start(binary, tmp_path):
    """Starts kernels in a folder of their own and ends them afterwards: start(env={...}) -> Kernel."""
    started = []

    def start(**more):
        started.append(Kernel(binary, tmp_path, **more))
        return started[-1]

    yield start
    for kernel in started:
        kernel.close()


@pytest.fixture
def kernel(start):
    return start()
