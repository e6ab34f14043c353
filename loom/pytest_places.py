"""Pytest plugin: name the chapter's line beside the module's in every traceback.

Line N of ``generated/jit.py`` is line N of ``book/01-jit.qmd``; a failure in the
module prints ``book/01-jit.qmd:N`` beside it.  Loaded by the root ``conftest.py``
only: it is of no use to those who install the package.
"""

from __future__ import annotations

import os
import re
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

import tangle

# A frame in a native traceback, and a place in a message.
FRAME = re.compile(r'^(\s*File "([^"]+)", line (\d+).*)$')
PLACE = re.compile(r"^((\S*?[\w.-]+\.(?:py|qmd)):(\d+):? .*)$")


class Places:
    """The chapter's place of a module's line."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.chapters = dict(self._modules())

    def _modules(self) -> Iterator[tuple[str, str]]:
        """Module path and chapter path; a faulty book does not matter here."""
        order, _ = tangle.page_order(self.root)
        for rel in order:
            yield f"generated/{tangle.module_name(rel)}.py", rel

    def of(self, path: str, line: int | str) -> str:
        """``book/01-jit.qmd:24`` for a module's line, or an empty string."""
        full = os.path.normpath(os.path.join(self.root, path))
        rel = os.path.relpath(full, self.root)
        chapter = self.chapters.get(rel.replace(os.sep, "/"))
        return f"{chapter}:{line}" if chapter else ""

    def beside(self, text: str) -> str:
        """A traceback as text, with the chapter's place beside each frame."""
        return "\n".join(map(self._line, text.split("\n")))

    def _line(self, line: str) -> str:
        for pattern in (FRAME, PLACE):
            if match := pattern.match(line):
                place = self.of(match[2], match[3])
                if place and place not in line:
                    return f"{line}  [{place}]"
        return line

    def deepest(self, trace: Any) -> str:
        """The place of the last frame of a traceback that a chapter holds."""
        found = ""
        while trace is not None:
            name = trace.tb_frame.f_code.co_filename
            found = self.of(name, trace.tb_lineno) or found
            trace = trace.tb_next
        return found


def annotate(longrepr: Any, places: Places, last: str) -> Any:
    """Add places to a failure's representation, whatever the ``--tb`` style."""
    for trace, crash in _chain(longrepr):
        for entry in getattr(trace, "reprentries", ()):
            location = getattr(entry, "reprfileloc", None)
            if location is not None:
                _beside(location, places.of(location.path, location.lineno))
            elif getattr(entry, "style", "") == "native":
                entry.lines[:] = [places.beside(line) for line in entry.lines]
        if crash is not None:
            _beside(crash, places.of(crash.path, crash.lineno))
    crash = getattr(longrepr, "reprcrash", None)
    if crash is not None and last and last not in crash.message:
        _beside(crash, last)
    if isinstance(getattr(longrepr, "longrepr", None), str):  # a module that fails
        longrepr.longrepr = places.beside(longrepr.longrepr)
    return places.beside(longrepr) if isinstance(longrepr, str) else longrepr


def _chain(longrepr: Any) -> Iterator[tuple[Any, Any]]:
    """Every traceback of a representation and where it crashed."""
    chain = getattr(longrepr, "chain", None)
    if chain:
        for trace, crash, _ in chain:
            yield trace, crash
    elif hasattr(longrepr, "reprtraceback"):
        yield longrepr.reprtraceback, getattr(longrepr, "reprcrash", None)


def _beside(location: Any, place: str) -> None:
    """Put a place at the end of the first line of a location's message."""
    message = str(location.message)
    if place and place not in message:
        first, newline, rest = message.partition("\n")
        location.message = f"{first}  [{place}]{newline}{rest}"


class Plugin:
    """Annotates reports in the process that makes them (with xdist, the worker)."""

    def __init__(self, root: Path) -> None:
        self.places = Places(root)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if report.longrepr and call.excinfo is not None:
            last = self.places.deepest(call.excinfo.tb)
            report.longrepr = annotate(report.longrepr, self.places, last)
        return report

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        report = yield
        if report.longrepr:
            report.longrepr = annotate(report.longrepr, self.places, "")
        return report


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Plugin(config.rootpath), "loom-places")
