"""The capture run: chapters executed natively on a GPU, and what it said, stored.

Chapters run one after the other, because their timings share one GPU, and every cell
of a chapter runs, so that capture cells find their names.  What a chapter's capture
cells said is stored when the chapter has come to its end, and not before; a chapter
that fails leaves its earlier captures as they are.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import tangle
from loom import build, captures, keys, transport
from loom.begin import interpreted, version
from loom.captures import Capture
from loom.execute import CELL_SECONDS, ChapterFailed, ExecutionError, Failure, Run
from loom.lines import tidy
from loom.notebook import Kernel
from loom.parts import Code, Parts, split
from loom.progress import Progress
from tangle import Book, BookError, Chapter, Problem

Probe = Callable[[], dict[str, str]]
DEVICE = """
import json, torch
torch.zeros(1, device="cuda")
said = {"device": torch.cuda.get_device_name(), "cuda": str(torch.version.cuda)}
print(json.dumps(said))
"""


class NoGpu(Exception):
    """Nothing can be captured here; the message says why, and the mend."""


def capture(
    root: Path,
    names: Sequence[str],
    progress: Progress,
    *,
    pack: Path | None = None,
    probe: Probe | None = None,
    seconds: float = CELL_SECONDS,
) -> list[Path]:
    """Run the chapters `names`, or all with capture cells; the files of their captures.

    A file is written only if something but the date has changed.  With ``pack``, the
    captures of all chapters that have ended well are in this archive, too.
    Raises NoGpu before anything runs, BookError for faults of the chapters, and
    ExecutionError with every chapter that failed, after the others have ended.
    """
    if interpreted():
        raise NoGpu(
            f"TRITON_INTERPRET={os.environ['TRITON_INTERPRET']} is set, and captures"
            " are made without the interpreter: unset TRITON_INTERPRET"
        )
    provenance = (probe or find_device)()
    for note in tangle.tangle(root):
        progress.say(note)
    book = tangle.read_book(root)
    chapters = _wanted(book, names)
    progress.say(f"capturing on {provenance['device']}")
    files: list[Path] = []
    failures: list[Failure] = []
    with progress:
        for chapter in chapters:
            try:
                files += _chapter(book, chapter, provenance, progress, seconds)
            except ChapterFailed as failed:
                failures += failed.failures
            if pack is not None and files:  # what there is, should the next one stop us
                transport.pack(root, files, pack)
                progress.say(f"{pack}: {len(files)} captures packed")
    if failures:
        raise ExecutionError(failures)
    return files


def _wanted(book: Book, names: Sequence[str]) -> list[Chapter]:
    """The chapters to run; their faults are raised before anything runs."""
    named = build.chapter_names(book, names)
    chapters = [c for c in book.chapters if not named or c.name in named]
    without = [c for c in chapters if not captures.capture_cells(c)]
    if named and without:
        what = "has no cell with `#| capture: gpu`: nothing to capture"
        raise BookError([Problem(c.rel, 1, what) for c in without])
    chapters = [c for c in chapters if c not in without]
    rels = {"_quarto.yml", *(c.rel for c in chapters)}
    if problems := [p for p in build.lint(book, stored=False) if p.path in rels]:
        raise BookError(problems)
    return chapters


# --------------------------------------------------------------------------- a chapter


def _chapter(
    book: Book,
    chapter: Chapter,
    provenance: dict[str, str],
    progress: Progress,
    seconds: float,
) -> list[Path]:
    """Run one chapter and store its captures; their files, changed or not."""
    root, parts, begun = book.root, split(chapter), time.monotonic()
    cells = captures.capture_cells(chapter)
    before = _keys(root, chapter)
    count = sum(isinstance(p, Code) and p.runs for p in parts.parts)
    progress.chapter_begins(chapter.rel, count, f"{len(cells)} to capture")
    failed = True
    try:
        run = CaptureRun(root, parts, progress, threading.Event(), seconds)
        run.results()
        if not _unmoved(root, chapter, before):
            what = "its code has changed while the chapter ran; capture it again"
            raise ChapterFailed(Failure(Problem(chapter.rel, 1, what)))
        failed = False
    finally:
        progress.chapter_ends(chapter.rel, time.monotonic() - begun, failed)
    dated = provenance | {"date": datetime.now(UTC).date().isoformat()}
    made = [
        Capture(
            label=label,
            chapter=chapter.rel,
            key=before[label].value,
            parts=before[label].parts,
            provenance=dated,
            outputs=outputs,
            kept=kept,
        )
        for label, (outputs, kept) in run.said.items()
    ]
    return store(root, chapter, made, progress)


def _keys(root: Path, chapter: Chapter) -> dict[str, keys.Key]:
    """The capture keys of a chapter's cells, by label."""
    sources = keys.Sources(root)
    cells = captures.capture_cells(chapter)
    return {cell.label: keys.capture_key(sources, chapter, cell) for cell in cells}


def _unmoved(root: Path, chapter: Chapter, before: dict[str, keys.Key]) -> bool:
    """Whether a chapter and the code that its captures depend on are as before."""
    try:
        same = chapter.path.read_text("utf-8") == chapter.text
    except (OSError, UnicodeDecodeError):
        return False
    return same and _keys(root, chapter) == before


def store(
    root: Path, chapter: Chapter, made: Sequence[Capture], progress: Progress
) -> list[Path]:
    """Store captures of a chapter together; their files, those unchanged, too."""
    paths = {captures.capture_path(root, chapter, one.label): one for one in made}
    changed = {path: one for path, one in paths.items() if not _stored(path, one, root)}
    captures.write(
        {p: one.text.encode("utf-8", "surrogatepass") for p, one in changed.items()}
    )
    for path in paths:
        what = "stored" if path in changed else "says the same; kept as it was"
        progress.say(f"{path.relative_to(root)}: {what}")
    return list(paths)


def _stored(path: Path, made: Capture, root: Path) -> bool:
    """Whether a file says the same already, whatever its date."""
    try:
        return made.says_the_same(captures.load(path, root))
    except BookError:  # a damaged file is made anew
        return False


class CaptureRun(Run):
    """One chapter in one kernel, natively; what its capture cells said is in `said`."""

    def __init__(
        self,
        root: Path,
        parts: Parts,
        progress: Progress,
        halt: threading.Event,
        seconds: float,
    ) -> None:
        super().__init__(root, parts, progress, halt, seconds)
        self.said: dict[str, tuple[list[dict[str, Any]], Any]] = {}

    def _prepared(self) -> str:
        return f"{self.chapter.name!r}, capturing=True"

    def _cell(self, kernel: Kernel, part: Code) -> list[dict[str, Any]]:
        cell = part.cell
        if not cell.capture:
            return super()._cell(kernel, part)
        self._must_be_native(kernel, part)
        outputs = super()._cell(kernel, part)
        ask = f"__import__('loom').captures.hand_over({cell.label!r})"
        kept = kernel.ask(ask)["kept"]
        process = kernel.manager.provisioner.process
        scrub = Scrub((os.getpid(), process.pid), self.root)
        self.said[cell.label] = [scrub.output(o) for o in outputs], scrub.value(kept)
        return outputs

    def _must_be_native(self, kernel: Kernel, part: Code) -> None:
        if kernel.ask("__import__('loom').captures.interpreted()"):
            what = "kernels run in Triton's interpreter here, not on the GPU"
            raise self._failure(part.cell.first, what)


# ------------------------------------------------------------- what is not to be stored


class Scrub:
    """Takes out of a text what differs from run to run: addresses, process ids, names
    of temporary files, of this machine and of its user's folder."""

    def __init__(self, pids: Sequence[int], root: Path) -> None:
        self.root = root
        known = "|".join(str(pid) for pid in pids if pid > 99) or "(?!)"
        temporary = re.escape(tempfile.gettempdir().rstrip("/"))
        self.rules = [
            (rf"{re.escape(str(root))}(?![\w.-])", "."),
            # of pointers only: the constants of SASS and LLVM IR are shorter or longer
            (r"\b0x(?:0000)?[0-9a-f]{11,12}\b", "0x…"),
            (rf"(?i)\b(pid|process)(\W{{1,3}})(?:{known})\b", r"\1\2…"),
            (r"\bProcess \d{3,}\b", "Process …"),
            (r"\bipykernel_\d+", "ipykernel"),
            (r"(?m)^(=+) ?\d{2,} ?(=+)", r"\1…\2"),
            (rf"(?:{temporary}|/tmp|/var/tmp)/[\w.-]+", "<temporary>"),
            (r"\btmp[a-z0-9_]{8}\b", "<temporary>"),
            (r"(?<![\w.])/(?:root|home/[^/\s]+|Users/[^/\s]+)/", "~/"),
        ]
        host = socket.gethostname()
        if len(host) > 5:
            self.rules.append((rf"\b{re.escape(host)}\b", "<host>"))

    def text(self, text: str) -> str:
        for pattern, instead in self.rules:
            text = re.sub(pattern, instead, text)
        return text

    def value(self, value: Any) -> Any:
        """JSON data with every text in it scrubbed."""
        if isinstance(value, str):
            return self.text(tidy(value, self.root))
        if isinstance(value, list):
            return [self.value(item) for item in value]
        if isinstance(value, dict):
            return {key: self.value(item) for key, item in value.items()}
        return value

    def output(self, output: dict[str, Any]) -> dict[str, Any]:
        if "data" not in output:
            return {key: self.value(value) for key, value in output.items()}
        data = {
            kind: value if kind == "image/png" else self.text(value)
            for kind, value in output["data"].items()
        }
        return output | {"data": data}


# -------------------------------------------------------------------------- the device


def find_device() -> dict[str, str]:
    """The provenance of captures made here, without the date.

    Raises NoGpu with the reason where no CUDA GPU can be used.
    """
    name = keys.gpu_name()
    if name is None:
        raise NoGpu(
            "no CUDA GPU here: the driver (libcuda.so.1) is missing or shows no"
            " device; run this on a machine with a GPU, and bring the captures back"
            " with --pack and --unpack"
        )
    asked = subprocess.run(
        [sys.executable, "-c", DEVICE], capture_output=True, text=True, timeout=300
    )
    if asked.returncode:
        last = (asked.stderr.strip() or "no word").split("\n")[-1]
        raise NoGpu(f"the driver shows {name}, but torch cannot use it: {last}")
    said = json.loads(asked.stdout.strip().split("\n")[-1])
    versions = {p: version(p) for p in ("torch", "triton", "numpy")}
    python = platform.python_version()
    return {**said, **versions, "driver": driver_version(), "python": python}


def driver_version() -> str:
    """The driver's version, asked of its management library."""
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
        text = ctypes.create_string_buffer(96)
        if not library.nvmlInit_v2():
            failed = library.nvmlSystemGetDriverVersion(text, len(text))
            library.nvmlShutdown()
            if not failed:
                return text.value.decode("ascii", "replace")
    except (OSError, AttributeError):
        pass
    try:
        words = Path("/proc/driver/nvidia/version").read_text("utf-8", "replace")
    except OSError:
        return "unknown"
    found = re.search(r"\b\d{3,}\.\d[\d.]*", words)
    return found[0] if found else "unknown"
