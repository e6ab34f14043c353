"""The workshop of the book: executing chapters, rendering them, showing kernels.

Importing this package imports nothing heavy; each name is loaded when it is used.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

# name -> the module that defines it (loom.keys reads this table, too)
NAMES = {
    "aot": "loom.aot",
    "begin": "loom.begin",
    "bench": "loom.bench",
    "captured": "loom.captures",
    "keep": "loom.captures",
    "trace": "loom.trace",
}

__all__ = list(NAMES)


class _Workshop(ModuleType):
    """A package whose functions win over the submodules of the same name.

    ``loom.begin`` is the function; without this, the first ``import loom.begin``
    would put the submodule in its place.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        if name in NAMES and isinstance(value, ModuleType):
            value = getattr(value, name)
        super().__setattr__(name, value)


def __getattr__(name: str) -> Any:
    if name not in NAMES:
        raise AttributeError(f"module 'loom' has no attribute '{name}'")
    from importlib import import_module

    return getattr(import_module(NAMES[name]), name)


sys.modules[__name__].__class__ = _Workshop
