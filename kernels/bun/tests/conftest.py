import pytest
from kernel import Kernel


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """One kernel for the tests of a module; a test that may end it takes `kernel`."""
    kernel = Kernel(tmp_path_factory.mktemp("home"))
    yield kernel
    kernel.close()


@pytest.fixture
def kernel(tmp_path):
    kernel = Kernel(tmp_path)
    yield kernel
    kernel.close()
