"""What a GPU said: stored outputs of capture cells, replayed where there is none.

A cell with ``#| capture: gpu`` is run by ``weave.py --capture`` on a GPU machine;
its outputs, and the values it hands to `keep`, are stored in
``captures/<module>/<label>.json`` with device, versions, date and the capture key.
In every other run an input transformer swaps the cell for a call of `replay`.
Later cells read the kept values with `captured`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from loom.lines import body, label_of
from tangle import Book, BookError, Cell, Chapter, Problem

FORMAT = 1
PROJECT = "triton-from-first-principles"
PROVENANCE = ("device", "driver", "cuda", "torch", "triton", "numpy", "python", "date")
MARKS = ("$type", "$float")  # keys that stand for what JSON has not
NOT_RUN = "(not yet run on a GPU)"
KINDS = ("stream", "display_data", "execute_result", "error")
MEDIA = frozenset("image/png image/svg+xml text/markdown text/latex text/plain".split())


# ------------------------------------------------------------------- stored captures


@dataclass(frozen=True)
class Capture:
    """One stored capture.

    ``parts`` holds a digest by name for everything that the key covers, so that a
    stale capture can say what changed.
    """

    label: str
    chapter: str
    key: str
    parts: dict[str, str]
    provenance: dict[str, str]
    outputs: list[dict[str, Any]]
    kept: Any = None

    @property
    def badge(self) -> str:
        said = self.provenance
        return (
            f"Captured on {said['device']}, driver {said['driver']}, torch"
            f" {said['torch']}, triton {said['triton']}, {said['date']}"
        )

    @property
    def text(self) -> str:
        """The file's text: the values, and a digest of them against later edits."""
        data = {"format": FORMAT, "project": PROJECT, **dataclasses.asdict(self)}
        return _json(data | {"digest": _digest(data)}) + "\n"

    def says_the_same(self, other: Capture | None) -> bool:
        """Whether nothing but the date tells two captures apart."""
        if other is None:
            return False
        date = {"date": other.provenance["date"]}
        dated = dataclasses.replace(self, provenance=self.provenance | date)
        return dated.text == other.text


def capture_path(root: Path, chapter: Chapter, label: str) -> Path:
    return root / "captures" / chapter.name / f"{label}.json"


def load(path: Path, root: Path) -> Capture | None:
    """The capture in a file; None when there is no file.

    Raises BookError naming the file and everything in it that is not accepted.
    """
    rel = path.relative_to(root).as_posix()
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as fault:
        raise BookError([Problem(rel, 1, f"cannot be read: {fault}")]) from None
    return parse(text, rel, path.stem)


def parse(text: str, rel: str, label: str) -> Capture:
    """The capture in the text of the file `rel`.

    Raises BookError naming everything in it that is not accepted.
    """
    try:
        data = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as fault:
        what = f"not JSON ({getattr(fault, 'msg', fault)}); capture the cell again"
        raise BookError([Problem(rel, getattr(fault, "lineno", 1), what)]) from None
    if wrong := list(_wrong(data, label)) or list(_forged(data)):
        raise BookError(
            [Problem(rel, 1, f"{w}; capture the cell again") for w in wrong]
        )
    names = [f.name for f in dataclasses.fields(Capture)]
    return Capture(**{name: data.get(name) for name in names})


def _json(data: Any) -> str:
    return json.dumps(data, indent=1, ensure_ascii=False, sort_keys=True)


def _digest(data: dict[str, Any]) -> str:
    text = _json({key: value for key, value in data.items() if key != "digest"})
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _forged(data: dict[str, Any]) -> Iterator[str]:
    """Whether a file says something else than what was captured."""
    if data.get("digest") != _digest(data):
        yield "edited by hand or damaged: the content does not fit its digest"


def _wrong(data: Any, label: str) -> Iterator[str]:
    """What a stored capture holds that is not accepted."""
    if not isinstance(data, dict):
        yield f"got a {type(data).__name__}, not an object"
        return
    if data.get("format") != FORMAT:
        yield f"got format {data.get('format')!r}, not {FORMAT}"
    if data.get("project") != PROJECT:
        yield f"of the project {data.get('project')!r}, not {PROJECT!r}"
    if data.get("label") != label:
        yield f"got label {data.get('label')!r} in the file of {label!r}"
    for key in ("chapter", "key"):
        if not isinstance(data.get(key), str) or not data[key]:
            yield f"got no {key}"
    parts = data.get("parts")
    if not isinstance(parts, dict) or not all(
        isinstance(v, str) for v in parts.values()
    ):
        yield "got no parts of the key"
    provenance = data.get("provenance")
    if not isinstance(provenance, dict):
        yield "got no provenance"
    else:
        missing = [k for k in PROVENANCE if not isinstance(provenance.get(k), str)]
        if missing:
            yield f"the provenance lacks {', '.join(missing)}"
    outputs = data.get("outputs")
    if not isinstance(outputs, list):
        yield "got no list of outputs"
        return
    for number, output in enumerate(outputs, 1):
        kind = output.get("output_type") if isinstance(output, dict) else None
        if kind not in KINDS:
            yield f"output {number} is of type {kind!r}"
        elif kind in ("display_data", "execute_result"):
            strange = set(output.get("data") or {"nothing": 0}) - MEDIA
            if strange:
                yield f"output {number} holds {', '.join(sorted(strange))}"


def store(capture: Capture, root: Path, chapter: Chapter) -> Path:
    """Write a capture atomically; the file's path."""
    path = capture_path(root, chapter, capture.label)
    write({path: capture.text.encode("utf-8", "surrogatepass")})
    return path


def write(files: Mapping[Path, bytes]) -> None:
    """Write files; each is the old or the new one, and all are new at the end."""
    spares: dict[Path, str] = {}
    try:
        for path, data in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, spare = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".tmp")
            spares[path] = spare
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            os.chmod(spare, 0o644)
        for path, spare in spares.items():
            os.replace(spare, path)
    finally:
        for spare in spares.values():
            Path(spare).unlink(missing_ok=True)


def capture_cells(chapter: Chapter) -> list[Cell]:
    """The capture cells of a chapter that are evaluated."""
    runs = [cell for cell in chapter.cells if cell.options.get("eval") != "false"]
    return [cell for cell in runs if cell.capture]


def strays(book: Book) -> list[Problem]:
    """Files in ``captures/`` that belong to no capture cell of this book."""
    wanted = {
        capture_path(book.root, chapter, cell.label)
        for chapter in book.chapters
        for cell in chapter.cells
        if cell.capture
    }
    modules = {chapter.name for chapter in book.chapters}
    foreign: set[str] = set()
    found = []
    for path in sorted((book.root / "captures").rglob("*")):
        rel = path.relative_to(book.root).as_posix()
        folder = rel.split("/")[1]
        if path.is_dir() or path in wanted or path.name.startswith(".git"):
            continue
        if "/" in rel[len("captures/") :] and folder not in modules:
            what = "no chapter of this book has this module; a capture of another"
            if folder not in foreign:
                what += " project or of a chapter renamed since: remove or rename it"
                found.append(Problem(f"captures/{folder}", 1, what))
            foreign.add(folder)
        else:
            what = "no capture cell has this label; remove the file, or name the cell"
            found.append(Problem(rel, 1, f"{what} as it was"))
    return found


# ----------------------------------------------------------------- in a running kernel


@dataclass
class Session:
    """The chapter that this kernel runs."""

    root: Path
    chapter: Chapter
    capturing: bool = False  # capture cells run, and `captured` reads this run
    kept: dict[str, Any] = field(default_factory=dict)
    fresh: dict[str, Any] = field(default_factory=dict)  # kept in this run, by label

    def capture_cell(self, source: str) -> Cell | None:
        """The capture cell with this source, if it is one."""
        code, label = body(source)[1], label_of(source)
        for cell in self.chapter.cells:
            same = cell.capture and body(cell.code)[1] == code
            if same and label in ("", cell.label):
                return cell
        return None


_session: Session | None = None


def start(root: Path, chapter: Chapter, capturing: bool = False) -> Session:
    """Make `chapter` the one whose captures are read, or made; a run that makes
    captures stays one."""
    global _session
    capturing = capturing or (_session is not None and _session.capturing)
    _session = Session(root, chapter, capturing)
    return _session


def begun(root: Path, name: str) -> bool:
    """Whether the chapter named `name` is the one that runs already, unedited."""
    now = _session
    if now is None or now.root != root or now.chapter.name != name:
        return False
    return now.chapter.path.read_text(encoding="utf-8") == now.chapter.text


def install(session: Session, shell: Any) -> None:
    """Swap the chapter's capture cells for calls of `replay` in an IPython shell."""

    def swap(lines: list[str]) -> list[str]:
        cell = session.capture_cell("".join(lines))
        if cell is None or session.capturing:
            return lines
        return [f"__import__('loom').captures.replay({cell.label!r})\n"]

    transformers = shell.input_transformers_cleanup
    transformers[:] = [t for t in transformers if not hasattr(t, "loom_swap")]
    swap.loom_swap = True  # type: ignore[attr-defined]
    transformers.insert(0, swap)


def running() -> Session:
    if _session is None:
        raise RuntimeError(
            "no chapter has begun: run the first cell, loom.begin(…), before this one"
        )
    return _session


def read(label: str) -> Capture | None:
    """The stored capture of a cell of the running chapter."""
    session = running()
    cells = [c.label for c in session.chapter.cells if c.capture]
    if label not in cells:
        known = ", ".join(cells) or "none"
        raise ValueError(
            f"captured({label!r}): no capture cell of {session.chapter.rel} has this"
            f" label; it has: {known}"
        )
    return load(capture_path(session.root, session.chapter, label), session.root)


def replay(label: str) -> None:
    """Show what the GPU said to a capture cell, or that it was not asked yet."""
    from IPython.display import Markdown, display

    capture = read(label)
    if capture is None:
        display(Markdown("[Not yet run on a GPU]{.badge .badge-missing}"))
        return
    if _is_stale(capture):
        words = f"Stale: the code has changed since. {capture.badge}"
        display(Markdown(f"[{words}]{{.badge .badge-stale}}"))
    else:
        display(Markdown(f"[{capture.badge}]{{.badge .badge-captured}}"))
    for output in capture.outputs:
        _show(output)


def _is_stale(capture: Capture) -> bool:
    from loom import keys

    session = running()
    (cell,) = [c for c in session.chapter.cells if c.label == capture.label]
    sources = keys.Sources(session.root)
    return bool(
        keys.stale_parts(sources, session.chapter, cell, capture.key, capture.parts)
    )


def _show(output: dict[str, Any]) -> None:
    import sys

    from IPython.display import display

    kind = output["output_type"]
    if kind == "stream":
        out = sys.stderr if output.get("name") == "stderr" else sys.stdout
        out.write("".join(output["text"]))
        out.flush()
    elif kind == "error":
        print("\n".join(output.get("traceback", [])))
    else:
        display(output["data"], raw=True, metadata=output.get("metadata") or {})


# ----------------------------------------------------------------------- kept values


def keep(value: Any = None, /, **named: Any) -> Any:
    """Hand a value of a capture cell to later cells, which read it with `captured`.

    Give one value or named ones.  Values are JSON (numbers, strings, lists,
    dictionaries) or objects of loom with ``to_kept``.  Returns the value.
    Raises TypeError for anything else.
    """
    kept = named if value is None else value
    if value is not None and named:
        raise TypeError("keep: got a value and named values; give one or the other")
    running().kept["value"] = encode(kept)
    return kept


def captured(label: str) -> Any:
    """The value that the capture cell `label` of this chapter kept.

    For a cell that was never captured, a `Missing` object: it is false, empty, and
    prints as "(not yet run on a GPU)", whatever is asked of it.
    """
    if running().capturing:
        return _captured_now(label)
    capture = read(label)
    return Missing() if capture is None else decode(capture.kept)


def _captured_now(label: str) -> Any:
    """The value that a capture cell has kept in this very run."""
    session = running()
    if label not in session.fresh:
        known = ", ".join(session.fresh) or "none"
        raise ValueError(
            f"captured({label!r}): no capture cell above has this label; there are:"
            f" {known}"
        )
    return decode(session.fresh[label])


def interpreted() -> str:
    """Whether kernels run in Triton's interpreter here, as JSON text."""
    from loom.begin import interpreted as asked

    return json.dumps(asked())


def hand_over(label: str) -> str:
    """What the capture cell that just ran has kept, as JSON text."""
    session = running()
    kept = session.kept.pop("value", None)
    text = json.dumps({"kept": kept})
    session.fresh[label] = json.loads(text)["kept"]
    return text


def encode(value: Any) -> Any:
    """A value as JSON data; raises TypeError naming what cannot be stored."""
    if isinstance(value, float) and not math.isfinite(value):
        return {"$float": str(float(value))}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if hasattr(value, "to_kept"):
        kind = type(value)
        name = f"{kind.__module__}:{kind.__qualname__}"
        return {"$type": name, "data": encode(value.to_kept())}
    if isinstance(value, dict):
        strange = [k for k in value if not isinstance(k, str) or k in MARKS]
        if strange:
            raise TypeError(f"keep: got the key {strange[0]!r}; keys are strings")
        return {k: encode(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [encode(v) for v in value]
    if hasattr(value, "tolist"):  # numpy and torch
        return encode(value.tolist())
    raise TypeError(
        f"keep: got a {type(value).__name__}; accepted are numbers, strings, lists,"
        " dictionaries, arrays, and objects with to_kept()"
    )


def decode(data: Any) -> Any:
    """The value that `encode` was given; objects only of loom's and our packages."""
    if isinstance(data, list):
        return [decode(item) for item in data]
    if not isinstance(data, dict):
        return data
    if "$float" in data:
        return float(data["$float"])
    if "$type" not in data:
        return {key: decode(item) for key, item in data.items()}
    module, _, name = str(data["$type"]).partition(":")
    if module.split(".")[0] not in ("loom", "generated", "benchmarks"):
        raise ValueError(f"a capture holds an object of {module}; only ours are loaded")
    return getattr(import_module(module), name).from_kept(decode(data["data"]))


class Missing:
    """Stands for the value of a cell that no GPU has run.

    Attributes, items, calls and arithmetic give a `Missing` again; it formats as
    "(not yet run on a GPU)".  Comparing its size raises TypeError: guard such a
    line with ``if captured(…):``.
    """

    def _again(self, *_: Any, **__: Any) -> Missing:
        return self

    def __getattr__(self, name: str) -> Missing:
        if (
            name.startswith("__")
            or name.startswith("_repr_")
            or name.startswith("_ipy")
        ):
            raise AttributeError(name)
        return self

    __getitem__ = __call__ = __neg__ = __pos__ = __abs__ = __round__ = _again
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _again
    __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = _again
    __mod__ = __rmod__ = __pow__ = __rpow__ = _again

    def __bool__(self) -> bool:
        return False

    def __len__(self) -> int:
        return 0

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __format__(self, spec: str) -> str:
        return NOT_RUN

    def __repr__(self) -> str:
        return NOT_RUN

    def _size(self, *_: Any) -> Any:
        raise TypeError(
            "a captured value is not yet run on a GPU and has no size;"
            " guard the line with `if captured(…):`"
        )

    __lt__ = __le__ = __gt__ = __ge__ = __float__ = __int__ = __index__ = _size
