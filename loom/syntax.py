"""Python source to a syntax tree, from any thread."""

from __future__ import annotations

import ast
import threading
from typing import Any

_ONE_AT_A_TIME = threading.Lock()


def parse(code: str, mode: str = "exec") -> Any:
    """`ast.parse`, for chapters that are read in several threads.

    In some Python versions, 3.11 among them, two threads that parse at the same time
    can disturb each other, and one of them gets a SystemError for correct code.
    Raises SyntaxError and ValueError as `ast.parse` does.
    """
    with _ONE_AT_A_TIME:
        return ast.parse(code, mode=mode)
