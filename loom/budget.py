"""Pytest plugin: the seconds each test file took, against its budget.

``make test`` loads it with ``-p loom.budget``.  A file over the budget is
marked, not failed: a slow machine is no fault of a test.
"""

from __future__ import annotations

from collections import Counter

import pytest

FILE_SECONDS = 60.0
"""Seconds one test file may take on two cores."""


class Budget:
    """Adds up set-up, call and tear-down of every test, by file."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self.tests: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        path = report.nodeid.partition("::")[0]
        self.seconds[path] += report.duration  # type: ignore[assignment]
        self.tests[path] += report.when == "call"

    def pytest_terminal_summary(
        self, terminalreporter: pytest.TerminalReporter
    ) -> None:
        terminalreporter.section(f"seconds per file (budget {FILE_SECONDS:.0f})")
        for line in table(self.seconds, self.tests):
            terminalreporter.write_line(line)


def table(seconds: Counter[str], tests: Counter[str]) -> list[str]:
    """One line a file, the slowest first; those over the budget say so."""
    width = max((len(path) for path in seconds), default=0)
    lines = []
    for path, spent in seconds.most_common():
        over = "  over budget" if spent > FILE_SECONDS else ""
        lines.append(f"{path:<{width}} {spent:8.1f} s {tests[path]:5d} tests{over}")
    return lines


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # the one process that prints
        config.pluginmanager.register(Budget(), "loom-budget")
