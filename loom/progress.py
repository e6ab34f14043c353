"""Progress of a weave: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import threading
from types import TracebackType
from typing import TextIO


class Progress:
    """Prints one line for each cell and each chapter.  Safe to call from threads."""

    def __init__(self, out: TextIO | None = None) -> None:
        self.out = out or sys.stdout
        self.lock = threading.Lock()
        self.seconds: dict[str, float] = {}

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pass

    def say(self, line: str) -> None:
        with self.lock:
            print(line, file=self.out, flush=True)

    def chapter_begins(self, rel: str, cells: int, why: str) -> None:
        self.say(f"{rel}: executing {cells} cells ({why})")

    def cell_begins(self, rel: str, label: str) -> None:
        pass

    def cell_ends(self, rel: str, label: str, seconds: float) -> None:
        self.say(f"{rel}: {label} {seconds:.1f} s")

    def chapter_ends(self, rel: str, seconds: float, failed: bool) -> None:
        self.seconds[rel] = seconds

    def summary(self) -> None:
        """The seconds of each chapter, the slowest first."""
        if not self.seconds:
            return
        width = max(map(len, self.seconds))
        self.say("seconds per chapter:")
        for rel, spent in sorted(self.seconds.items(), key=lambda item: -item[1]):
            self.say(f"  {rel:<{width}} {spent:7.1f}")


class Quiet(Progress):
    """Prints nothing."""

    def say(self, line: str) -> None:
        pass


class Bar(Progress):
    """A bar for each chapter that runs, on a terminal."""

    def __init__(self) -> None:
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            TextColumn,
            TimeElapsedColumn,
        )
        from rich.progress import Progress as Rich

        super().__init__()
        self.rich = Rich(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("[dim]{task.fields[cell]}"),
        )
        self.tasks: dict[str, object] = {}

    def __enter__(self) -> Bar:
        self.rich.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.rich.stop()

    def say(self, line: str) -> None:
        self.rich.console.print(line, markup=False, highlight=False)

    def chapter_begins(self, rel: str, cells: int, why: str) -> None:
        self.tasks[rel] = self.rich.add_task(rel, total=cells, cell="starting")

    def cell_begins(self, rel: str, label: str) -> None:
        self.rich.update(self.tasks[rel], cell=label)  # type: ignore[arg-type]

    def cell_ends(self, rel: str, label: str, seconds: float) -> None:
        self.rich.advance(self.tasks[rel])  # type: ignore[arg-type]

    def chapter_ends(self, rel: str, seconds: float, failed: bool) -> None:
        super().chapter_ends(rel, seconds, failed)
        self.rich.remove_task(self.tasks[rel])  # type: ignore[arg-type]
        self.say(f"{rel}: {'failed' if failed else 'done'}, {seconds:.1f} s")


def progress(out: TextIO | None = None) -> Progress:
    """A bar when standard output is a terminal, else plain lines."""
    stream = out or sys.stdout
    if stream is sys.stdout and stream.isatty():
        try:
            return Bar()
        except ImportError:
            pass
    return Progress(stream)
