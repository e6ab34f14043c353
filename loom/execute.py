"""Execution: every chapter, top to bottom, in a fresh kernel; outputs are cached.

A failing chapter does not stop the others.  What failed is reported at the end, all
of it at once, each with its line in the chapter; the cache then holds what
succeeded.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loom import cache, captures, keys
from loom.lines import ANSI, tidy
from loom.notebook import Kernel, KernelDied, Reply, Stopped, TooLong
from loom.parts import Code, Parts, Text, split
from loom.progress import Progress, Quiet
from loom.woven import CodeCell, Prose, Status, Woven
from tangle import Book, BookError, Chapter, Problem

CELL_SECONDS = 600.0
"""Seconds one cell may run."""
START_SECONDS = 120.0


@dataclass(frozen=True)
class Failure:
    """What stopped a chapter: its place, its source line and the traceback."""

    problem: Problem
    source: str = ""
    traceback: str = ""

    def __str__(self) -> str:
        lines = [str(self.problem)]
        if self.source.strip():
            lines.append(f"    {self.source.strip()}")
        if self.traceback:
            lines += ["", *("    " + s for s in self.traceback.rstrip().split("\n"))]
        return "\n".join(lines)


class ExecutionError(BookError):
    """Every chapter that failed, in page order."""

    def __init__(self, failures: Sequence[Failure]) -> None:
        self.failures = list(failures)
        super().__init__([failure.problem for failure in failures])

    def __str__(self) -> str:
        return "\n\n".join(map(str, self.failures))


class ChapterFailed(Exception):
    """One chapter's failures."""

    def __init__(self, *failures: Failure) -> None:
        self.failures = failures
        super().__init__(*map(str, failures))


@dataclass
class Results:
    """What execution adds to a chapter: outputs by label, values of inlines."""

    outputs: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    values: list[str] = field(default_factory=list)
    seconds: float = 0.0


def weave_chapters(
    book: Book,
    names: Sequence[str] | None = None,
    progress: Progress | None = None,
    *,
    jobs: int | None = None,
    use_cache: bool = True,
    seconds: float = CELL_SECONDS,
) -> list[Woven]:
    """The chapters of `book` (those in `names`, or all), executed or from the cache.

    Raises ExecutionError with every failing chapter, and KeyboardInterrupt after
    stopping the kernels.
    """
    progress = progress or Quiet()
    wanted = [c for c in book.chapters if names is None or c.name in names]
    sources = keys.Sources(book.root)
    todo = [plan(sources, chapter, use_cache) for chapter in wanted]
    pending = [job for job in todo if job.results is None]
    failures = _execute(book.root, pending, progress, jobs, seconds) if pending else {}
    if failures:
        raise ExecutionError(
            [f for job in todo for f in failures.get(job.parts.chapter.rel, ())]
        )
    return [assemble(sources, job.parts, job.results or Results()) for job in todo]


def cached_chapter(sources: keys.Sources, chapter: Chapter) -> Woven | None:
    """A chapter from the cache; None when its outputs do not hold any more."""
    job = plan(sources, chapter, True)
    return assemble(sources, job.parts, job.results) if job.results else None


def bare_chapter(sources: keys.Sources, chapter: Chapter) -> Woven:
    """A chapter as if nothing in it had been executed."""
    parts = split(chapter)
    texts = [part for part in parts.parts if isinstance(part, Text)]
    values = [f"`{i.code}`" for text in texts for i in text.inlines]
    woven = assemble(sources, parts, Results(values=values))
    for part in woven.parts:
        if isinstance(part, CodeCell):
            part.status = "not-evaluated"
    return woven


@dataclass
class Job:
    """A chapter with its key and, once they are there, its results."""

    parts: Parts
    key: keys.Key
    results: Results | None = None
    why: str = ""


def plan(sources: keys.Sources, chapter: Chapter, use_cache: bool) -> Job:
    """Look a chapter up in the cache, and say why it has to run."""
    parts = split(chapter)
    job = Job(parts, keys.execution_key(sources, parts), why="cache not used")
    if not any(_runs(part) for part in parts.parts):
        job.results = Results()
        return job
    if not use_cache:
        return job
    found = cache.load(sources, chapter.name, job.key)
    labels = {p.cell.label for p in parts.parts if isinstance(p, Code) and p.runs}
    inlines = sum(len(p.inlines) for p in parts.parts if isinstance(p, Text))
    if found and found["outputs"].keys() == labels and len(found["values"]) == inlines:
        job.results = Results(found["outputs"], found["values"], found["seconds"])
    else:
        job.why = cache.why(sources, chapter.name, job.key)
    return job


def _runs(part: Text | Code) -> bool:
    """Whether a part needs a kernel."""
    return bool(part.inlines) if isinstance(part, Text) else part.runs


def _execute(
    root: Path, todo: list[Job], progress: Progress, jobs: int | None, seconds: float
) -> dict[str, tuple[Failure, ...]]:
    """Run chapters in parallel; the failures by chapter."""
    halt = threading.Event()
    failures: dict[str, tuple[Failure, ...]] = {}
    width = max(1, min(jobs or os.cpu_count() or 1, len(todo)))
    with progress, ThreadPoolExecutor(width, "chapter") as pool:
        running: dict[Future[None], Job] = {
            pool.submit(_run_chapter, root, job, progress, halt, seconds): job
            for job in todo
        }
        try:
            left = set(running)
            while left:
                done, left = wait(left, timeout=0.5, return_when=FIRST_COMPLETED)
                for future in done:
                    try:
                        future.result()
                    except ChapterFailed as failed:
                        failures[running[future].parts.chapter.rel] = failed.failures
        except BaseException:
            halt.set()
            for future in running:
                future.cancel()
            raise
    return failures


def _run_chapter(
    root: Path, job: Job, progress: Progress, halt: threading.Event, seconds: float
) -> None:
    """Execute one chapter and put its results into the cache."""
    chapter = job.parts.chapter
    begun = time.monotonic()
    failed = True
    count = sum(isinstance(p, Code) and p.runs for p in job.parts.parts)
    if halt.is_set():
        return
    progress.chapter_begins(chapter.rel, count, job.why)
    try:
        run = Run(root, job.parts, progress, halt, seconds)
        results = run.results()
        _unmoved(root, job)
        results.seconds = time.monotonic() - begun
        job.results = results
        cache.store(keys.Sources(root), job.key, job.parts, vars(results), run.read)
        failed = False
    except Stopped:
        pass
    finally:
        progress.chapter_ends(chapter.rel, time.monotonic() - begun, failed)


def _unmoved(root: Path, job: Job) -> None:
    """Refuse results of a chapter, or code, that was edited while it ran."""
    chapter = job.parts.chapter
    try:
        same = chapter.path.read_text("utf-8") == chapter.text
    except (OSError, UnicodeDecodeError):
        same = False
    now = keys.execution_key(keys.Sources(root), job.parts)
    changed = [] if same else [chapter.rel]
    changed += [name for name in now.changed(job.key.parts) if "/" in name]
    if changed:
        what = f"{', '.join(changed)} changed while the chapter ran; weave again"
        raise ChapterFailed(Failure(Problem(chapter.rel, 1, what)))


class Run:
    """One chapter in one kernel."""

    def __init__(
        self,
        root: Path,
        parts: Parts,
        progress: Progress,
        halt: threading.Event,
        seconds: float,
    ) -> None:
        self.root, self.parts, self.progress = root, parts, progress
        self.halt, self.seconds = halt, seconds
        self.chapter = parts.chapter
        self.rel = parts.chapter.rel
        self.read: list[str] = []  # the repository's files that cells have opened

    def results(self) -> Results:
        """Run every cell and inline expression in order.

        Raises ChapterFailed at the first exception that no ``error: true`` allows.
        """
        results = Results()
        line = 1
        kernel = None
        try:
            kernel = Kernel(self.root, self.halt.is_set)
            prepare = f"from loom.begin import prepare; prepare({self._prepared()})"
            self._must(kernel.run(prepare, START_SECONDS, silent=True), 1, "start")
            for part in self.parts.parts:
                if isinstance(part, Text):
                    line = part.inlines[0].line if part.inlines else line
                    results.values += self._inlines(kernel, part)
                elif part.runs:
                    line = part.cell.code_line
                    results.outputs[part.cell.label] = self._cell(kernel, part)
            opened = "__import__('json').dumps(__import__('loom').reads.opened())"
            self.read = [rel for rel in kernel.ask(opened) if rel != self.rel]
        except KernelDied as died:
            first, _, words = str(died).partition("\n")
            raise self._failure(line, f"{first} while this cell ran", words) from None
        except TooLong as late:
            mend = "make it smaller"
            raise self._failure(line, f"the cell {late}; {mend}") from None
        finally:
            if kernel is not None:
                kernel.stop()
        return results

    def _prepared(self) -> str:
        """The arguments of `loom.begin.prepare`."""
        return repr(self.chapter.name)

    def _failure(self, line: int, message: str, traceback: str = "") -> ChapterFailed:
        lines = self.chapter.text.split("\n")
        source = lines[line - 1] if 0 < line <= len(lines) else ""
        problem = Problem(self.rel, line, message)
        return ChapterFailed(Failure(problem, source, traceback))

    def _must(self, reply: Reply, line: int, what: str) -> None:
        if reply.error:
            said = f"{reply.error['ename']}: {reply.error['evalue']}"
            trace = self._plain("\n".join(reply.error["traceback"]))
            raise self._failure(line, f"{what}: {said}", trace)

    def _cell(self, kernel: Kernel, part: Code) -> list[dict[str, Any]]:
        """The outputs of one cell, checked and tidied."""
        cell, begun = part.cell, time.monotonic()
        self.progress.cell_begins(self.rel, cell.label)
        reply = kernel.run("\n".join(cell.lines), self.seconds)
        if reply.error and part.options.get("error") is not True:
            raise self._exception(kernel, part, reply.error)
        self.progress.cell_ends(self.rel, cell.label, time.monotonic() - begun)
        return self._accepted(part, reply.outputs)

    def _exception(
        self, kernel: Kernel, part: Code, error: dict[str, Any]
    ) -> ChapterFailed:
        """The failure of a cell, at the line of the chapter that raised."""
        name = self.chapter.module or self.rel
        line = part.cell.code_line
        ask = f"__import__('json').dumps(__import__('loom').lines.last_place({name!r}))"
        place = kernel.ask(ask)
        if place and place[0] == name:
            line = place[1]
        first = (self._plain(error["evalue"]).strip() or "-").split("\n")[0]
        trace = self._plain("\n".join(error["traceback"]))
        message = error["ename"] if first == "-" else f"{error['ename']}: {first}"
        return self._failure(line, message, trace)

    def _inlines(self, kernel: Kernel, part: Text) -> list[str]:
        """The values of the inline expressions of a text."""
        if not part.inlines:
            return []
        asked = {str(i): inline.code for i, inline in enumerate(part.inlines)}
        reply = kernel.run("", self.seconds, silent=True, values=asked)
        found: list[str] = []
        failures: list[Failure] = []
        for i, inline in enumerate(part.inlines):
            value = reply.values.get(str(i), {"ename": "Error", "evalue": "no value"})
            if value.get("status") == "ok":
                data = value["data"]
                found.append(self._plain(data["text/markdown"]))
                continue
            said = f"{value.get('ename')}: {value.get('evalue')}"
            message = f"{said} (in `{{python}} {inline.code}`)"
            failures += self._failure(inline.line, message).failures
        if failures:
            raise ChapterFailed(*failures)
        return found

    def _accepted(
        self, part: Code, outputs: list[dict[str, Any]]
    ) -> list[dict[str, Any]]:
        """Outputs of the accepted kinds, without this machine in them."""
        kept: list[dict[str, Any]] = []
        for output in outputs:
            kind = output["output_type"]
            if kind == "stream":
                kept.append(output | {"text": self._plain(output["text"])})
            elif kind == "error":
                trace = [self._plain(line) for line in output["traceback"]]
                said = self._plain(output["evalue"])
                kept.append(output | {"traceback": trace, "evalue": said})
            else:
                kept.append(output | {"data": self._data(part, output["data"])})
        return kept

    def _data(self, part: Code, data: dict[str, Any]) -> dict[str, Any]:
        kept = {key: value for key, value in data.items() if key in captures.MEDIA}
        if "text/html" in data or not kept:
            got = "text/html" if "text/html" in data else ", ".join(sorted(data))
            accepted = "PNG, SVG, Markdown, LaTeX and plain text"
            raise self._failure(
                part.cell.code_line,
                f"cell '{part.cell.label}' shows {got}; accepted are {accepted}"
                " (for a table, display(Markdown(…)))",
            )
        return {
            key: self._plain(value) if key != "image/png" else value.strip()
            for key, value in kept.items()
        }

    def _plain(self, text: str) -> str:
        return tidy(ANSI.sub("", text), self.root)


# -------------------------------------------------------------------- woven chapters


def assemble(sources: keys.Sources, parts: Parts, results: Results) -> Woven:
    """A chapter's parts with what execution gave."""
    values = iter(results.values)
    out: list[Prose | CodeCell] = []
    for part in parts.parts:
        if isinstance(part, Text):
            filled = part.fill([next(values) for _ in part.inlines])
            out.append(Prose(filled, part.line))
            continue
        outputs = results.outputs.get(part.cell.label, [])
        status = status_of(sources, parts.chapter, part)
        out.append(CodeCell(part.cell, part.options, _shown(part, outputs), status))
    return Woven(parts.chapter, parts.meta, out)


def _shown(part: Code, outputs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The outputs that the options ``output`` and ``warning`` leave."""
    if part.options.get("output") is False:
        return []
    if part.options.get("warning") is False:
        return [output for output in outputs if output.get("name") != "stderr"]
    return list(outputs)


def status_of(sources: keys.Sources, chapter: Chapter, part: Code) -> Status:
    """Whether a cell ran, or which kind of capture stands in its place."""
    if not part.runs:
        return "not-evaluated"
    if not part.cell.capture:
        return "run"
    path = captures.capture_path(sources.root, chapter, part.cell.label)
    found = captures.load(path, sources.root)
    if found is None:
        return "missing"
    changed = keys.stale_parts(sources, chapter, part.cell, found.key, found.parts)
    return "stale" if changed else "captured"
