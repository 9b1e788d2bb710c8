"""Starts Atoll's Python kernel: `python3 kernel.py`, any CPython from 3.8 on, no flags (docs: ../../proto/kernel.md).

The kernel lives in two modules beside this file rather than in it because Python caches the byte code of imported modules only:
`core.py` (the path every cell takes) and `extras.py` (what only some cells need). Both stay off sys.path.
"""
import sys

from _frozen_importlib_external import SourceFileLoader, spec_from_file_location


def load(name, path):
    # A folder that happens to be writable must not collect byte code of whoever starts a kernel.
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        spec = spec_from_file_location(name, path, loader=SourceFileLoader(name, path))
        module = type(sys)(name)
        module.__spec__ = spec
        module.__file__ = path
        module.load = load
        sys.modules[name] = module
        spec.loader.exec_module(module)
        return module
    finally:
        sys.dont_write_bytecode = before


if __name__ == "__main__":
    folder = __file__.rpartition("/")[0] or "."
    load("_atoll_kernel", folder + "/core.py").main(folder)
