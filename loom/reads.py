"""Which files of the repository the cells of a chapter open.

A page that lists the chapters, or shows a file, depends on files that no import
names.  An audit hook sees every ``open`` of this process.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

_opened: set[str] = set()
_recording = False
_root = Path()


def record(root: Path) -> None:
    """Remember from now on which files below `root` are opened to be read."""
    global _recording, _root
    _root = root
    prefix = os.path.realpath(root) + os.sep

    def hook(event: str, args: tuple[object, ...]) -> None:
        if event != "open" or not isinstance(args[0], str | os.PathLike):
            return
        mode, flags = args[1], args[2]
        if isinstance(mode, str) and mode[:1] in ("w", "x", "a"):
            return
        if isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR):
            return
        path = os.path.abspath(os.fspath(args[0]))
        if isinstance(path, str) and path.startswith(prefix):
            _opened.add(path[len(prefix) :])

    if not _recording:
        _recording = True
        sys.addaudithook(hook)


def opened() -> list[str]:
    """The files opened, by path from the root; compiled modules by their source.

    What tools keep for themselves (hidden folders, ``_book``) is left out, and so is
    what is no file there: a path relative to another folder's descriptor.
    """
    found = set()
    for path in _opened:
        steps = path.split("/")
        if "__pycache__" in steps:
            stem = steps[-1].split(".")[0]
            steps = [*(s for s in steps[:-1] if s != "__pycache__"), f"{stem}.py"]
        hidden = any(step.startswith(".") for step in steps)
        if not hidden and steps[0] != "_book" and _root.joinpath(*steps).is_file():
            found.add("/".join(steps))
    return sorted(found)
