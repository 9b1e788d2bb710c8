"""A plugin of pytest (`-p older`) by which a suite written for the newest SDK can be imported with an older one: names that the older one lacks stand for nothing.
A test that uses such a name fails, and is then one of what that SDK cannot do."""

import e2b

NEWER = ["Secret", "SecretNotFoundException", "SandboxNotFoundException", "Volume", "VolumePathNotFoundException", "Template", "BuildException"]


def lacking(name):
    def nothing(*_arguments, **_named):
        raise AttributeError(f"e2b {e2b.__version__ if hasattr(e2b, '__version__') else ''} has no {name}")

    return type(name, (Exception,), {"__init__": nothing})


def pytest_configure():
    for name in NEWER:
        if not hasattr(e2b, name):
            setattr(e2b, name, lacking(name))
