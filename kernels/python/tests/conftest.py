import os
import sys

import pytest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from driver import Kernel  # noqa: E402


@pytest.fixture
def new_kernel(tmp_path):
    """Starts kernels in a folder of the test's own; ends them, and fails if one does not leave."""
    kernels = []

    def start(**options):
        env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "LANG": "C.UTF-8", **options.pop("env", {})}
        kernel = Kernel(cwd=options.pop("cwd", str(tmp_path)), env=env, **options)
        kernels.append(kernel)
        return kernel

    yield start
    for kernel in kernels:
        kernel.close()


@pytest.fixture
def kernel(new_kernel):
    return new_kernel()
