"""Set up the tests: the interpreter is selected before triton is imported."""

import generated

pytest_plugins = ["loom.pytest_places"]

__all__ = ["generated"]
