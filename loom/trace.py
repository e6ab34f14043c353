"""Run a launch in the interpreter and see every address it touches.

`trace(kernel, grid=(3,), x_ptr=x, out_ptr=out, n=10, BLOCK=4)` runs the launch in a
child process, program by program, and records each load, store and atomic: the
tensor, the element indices, the mask and the values. The result shows itself as a
table and as a drawing. Tensors are changed as a launch would change them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from loom import drawing
from loom.kernels import (
    COMPILE_OPTIONS,
    Kernel,
    KernelError,
    describe,
    is_jitted,
    pack,
    pack_value,
)
from loom.worker import Refusal, Worker

TIMEOUT = 120.0
STORAGE_LIMIT = 64 << 20
NOWHERE = -(1 << 62)
MINUS = "\N{MINUS SIGN}"


class TraceError(RuntimeError):
    """A launch that could not be traced."""


class OutOfBounds(TraceError):
    """A live lane would have touched memory outside its tensor; it did not run.

    `trace` holds the accesses up to and including the refused one.
    """

    trace: Trace


@dataclass(frozen=True)
class Tensor:
    """A tensor argument of a traced launch.

    `before` and `after` hold its values, bfloat16 and float8 widened to float32.
    """

    name: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: str
    offset: int
    before: np.ndarray = field(repr=False, compare=False)
    after: np.ndarray = field(repr=False, compare=False)

    @cached_property
    def offsets(self) -> np.ndarray:
        """The offset of each element from the data pointer, row by row."""
        offsets = np.zeros(self.shape, dtype=np.int64)
        for axis, (size, stride) in enumerate(
            zip(self.shape, self.stride, strict=True)
        ):
            steps = np.arange(size, dtype=np.int64) * stride
            offsets += steps.reshape(
                [-1 if d == axis else 1 for d in range(offsets.ndim)]
            )
        return offsets.reshape(-1)

    @cached_property
    def places(self) -> dict[int, list[tuple[int, ...]]]:
        """Element offset from the data pointer -> the N-d indices that have it."""
        found: dict[int, list[tuple[int, ...]]] = {}
        every = np.ndindex(*self.shape)
        for index, offset in zip(every, self.offsets.tolist(), strict=True):
            found.setdefault(offset, []).append(index)
        return found

    def unravel(self, offset: int) -> tuple[int, ...] | None:
        """The N-d index of an element offset, or None if it is not in the tensor.

        Where strides overlap, the lowest of the indices.
        """
        found = np.flatnonzero(self.offsets == offset)
        if not found.size:
            return None
        index = np.unravel_index(found[0], self.shape) if self.shape else ()
        return tuple(int(i) for i in index)


@dataclass(frozen=True)
class Event:
    """One memory operation of one program.

    The arrays have one entry a lane: `lanes` numbers the lanes in the block (row by
    row), `index` is the element offset from the tensor's data pointer, `mask` says
    which lanes are live, `inside` which indices are elements of the tensor, `values`
    what was read or written; `old` is what an atomic returned.
    """

    program: tuple[int, int, int]
    operation: int
    kind: str
    detail: str
    tensor: str
    path: str
    line: int
    function: str
    shape: tuple[int, ...]
    lanes: np.ndarray
    index: np.ndarray
    mask: np.ndarray
    inside: np.ndarray
    values: np.ndarray | None
    old: np.ndarray | None

    @property
    def live(self) -> int:
        """The number of lanes that are not masked off."""
        return int(self.mask.sum())

    @property
    def place(self) -> str:
        return f"{self.path}:{self.line}"


class Trace:
    """Every memory access of one launch, in program order."""

    def __init__(
        self,
        kernel: str,
        grid: tuple[int, ...],
        tensors: dict[str, Tensor],
        events: list[Event],
        output: str,
        version: str,
    ) -> None:
        self.kernel = kernel
        self.grid = grid
        self.tensors = tensors
        self.events = events
        self.output = output
        self.version = version

    def __repr__(self) -> str:
        grid = ", ".join(map(str, self.grid)) + ("," if len(self.grid) == 1 else "")
        kinds = [e.kind for e in self.events]
        parts = [
            f"{kinds.count(k)} {k}{'' if kinds.count(k) == 1 else 's'}"
            for k in ("load", "store", "atomic")
            if k in kinds
        ]
        what = ", ".join(parts) or "no memory access"
        return f"Trace of {self.kernel}[({grid})]: {what}"

    def select(
        self,
        op: str | None = None,
        tensor: str | Iterable[str] | None = None,
        program: int | tuple[int, ...] | None = None,
        line: int | None = None,
    ) -> list[Event]:
        """The events of one kind, tensor, program or source line."""
        names = self._names(tensor)
        if op not in (None, "load", "store", "atomic"):
            raise KernelError(
                f"op: got {op!r}; accepted are 'load', 'store' and 'atomic'"
            )
        wanted = _program(program)
        return [
            e
            for e in self.events
            if op in (None, e.kind)
            and (names is None or e.tensor in names)
            and (wanted is None or e.program == wanted)
            and line in (None, e.line)
        ]

    def _names(self, tensor: str | Iterable[str] | None) -> list[str] | None:
        if tensor is None:
            return None
        names = [tensor] if isinstance(tensor, str) else list(tensor)
        for name in names:
            if name not in self.tensors:
                raise KernelError(
                    f"tensor: got {name!r}; this launch has {', '.join(self.tensors)}"
                )
        return names

    def program_name(self, program: tuple[int, int, int]) -> str:
        """A program's number as the grid has it: `2`, or `1,0` on a 2-D grid."""
        return ",".join(map(str, program[: max(1, len(self.grid))]))

    def program_number(self, program: tuple[int, int, int]) -> int:
        """A program's place in launch order, x fastest."""
        x, y, _ = (*self.grid, 1, 1)[:3]
        return program[0] + x * (program[1] + y * program[2])

    def table(
        self,
        op: str | None = None,
        tensor: str | Iterable[str] | None = None,
        program: int | tuple[int, ...] | None = None,
        *,
        values: bool = True,
        lines: bool = False,
        nd: bool = False,
        limit: int = 48,
    ) -> Table:
        """A table of the accesses, one row an operation; masked lanes are struck out.

        `nd` writes indices as the tensor's own (row, column), `lines` adds the source
        line, `values=False` leaves the values out. Rows beyond `limit` are counted.
        """
        events = self.select(op, tensor, program)
        head = ["program", "operation", "indices", "live"]
        head += ["values"] if values else []
        head = ["line", *head] if lines else head
        rows = [self._row(e, values, lines, nd) for e in events[:limit]]
        return Table(head, rows, len(events) - len(rows))

    def _row(self, event: Event, values: bool, lines: bool, nd: bool) -> list[str]:
        word = event.kind
        if event.kind == "atomic":
            word = f"atomic {event.detail}"
        elif event.detail == "descriptor":
            word = f"descriptor {event.kind}"
        size = event.lanes.size
        live = str(event.live) if event.live == size else f"{event.live} of {size}"
        tensor = self.tensors.get(event.tensor)
        texts = _index_texts(event, tensor if nd else None)
        row = [
            self.program_name(event.program),
            f"{word} `{event.tensor or '?'}`",
            _lanes_text(texts, event),
            live,
        ]
        if values:
            shown = ["?"] * size
            if event.values is not None:
                shown = [number(v) for v in event.values]
            row.append(_lanes_text(shown, event))
        return [event.place, *row] if lines else row

    def draw(
        self,
        tensors: str | Iterable[str] | None = None,
        *,
        op: str | None = None,
        columns: int | None = None,
        layout: str | None = None,
        values: bool = False,
        title: str | None = None,
        desc: str | None = None,
    ) -> drawing.Drawing:
        """Each tensor's cells, colored by the program that touched them.

        One panel for the elements read and one for those written, of each tensor in
        `tensors` (all, if None). A cell carries its index, or its value with
        `values=True`, and the program's number. Masked lanes that lie outside the
        tensor are drawn beside it, hatched and struck. `columns` wraps a 1-D tensor;
        `layout` is "side" or "stack" (None: side, if it fits the page).
        """
        from loom.trace_drawing import draw

        return draw(self, tensors, op, columns, layout, values, title, desc)


# --- text -----------------------------------------------------------------------------


class Table:
    """A table that shows itself as Markdown, and as aligned text in a terminal."""

    def __init__(self, head: list[str], rows: list[list[str]], left_out: int = 0):
        self.head = head
        self.rows = rows
        self.left_out = left_out

    def _repr_markdown_(self) -> str:
        return str(self)

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        rows = [self.head, *self.rows]
        widths = [max(len(row[i]) for row in rows) for i in range(len(self.head))]
        lines = [_pipe_row(row, widths) for row in rows]
        lines.insert(1, "|" + "|".join("-" * (w + 2) for w in widths) + "|")
        if self.left_out:
            plural = "" if self.left_out == 1 else "s"
            lines += ["", f"{self.left_out} more operation{plural} not shown."]
        return "\n".join(lines) + "\n"


def _pipe_row(row: list[str], widths: list[int]) -> str:
    padded = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
    return "| " + " | ".join(padded) + " |"


def number(value: Any) -> str:
    """A value in as few digits as tell it apart: `3`, `0.5`, `-1.25e-07`."""
    if isinstance(value, (bool, np.bool_)):
        return str(int(value))
    if isinstance(value, (int, np.integer)):
        return signed(int(value))
    if not np.isfinite(value):
        return str(float(value)).replace("-", MINUS)
    if float(value).is_integer() and abs(value) < 1e6:
        return signed(int(value))
    return f"{float(value):.4g}".replace("-", MINUS)


def signed(value: int) -> str:
    return f"{MINUS}{-value}" if value < 0 else str(value)


def _index_texts(event: Event, tensor: Tensor | None) -> list[str]:
    """Each lane's index; as (row,column) if a tensor of two or more dimensions is here.

    A dimension of stride 0 is written `*`: the element is all of them.
    """
    if tensor is None or len(tensor.shape) < 2:
        return ["?" if i == NOWHERE else signed(int(i)) for i in event.index]
    from loom.trace_drawing import coordinates

    meant = coordinates(tensor, event)
    texts = []
    for lane, offset in enumerate(event.index):
        index = tensor.unravel(int(offset)) if meant is None else meant[lane]
        if index is None:
            texts.append("?" if offset == NOWHERE else signed(int(offset)))
            continue
        parts = [
            "\\*" if s == 0 and n > 1 else signed(int(i))
            for i, s, n in zip(index, tensor.stride, tensor.shape, strict=True)
        ]
        texts.append("(" + ",".join(parts) + ")")
    return texts


def _lanes_text(texts: list[str], event: Event) -> str:
    """Lanes in order, masked ones struck; long ones shortened, rows kept apart."""
    marked = [
        text if live else f"~~{text}~~"
        for text, live in zip(texts, event.mask, strict=True)
    ]
    width = event.shape[-1] if len(event.shape) > 1 else len(marked)
    if len(marked) != int(np.prod(event.shape)) or width == 0:
        width = max(1, len(marked))
    rows = [marked[i : i + width] for i in range(0, len(marked), width)]
    rows = _shorten(rows, 8, ["…"])
    return " / ".join(" ".join(_shorten(row, 16, "…")) for row in rows)


def _shorten(items: list[Any], most: int, gap: Any) -> list[Any]:
    if len(items) <= most:
        return items
    keep = max(2, most // 2 - 1)
    return [*items[:keep], gap, *items[-2:]]


# --- asking the worker ----------------------------------------------------------------


def _environment() -> dict[str, str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TRITON_")}
    environment["TRITON_INTERPRET"] = "1"
    environment["CUDA_VISIBLE_DEVICES"] = ""
    environment["OMP_NUM_THREADS"] = "1"
    return environment


WORKER = Worker("loom.trace_worker", _environment)


class _Arguments:
    """The arguments of a launch, made ready to travel."""

    def __init__(self) -> None:
        self.storages: list[bytes] = []
        self.origins: list[int] = []
        self.live: list[Any] = []
        self.tensors: dict[str, Any] = {}
        self._numbers: dict[int, int] = {}

    def encode(self, value: Any, name: str) -> tuple[Any, ...]:
        """One argument; raises KernelError, naming it, if it cannot travel."""
        if hasattr(value, "untyped_storage"):
            return self._tensor(value, name)
        if type(value).__name__ == "TensorDescriptor":
            base = self._tensor(value.base, name)
            fields = [list(value.shape), list(value.strides), list(value.block_shape)]
            return ("descriptor", base, *fields, value.padding)
        if isinstance(value, (tuple, list)):
            items = [self.encode(v, f"{name}[{i}]") for i, v in enumerate(value)]
            if hasattr(value, "_fields"):
                kind = type(value).__name__
                return ("namedtuple", kind, value._fields, tuple(items))
            return ("tuple", tuple(items))
        if isinstance(value, np.generic):
            return ("value", value.item())
        if value is None or isinstance(value, (bool, int, float, str)):
            return ("value", value)
        return ("packed", pack_value(value, f"argument {name!r}"))

    def _tensor(self, tensor: Any, name: str) -> tuple[Any, ...]:
        storage = tensor.untyped_storage()
        if tensor.device.type not in ("cpu", "cuda"):
            raise KernelError(
                f"argument {name!r}: got a tensor on {tensor.device}; accepted are "
                "tensors on the CPU and on a CUDA device"
            )
        if storage.nbytes() > STORAGE_LIMIT:
            raise KernelError(
                f"argument {name!r}: got a tensor over {storage.nbytes():,} bytes of "
                f"memory; at most {STORAGE_LIMIT:,} are traced, use a smaller case"
            )
        key = storage.data_ptr() or id(storage)
        if key not in self._numbers:
            self._numbers[key] = len(self.storages)
            self.storages.append(_bytes(storage))
            self.origins.append(storage.data_ptr())
            self.live.append(storage)
        self.tensors[name] = tensor
        kind = str(tensor.dtype).removeprefix("torch.")
        offset = tensor.storage_offset()
        return ("tensor", name, self._numbers[key], kind, offset, tensor.numel())


def _bytes(storage: Any) -> bytes:
    import torch

    flat = torch.empty(0, dtype=torch.uint8, device=storage.device)
    flat.set_(storage, 0, (storage.nbytes(),), (1,))
    return flat.cpu().numpy().tobytes()


def _write_back(storage: Any, data: bytes) -> None:
    import torch

    fresh = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    flat = torch.empty(0, dtype=torch.uint8, device=storage.device)
    flat.set_(storage, 0, (storage.nbytes(),), (1,))
    flat.copy_(fresh)


def _values(tensor: Any) -> np.ndarray:
    import torch

    plain = tensor.detach().cpu()
    if plain.dtype is torch.bfloat16 or "float8" in str(plain.dtype):
        plain = plain.float()
    return np.array(plain.numpy(), copy=True)


def _bind(kernel: Kernel, given: dict[str, Any]) -> dict[str, Any]:
    """The value of each parameter; raises KernelError naming what does not fit."""
    unknown = [n for n in given if n not in kernel.names and n not in COMPILE_OPTIONS]
    if unknown:
        raise KernelError(
            f"{kernel.place}: {kernel.name} got {_list(unknown)}; "
            f"its parameters are {', '.join(kernel.names)}"
        )
    values = {}
    for parameter in kernel.parameters:
        name = parameter.name
        if name in given:
            values[name] = given[name]
        elif name in kernel.configuration:
            values[name] = kernel.configuration[name]
        elif not parameter.required:
            values[name] = parameter.default
    for name, rule in kernel.heuristics.items():
        values[name] = rule({**kernel.configuration, **given, **values})
    missing = [p.name for p in kernel.parameters if p.name not in values]
    if missing:
        raise KernelError(
            f"{kernel.place}: {kernel.name} needs {_list(missing)}; "
            f"its parameters are {', '.join(kernel.names)}"
        )
    return {name: values[name] for name in kernel.names}


def _list(names: list[str]) -> str:
    return ", ".join(map(repr, names))


def _grid(grid: Any, meta: dict[str, Any]) -> tuple[int, ...]:
    """The grid as a tuple; raises KernelError if it is none."""
    made = grid(meta) if callable(grid) else grid
    made = (made,) if isinstance(made, (int, np.integer)) else made
    plain = isinstance(made, (tuple, list))
    whole = plain and all(isinstance(n, (int, np.integer)) for n in made)
    sizes = tuple(int(n) for n in made) if whole else ()
    if not 1 <= len(sizes) <= 3 or min(sizes, default=-1) < 0:
        raise KernelError(
            f"grid: got {made!r}; accepted are 1 to 3 sizes, each 0 or more, or a "
            "function of the arguments that returns them"
        )
    return sizes


def _program(program: int | tuple[int, ...] | None) -> tuple[int, ...] | None:
    if program is None:
        return None
    given = (program,) if isinstance(program, int) else tuple(program)
    return (*given, 0, 0, 0)[:3]


def trace(
    kernel: Any,
    /,
    grid: int | tuple[int, ...] | Callable[[dict[str, Any]], Any],
    **arguments: Any,
) -> Trace:
    """Run `kernel[grid](**arguments)` in the interpreter and record what it touches.

    Takes any launch small enough to read, on CPU or CUDA tensors, from any process;
    the tensors are changed as the launch would change them. Compile options such as
    `num_warps` are taken and ignored; an autotuned kernel uses its first
    configuration for what is not given.

    Raises `KernelError` for a missing or unknown argument, `OutOfBounds` (and leaves
    the tensors alone) if a live lane would leave its tensor's memory, `TraceError`
    with the kernel's own exception and line, `WorkerError` if the child dies.
    """
    about = describe(kernel)
    values = _bind(about, arguments)
    sizes = _grid(grid, {**about.configuration, **values})
    carried = _Arguments()
    constexprs = {p.name for p in about.parameters if p.constexpr}
    coded = []
    for name, value in values.items():
        if name in constexprs or is_jitted(value):
            coded.append(_constant(value, name))
        else:
            coded.append(carried.encode(value, name))
    request = {
        "kernel": pack(about.jitted),
        "grid": sizes,
        "arguments": coded,
        "storages": carried.storages,
        "origins": carried.origins,
    }
    before = {name: _values(t) for name, t in carried.tensors.items()}
    try:
        answer = WORKER.call(request, TIMEOUT, f"{about.place}: tracing {about.name}")
    except Refusal as refusal:
        raise _error(refusal, about, sizes, carried, before) from None
    for storage, data in answer["changed"].items():
        _write_back(carried.live[storage], data)
    return _make(about, sizes, carried, before, answer)


def _constant(value: Any, name: str) -> tuple[Any, ...]:
    if value is None or isinstance(value, (bool, int, float, str)):
        return ("value", value)
    return ("packed", pack_value(value, f"argument {name!r}"))


def _error(
    refusal: Refusal,
    about: Kernel,
    sizes: tuple[int, ...],
    carried: _Arguments,
    before: dict[str, np.ndarray],
) -> TraceError:
    if refusal.kind != "out-of-bounds":
        place = "" if refusal.message.count(":") > 1 else f"{about.place}: "
        return TraceError(f"{place}{refusal.message}")
    answer = {"events": refusal.details["events"], "printed": "", "version": ""}
    error = OutOfBounds(refusal.message)
    error.trace = _make(about, sizes, carried, before, answer)
    return error


def _make(
    about: Kernel,
    sizes: tuple[int, ...],
    carried: _Arguments,
    before: dict[str, np.ndarray],
    answer: dict[str, Any],
) -> Trace:
    tensors = {
        name: Tensor(
            name,
            tuple(t.shape),
            tuple(t.stride()),
            str(t.dtype).removeprefix("torch."),
            t.storage_offset(),
            before[name],
            _values(t),
        )
        for name, t in carried.tensors.items()
    }
    events = [_event(raw, tensors) for raw in answer["events"]]
    return Trace(
        about.name, sizes, tensors, events, answer["printed"], answer["version"]
    )


def _event(raw: dict[str, Any], tensors: dict[str, Tensor]) -> Event:
    tensor = tensors.get(raw["tensor"])
    inside = np.isin(raw["index"], tensor.offsets if tensor else [])
    keep = {k: v for k, v in raw.items() if k != "in_storage"}
    return Event(**keep, inside=inside)
