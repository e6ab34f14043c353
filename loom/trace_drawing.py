"""How a `loom.trace.Trace` becomes a drawing."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from loom.drawing import PROGRAMS, Cell, CellGrid, Drawing, arrange
from loom.kernels import KernelError

if TYPE_CHECKING:
    from loom.trace import Event, Tensor, Trace

CELL_LIMIT = 1024
FAR = 64
_ROLES = {"load": ("load",), "store": ("store", "atomic")}
_WORDS = {"load": "loads", "store": "stores"}


@dataclass
class Touched:
    """What happened to one position of a panel."""

    live: list[tuple[int, str]] = field(default_factory=list)
    masked: list[tuple[int, str]] = field(default_factory=list)
    value: Any = None

    def add(self, program: tuple[int, str], live: bool) -> None:
        known = self.live if live else self.masked
        if program not in known:
            known.append(program)


def draw(
    trace: Trace,
    tensors: str | Iterable[str] | None,
    op: str | None,
    columns: int | None,
    layout: str | None,
    values: bool,
    title: str | None,
    desc: str | None,
) -> Drawing:
    """The drawing of a trace; raises KernelError for what cannot be drawn."""
    _check(op, columns, layout)
    names = trace._names(tensors) or list(trace.tensors)
    panels, words, used = [], [], {}
    any_masked = any_outside = False
    for name in names:
        tensor = trace.tensors[name]
        for role, kinds in _ROLES.items():
            if op is not None and op not in kinds:
                continue
            events = [e for e in trace.select(op, name) if e.kind in kinds]
            if not events:
                continue
            panel = _panel(trace, tensor, role, events, columns, values)
            panels.append(panel.grid)
            words.append(panel.words)
            used.update(panel.programs)
            any_masked |= panel.masked
            any_outside |= panel.outside
    if not panels:
        raise KernelError(
            f"draw: {trace!r} touched none of {', '.join(names) or 'no tensor'}"
        )
    many = len(used) > PROGRAMS
    legend = [
        (f"p{number % PROGRAMS}", f"program {text}")
        for number, text in sorted(used.items())[: PROGRAMS if many else None]
    ]
    if many:
        legend[-1] = (legend[-1][0], f"{legend[-1][1]}, and so on")
    if any_outside:
        legend.append(("outside", "masked, no such element"))
    if any_masked:
        legend.append(("masked", "masked, not touched"))
    summary = title or f"{trace.kernel}: elements touched by each program"
    return arrange(summary, desc or " ".join(words), panels, legend, layout)


def _check(op: str | None, columns: int | None, layout: str | None) -> None:
    if op not in (None, "load", "store", "atomic"):
        raise KernelError(f"op: got {op!r}; accepted are 'load', 'store' and 'atomic'")
    if columns is not None and columns < 1:
        raise KernelError(f"columns: got {columns}; accepted is 1 or more")
    if layout not in (None, "side", "stack"):
        raise KernelError(f"layout: got {layout!r}; accepted are 'side' and 'stack'")


@dataclass
class _Panel:
    grid: CellGrid
    words: str
    programs: dict[int, str]
    masked: bool
    outside: bool


def _panel(
    trace: Trace,
    tensor: Tensor,
    role: str,
    events: list[Event],
    columns: int | None,
    values: bool,
) -> _Panel:
    """One tensor's cells, as read or as written."""
    size = int(np.prod(tensor.shape)) if tensor.shape else 1
    if size > CELL_LIMIT:
        raise KernelError(
            f"draw: {tensor.name} has {size:,} elements; at most {CELL_LIMIT:,} are "
            "drawn, trace a smaller case"
        )
    touched, far = _touch(trace, tensor, events)
    source = tensor.before if role == "load" else tensor.after
    chart = _Chart(tensor, columns or _columns(tensor, events, touched))
    cells: dict[tuple[int, int], Cell] = {}
    for index in np.ndindex(*tensor.shape):
        what = touched.get(index, Touched())
        text = _number(source[index]) if values else _index(index)
        cells[chart.place(index)] = _cell(tensor, index, text, what, outside=False)
    outside = 0
    for index, what in touched.items():
        if _is_inside(tensor, index):
            continue
        outside += 1
        text = _index(index)
        cells[chart.place(index)] = _cell(tensor, index, text, what, outside=True)
    programs = {n: t for what in touched.values() for n, t in what.live + what.masked}
    shape = ", ".join(map(str, tensor.shape)) + ("," if len(tensor.shape) == 1 else "")
    note = f"shape ({shape}), {tensor.dtype}"
    if not _is_contiguous(tensor):
        note += f", strides {tuple(tensor.stride)}"
    if far:
        note += f"; {far} masked lanes lie further out"
    grid = CellGrid(f"{tensor.name}: {_WORDS[role]}", note, cells, *chart.labels(cells))
    inside_masked = any(c.masked and not c.outside for c in cells.values())
    words = _describe(tensor, role, touched)
    return _Panel(grid, words, programs, inside_masked, outside > 0)


def _touch(
    trace: Trace, tensor: Tensor, events: list[Event]
) -> tuple[dict[tuple[int, ...], Touched], int]:
    """Index -> what happened there; and the number of indices too far to draw."""
    touched: dict[tuple[int, ...], Touched] = {}
    far: set[tuple[int, ...]] = set()
    for event in events:
        name = trace.program_name(event.program)
        program = (trace.program_number(event.program), name)
        logical = coordinates(tensor, event)
        for lane, offset in enumerate(event.index):
            live = bool(event.mask[lane])
            places = tensor.places.get(int(offset), [])
            if logical is not None and not live:
                places = [tuple(int(i) for i in logical[lane])]
            elif not places:
                places = [_unravel(tensor, int(offset))]
            for index in places:
                if _distance(tensor, index) > FAR:
                    far.add(index)
                else:
                    touched.setdefault(index, Touched()).add(program, live)
    return touched, len(far)


def coordinates(tensor: Tensor, event: Event) -> np.ndarray | None:
    """The N-d index that each lane of a block means, past the tensor's end too.

    A block whose axes step along the tensor's own strides says more than its
    addresses do: the lane one past the end of a row has the address of the next row's
    first element. None if the block is not of that kind.
    """
    if len(tensor.shape) < 2 or event.lanes.size != int(np.prod(event.shape)):
        return None
    index = event.index.reshape(event.shape)
    start = _unravel(tensor, int(index.flat[0]))
    axes: list[tuple[int, int]] = []
    used: set[int] = set()
    for axis, size in enumerate(event.shape):
        if size == 1:
            axes.append((-1, 0))
            continue
        step = int(np.take(index, 1, axis).flat[0]) - int(index.flat[0])
        found = _axis_of(tensor, step, used)
        if found is None:
            return None
        used.add(found[0])
        axes.append(found)
    lanes = np.indices(event.shape).reshape(len(event.shape), -1)
    result = np.tile(np.array(start, dtype=np.int64), (lanes.shape[1], 1))
    for axis, (dimension, times) in enumerate(axes):
        if dimension >= 0:
            result[:, dimension] += lanes[axis] * times
    expected = result @ np.array(tensor.stride, dtype=np.int64)
    return result if np.array_equal(expected, event.index) else None


def _axis_of(tensor: Tensor, step: int, used: set[int]) -> tuple[int, int] | None:
    """The dimension that a block axis walks along, and how many elements a step."""
    for dimension, stride in enumerate(tensor.stride):
        if dimension not in used and stride == step and step != 0:
            return dimension, 1
    return None


def _unravel(tensor: Tensor, offset: int) -> tuple[int, ...]:
    """An index for any element offset, outside the tensor along its longest stride."""
    found = tensor.unravel(offset)
    if found is not None:
        return found
    order = sorted(range(len(tensor.shape)), key=lambda d: -tensor.stride[d])
    index = [0] * len(tensor.shape)
    for dimension in order:
        stride = tensor.stride[dimension]
        if stride > 0:
            index[dimension], offset = divmod(offset, stride)
    return tuple(index) if index else (offset,)


def _is_inside(tensor: Tensor, index: tuple[int, ...]) -> bool:
    if len(index) != len(tensor.shape):
        return False
    return all(0 <= i < n for i, n in zip(index, tensor.shape, strict=True))


def _distance(tensor: Tensor, index: tuple[int, ...]) -> int:
    if len(index) != len(tensor.shape):
        return abs(index[0]) if index else 0
    away = [max(-i, i - n + 1, 0) for i, n in zip(index, tensor.shape, strict=True)]
    return max(away, default=0)


def _is_contiguous(tensor: Tensor) -> bool:
    step = 1
    pairs = list(zip(tensor.shape, tensor.stride, strict=True))
    for size, stride in reversed(pairs):
        if size != 1 and stride != step:
            return False
        step *= size
    return True


class _Chart:
    """Where an index stands on the page: strips wrap, matrices lie as matrices."""

    def __init__(self, tensor: Tensor, columns: int) -> None:
        self.shape = tensor.shape
        self.columns = columns

    def place(self, index: tuple[int, ...]) -> tuple[int, int]:
        if len(self.shape) < 2:
            return divmod(index[0] if index else 0, self.columns)
        lead = 0
        for position, size in zip(index[:-2], self.shape[:-2], strict=True):
            lead = lead * size + position
        return lead * (self.shape[-2] + 1) + index[-2], index[-1]

    def labels(
        self, cells: dict[tuple[int, int], Cell]
    ) -> tuple[dict[int, str], dict[int, str]]:
        """Row and column labels, for tensors of three and more dimensions."""
        if len(self.shape) < 3:
            return {}, {}
        rows = {}
        for index in np.ndindex(*self.shape[:-1]):
            row, _ = self.place((*index, 0))
            rows[row] = ",".join(map(str, index))
        return rows, {}


def _columns(
    tensor: Tensor, events: list[Event], touched: dict[tuple[int, ...], Touched]
) -> int:
    """Cells a row of a 1-D tensor: one block, if it is of a readable size."""
    lanes = max((e.lanes.size for e in events), default=1)
    if 4 <= lanes <= 16:
        return lanes
    every = [i[0] for i in touched if i] + [0]
    count = max(max(every) + 1, *(tensor.shape or (1,)), 1)
    return min(16, count) if count > 1 else 1


def _cell(
    tensor: Tensor, index: tuple[int, ...], text: str, what: Touched, outside: bool
) -> Cell:
    who = what.live or what.masked
    numbers = [name for _, name in who]
    tag = "p" + " ".join(numbers[:4]) if numbers else ""
    if len(numbers) > 4:
        tag = f"p{' '.join(numbers[:3])} +{len(numbers) - 3}"
    colors = tuple(n % PROGRAMS for n, _ in what.live)
    masked = not what.live and bool(what.masked)
    state = "masked in" if masked else "touched by"
    name = f"{tensor.name}[{', '.join(map(str, index))}]"
    tip = f"{name}: {state} program {', '.join(numbers)}" if numbers else name
    return Cell(text, colors, tag, masked, outside, tip)


def _index(index: tuple[int, ...]) -> str:
    from loom.trace import signed

    return ",".join(signed(i) for i in index) if index else "0"


def _number(value: Any) -> str:
    from loom.trace import number

    return number(value)


def _describe(
    tensor: Tensor, role: str, touched: dict[tuple[int, ...], Touched]
) -> str:
    """The panel in words, for readers who do not see it."""
    by_program: dict[str, list[str]] = {}
    masked: list[str] = []
    for index, what in sorted(touched.items()):
        for _, name in what.live:
            by_program.setdefault(name, []).append(_index(index))
        if not what.live and not _is_inside(tensor, index):
            masked.append(_index(index))
    parts = [
        f"program {name}: {_runs(found)}"
        for name, found in itertools.islice(by_program.items(), 12)
    ]
    if len(by_program) > 12:
        parts.append(f"and {len(by_program) - 12} more programs")
    verb = "read from" if role == "load" else "written to"
    words = f"Elements {verb} {tensor.name}: " + ("; ".join(parts) or "none") + "."
    if masked:
        words += f" Masked lanes outside it: {_runs(masked)}."
    return words


def _runs(texts: list[str]) -> str:
    """`0 to 3` for a run of consecutive 1-D indices, else the list, shortened."""
    try:
        numbers = [int(t.replace("\N{MINUS SIGN}", "-")) for t in texts]
    except ValueError:
        numbers = []
    if len(numbers) > 2 and numbers == list(range(numbers[0], numbers[-1] + 1)):
        return f"{texts[0]} to {texts[-1]}"
    pieces = [f"({t})" if "," in t else t for t in texts]
    shown = pieces[:16]
    rest = len(pieces) - len(shown)
    return ", ".join(shown) + (f" and {rest} more" if rest else "")
