"""The child process of `loom.trace`: runs a launch and records every access.

Each tensor argument is given its own region of a made-up address space, so that an
address says which argument it was computed from, however far outside it lies. The
accesses that are really made are translated to the tensor's memory; one that is live
and lies outside is refused before it is made.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import traceback
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
import triton.runtime.interpreter as interpreter
from triton.runtime.jit import type_canonicalisation_dict

from loom import worker
from loom.kernels import named_tuple, public_path, unpack
from loom.worker import Refusal, serve

LANE_LIMIT = 2_000_000
NOWHERE = -(1 << 62)
_BASE = 1 << 60
_SPAN = 44
_HALF = 1 << (_SPAN - 1)
_TRITON = os.path.dirname(triton.__file__) + os.sep
_OWN = {__file__, worker.__file__, contextlib.__file__}
_HINTS = {
    "create_load": "unmasked",
    "create_store": "unmasked",
    "create_descriptor_load": "descriptor",
    "create_descriptor_store": "descriptor",
    "create_descriptor_gather": "descriptor",
    "create_descriptor_scatter": "descriptor",
    "create_tensor_pointer_load": "block pointer",
    "create_tensor_pointer_store": "block pointer",
}
_TYPED = (
    "create_masked_load",
    "create_masked_store",
    "create_atomic_rmw",
    "create_atomic_cas",
)


@dataclass
class Region:
    """One tensor argument: its made-up base and where its memory really is."""

    name: str
    base: int
    pointer: int
    start: int
    end: int
    origin: int
    itemsize: int
    numel: int
    dtype: torch.dtype


class Placed:
    """What stands for a tensor argument inside the interpreter."""

    def __init__(self, region: Region) -> None:
        self.region = region
        self.dtype = region.dtype

    def data_ptr(self) -> int:
        return self.region.base


class Recorder:
    """The accesses of one launch, in program order."""

    def __init__(self, regions: list[Region], spans: list[tuple[int, int, int]]):
        self.regions = regions
        self.spans = spans
        self.events: list[dict[str, Any]] = []
        self.lanes = 0
        self.hints: list[str] = []
        self.element: tl.dtype | None = None
        self.program = (0, 0, 0)
        self.operation = -1

    def locate(self, addresses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The region of each address (-1: none) and its byte offset there."""
        region = (addresses - (_BASE - _HALF)) >> _SPAN
        region = np.where((region < 0) | (region >= len(self.regions)), -1, region)
        offset = np.full(addresses.shape, NOWHERE, dtype=np.int64)
        for number, place in enumerate(self.regions):
            here = region == number
            offset[here] = addresses[here] - place.base
        for first, last, number in self.spans:
            here = (region == -1) & (addresses >= first) & (addresses < last)
            region = np.where(here, number, region)
            offset[here] = addresses[here] - self.regions[number].origin
        return region, offset

    def access(
        self, kind: str, pointers: np.ndarray, mask: np.ndarray, itemsize: int
    ) -> tuple[np.ndarray, list[dict[str, Any]]]:
        """Check an access, note it, and return the real addresses and its events."""
        shape = np.shape(pointers)
        flat = np.ascontiguousarray(pointers).reshape(-1).view(np.int64)
        live = np.broadcast_to(mask, shape).reshape(-1).astype(bool)
        region, offset = self.locate(flat)
        real = np.zeros(flat.shape, dtype=np.int64)
        allowed = np.zeros(flat.shape, dtype=bool)
        for number, place in enumerate(self.regions):
            here = region == number
            real[here] = offset[here] + place.pointer
            allowed[here] = (real[here] >= place.start) & (
                real[here] + itemsize <= place.end
            )
        events = self._note(kind, shape, region, offset, live, allowed)
        refused = np.flatnonzero(live & ~allowed)
        if refused.size:
            self._refuse(kind, int(refused[0]), region, offset, flat, refused.size)
        return np.where(live, real, 0).view(np.uint64).reshape(shape), events

    def _note(
        self,
        kind: str,
        shape: tuple[int, ...],
        region: np.ndarray,
        offset: np.ndarray,
        live: np.ndarray,
        allowed: np.ndarray,
    ) -> list[dict[str, Any]]:
        x, y, z = interpreter.interpreter_builder.grid_idx
        program = (int(x), int(y), int(z))
        if program != self.program or not self.events:
            self.program, self.operation = program, -1
        self.operation += 1
        self.lanes += region.size
        if self.lanes > LANE_LIMIT:
            raise Refusal(
                "error",
                f"the launch makes more than {LANE_LIMIT:,} accesses; trace a case "
                "small enough to read",
            )
        path, line, function = kernel_frame(sys._getframe(2))
        made = []
        for number in np.unique(region):
            lanes = np.flatnonzero(region == number)
            place = self.regions[number] if number >= 0 else None
            size = place.itemsize if place else 1
            index = np.where(offset == NOWHERE, NOWHERE, offset // size)[lanes]
            event = {
                "program": program,
                "operation": self.operation,
                "kind": kind,
                "detail": self.hints[-1] if self.hints else "",
                "path": path,
                "line": line,
                "function": function,
                "tensor": place.name if place else "",
                "shape": shape,
                "lanes": lanes,
                "index": index,
                "mask": live[lanes],
                "in_storage": allowed[lanes],
                "values": None,
                "old": None,
            }
            made.append(event)
        self.events.extend(made)
        return made

    def _refuse(
        self,
        kind: str,
        lane: int,
        region: np.ndarray,
        offset: np.ndarray,
        addresses: np.ndarray,
        count: int,
    ) -> None:
        event = self.events[-1]
        where = f"{event['path']}:{event['line']}"
        program = "program " + _program(event["program"])
        others = f" ({count} lanes of this {kind} do)" if count > 1 else ""
        verb = {"load": "reads", "store": "writes"}.get(kind, "updates")
        if region[lane] < 0:
            text = (
                f"{where}: {kind}: {program}, lane {lane} {verb} an address that "
                f"belongs to no tensor of this launch, and the lane is not masked"
                f"{others}; pass the tensor it should point into"
            )
        else:
            place = self.regions[int(region[lane])]
            index = int(offset[lane]) // place.itemsize
            last = f"0 to {place.numel - 1}" if place.numel else "none"
            text = (
                f"{where}: {kind} through {place.name}: {program}, lane {lane} {verb} "
                f"element {index}, outside its memory, and the lane is not masked"
                f"{others}; {place.name} has {place.numel} elements ({last}); "
                "mask the lane or mend the index"
            )
        raise Refusal("out-of-bounds", text)


class Watched:
    """The interpreter's memory operations, each checked and noted first."""

    def __init__(self, real: Any) -> None:
        self._real = real
        self.recorder: Recorder | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def load(self, pointers, mask, other, dtype):  # type: ignore[no-untyped-def]
        recorder = self._active()
        size = np.dtype(dtype).itemsize
        real, events = recorder.access("load", pointers, mask, size)
        result = self._real.load(real, mask, other, dtype)
        _set(events, "values", decode(result, recorder.element))
        return result

    def store(self, pointers, values, mask):  # type: ignore[no-untyped-def]
        recorder = self._active()
        size = values.dtype.itemsize
        real, events = recorder.access("store", pointers, mask, size)
        stored = np.broadcast_to(values, np.shape(pointers))
        _set(events, "values", decode(stored, recorder.element))
        return self._real.store(real, values, mask)

    def atomic_rmw(self, op, pointers, values, mask, sem):  # type: ignore[no-untyped-def]
        recorder = self._active()
        size = values.dtype.itemsize
        real, events = recorder.access("atomic", pointers, mask, size)
        for event in events:
            event["detail"] = getattr(op, "name", str(op)).lower()
        _set(events, "values", decode(values, recorder.element))
        result = self._real.atomic_rmw(op, real, values, mask, sem)
        _set(events, "old", decode(result, recorder.element))
        return result

    def atomic_cas(self, pointers, compare, values, sem):  # type: ignore[no-untyped-def]
        recorder = self._active()
        size = values.dtype.itemsize
        everywhere = np.ones(np.shape(pointers), dtype=bool)
        real, events = recorder.access("atomic", pointers, everywhere, size)
        for event in events:
            event["detail"] = "cas"
        _set(events, "values", decode(values, recorder.element))
        result = self._real.atomic_cas(real, compare, values, sem)
        _set(events, "old", decode(result, recorder.element))
        return result

    def _active(self) -> Recorder:
        if self.recorder is None:
            raise RuntimeError("a memory access outside a traced launch")
        return self.recorder


def _set(events: list[dict[str, Any]], key: str, values: np.ndarray) -> None:
    flat = np.asarray(values).reshape(-1)
    for event in events:
        event[key] = flat[event["lanes"]]


def decode(raw: np.ndarray, element: tl.dtype | None) -> np.ndarray:
    """Values as numpy can hold them: bfloat16 and float8 become float32."""
    name = getattr(element, "name", "")
    raw = np.ascontiguousarray(raw)
    if name == "bf16" and raw.dtype.itemsize == 2:
        return (raw.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    if name in _FLOAT8 and raw.dtype.itemsize == 1:
        bits = torch.from_numpy(raw.view(np.uint8).copy())
        return bits.view(_FLOAT8[name]).float().numpy()
    return raw.copy()


_FLOAT8 = {
    "fp8e4nv": torch.float8_e4m3fn,
    "fp8e5": torch.float8_e5m2,
    "fp8e4b8": torch.float8_e4m3fnuz,
    "fp8e5b16": torch.float8_e5m2fnuz,
}


def kernel_frame(frame: Any) -> tuple[str, int, str]:
    """Path, line and function of the kernel code that is running."""
    while frame is not None:
        if is_kernel_file(frame.f_code.co_filename):
            path = public_path(frame.f_code.co_filename)
            return path, frame.f_lineno, frame.f_code.co_name
        frame = frame.f_back
    return "", 0, ""


def is_kernel_file(path: str) -> bool:
    """Whether a frame of this file is kernel code, not ours and not Triton's."""
    return path not in _OWN and not path.startswith((_TRITON, "<"))


def _program(program: tuple[int, ...]) -> str:
    used = list(program)
    while len(used) > 1 and used[-1] == 0:
        used.pop()
    return str(used[0]) if len(used) == 1 else "(" + ", ".join(map(str, used)) + ")"


# --- hooking into the interpreter -----------------------------------------------------


def install() -> Watched:
    """Put the watch between the interpreter and memory."""
    watched = Watched(interpreter._interpreter)
    interpreter._interpreter = watched
    original = interpreter._implicit_cvt

    def convert(argument: Any) -> Any:
        if not isinstance(argument, Placed):
            return original(argument)
        name = type_canonicalisation_dict[str(argument.dtype).removeprefix("torch.")]
        kind = tl.str_to_ty(f"*{name}", None)
        handle = interpreter.TensorHandle(
            np.array([argument.data_ptr()], dtype=np.uint64), kind
        )
        return tl.tensor(handle, kind)

    interpreter._implicit_cvt = convert
    _mend_index()
    executor = interpreter.GridExecutor
    executor._init_args_hst = lambda self, args, kwargs: (list(args), kwargs)
    executor._restore_args_dev = lambda self, *_: None
    builder = interpreter.InterpreterBuilder
    for name, hint in _HINTS.items():
        _wrap_hint(builder, name, hint, watched)
    for name in _TYPED:
        _wrap_typed(builder, name, watched)
    return watched


def _mend_index() -> None:
    """Let `range(n)` take a run-time n: Triton 3.6 and numpy 2.4 do not agree on it."""
    original = interpreter._patch_lang_tensor

    def patched(tensor: Any, scope: Any) -> None:
        original(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    interpreter._patch_lang_tensor = patched


def _wrap_hint(builder: Any, name: str, hint: str, watched: Watched) -> None:
    original = getattr(builder, name, None)
    if original is None:
        return

    def hinted(self: Any, *args: Any, **kwargs: Any) -> Any:
        hints = watched._active().hints
        hints.append(hints[-1] if hints else hint)
        try:
            return original(self, *args, **kwargs)
        finally:
            hints.pop()

    setattr(builder, name, hinted)


def _wrap_typed(builder: Any, name: str, watched: Watched) -> None:
    original = getattr(builder, name)
    position = 1 if name == "create_atomic_rmw" else 0

    def typed(self: Any, *args: Any, **kwargs: Any) -> Any:
        handle = args[position] if len(args) > position else None
        element = handle.get_element_ty() if handle is not None else None
        watched._active().element = element
        return original(self, *args, **kwargs)

    setattr(builder, name, typed)


# --- one request ----------------------------------------------------------------------


class Launch:
    """The arguments of one request, rebuilt."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.buffers = [_buffer(data) for data in request["storages"]]
        self.regions: list[Region] = []
        self.spans: list[tuple[int, int, int]] = []
        self.origins = request["origins"]
        self.arguments = [self._decode(code) for code in request["arguments"]]

    def _decode(self, code: tuple[Any, ...]) -> Any:
        kind = code[0]
        if kind == "tensor":
            return self._place(*code[1:])
        if kind == "tuple":
            return tuple(map(self._decode, code[1]))
        if kind == "namedtuple":
            return named_tuple(code[1], code[2], map(self._decode, code[3]))
        if kind == "descriptor":
            from triton.tools.tensor_descriptor import TensorDescriptor

            base = self._decode(code[1])
            return TensorDescriptor(base, *code[2:])
        if kind == "packed":
            return unpack(code[1])
        return code[1]

    def _place(
        self, name: str, storage: int, dtype: str, offset: int, numel: int
    ) -> Placed:
        buffer = self.buffers[storage]
        kind = getattr(torch, dtype)
        start, size = buffer.ctypes.data, kind.itemsize
        origin = self.origins[storage] + offset * size
        number = len(self.regions)
        base = _BASE + (number << _SPAN) + origin % 256
        end = start + self._length(storage)
        pointer = start + offset * size
        region = Region(name, base, pointer, start, end, origin, size, numel, kind)
        self.regions.append(region)
        first = self.origins[storage]
        if first:
            self.spans.append((first, first + end - start, number))
        return Placed(region)

    def _length(self, storage: int) -> int:
        return self.buffers[storage].nbytes - 64


def _buffer(data: bytes) -> np.ndarray:
    """The bytes of a storage in memory of our own, 64 spare bytes after them."""
    buffer = np.zeros(len(data) + 64, dtype=np.uint8)
    buffer[: len(data)] = np.frombuffer(data, dtype=np.uint8)
    return buffer


def handle(request: dict[str, Any]) -> dict[str, Any]:
    """Run one launch; the answer has its events and the storages it changed."""
    kernel = unpack(request["kernel"])
    launch = Launch(request)
    recorder = Recorder(launch.regions, launch.spans)
    WATCHED.recorder = recorder
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed), np.errstate(all="ignore"):
            kernel[tuple(request["grid"])](*launch.arguments)
    except Exception as error:
        raise _explain(error, recorder) from error
    finally:
        WATCHED.recorder = None
        _forget_rewritten()
    changed = {}
    for number, before in enumerate(request["storages"]):
        after = launch.buffers[number][: len(before)].tobytes()
        if after != before:
            changed[number] = after
    return {
        "events": recorder.events,
        "changed": changed,
        "printed": printed.getvalue(),
        "version": triton.__version__,
    }


def _forget_rewritten() -> None:
    """Drop the interpreter's copies of functions that were rebuilt for one launch."""
    rewritten = interpreter.InterpretedFunction.rewritten_fn
    for fn in list(rewritten):
        if not os.path.isabs(fn.__code__.co_filename):
            del rewritten[fn]


def _explain(error: BaseException, recorder: Recorder) -> Refusal:
    """The refusal behind an interpreter error, or the kernel's own exception."""
    chain = [error]
    while chain[-1].__cause__ is not None:
        chain.append(chain[-1].__cause__)
    for link in chain:
        if isinstance(link, Refusal):
            events = recorder.events if link.kind == "out-of-bounds" else []
            return Refusal(link.kind, link.message, events=events)
    root = chain[-1]
    places = []
    for link in chain:
        for frame in traceback.extract_tb(link.__traceback__):
            if is_kernel_file(frame.filename):
                places.append((public_path(frame.filename), frame.lineno))
    where = f"{places[-1][0]}:{places[-1][1]}: " if places else ""
    text = str(root) or "no message"
    return Refusal("error", f"{where}{type(root).__name__}: {text}")


if __name__ == "__main__":
    if not triton.knobs.runtime.interpret:
        raise SystemExit("loom.trace_worker needs TRITON_INTERPRET=1")
    WATCHED = install()
    serve(handle)
