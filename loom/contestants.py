"""What `loom.bench` is asked to time: contestants, their data, bytes and flops.

A contestant is refused if it may not use the GPU, or if its data is constant.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from loom.measurements import Size, size_text

if TYPE_CHECKING:
    import torch

Function = Callable[..., Any]


class BenchError(ValueError):
    """Something that cannot be timed, or not truly; the message has the mend."""


class Case:
    """A contestant at one size, and its times."""

    def __init__(self, name: str, fn: Function, args: Sequence[Any], size: Size):
        self.name, self.fn, self.args, self.size = name, fn, args, size
        self.title = f"{name!r}" + (f" at size {size_text(size)}" if size else "")
        self.result: Any = None
        self.on_device = False
        self.calls = 1
        self.seconds: list[float] = []
        self.bytes: float | None = None
        self.flops: float | None = None

    def __call__(self) -> Any:
        return self.fn(*self.args)

    def release(self) -> None:
        """Forget the tensors, so that the next size has their memory."""
        self.args = ()
        self.result = None


def check_inputs(case: Case, place: str, constant: Sequence[torch.Tensor]) -> None:
    """Return if a contestant's data lies on the device `place` and is not constant.

    Raises BenchError naming the tensor otherwise.
    """
    allowed = {id(tensor) for tensor in constant}
    for where, tensor in inputs(case.fn, case.args):
        if str(tensor.device) == place:
            case.on_device = True
        elif tensor.dim() or tensor.device.type != "cpu":
            raise BenchError(
                f"loom.bench: {where} of {case.title} lies on {tensor.device}; accepted"
                f" are tensors on {place}, as .to({place!r}) gives"
            )
        if id(tensor) not in allowed and is_constant(tensor):
            value = tensor[(0,) * tensor.dim()].item()
            raise BenchError(
                f"loom.bench: {where} of {case.title} is {value} everywhere, and"
                " constant data can run faster than real data; accepted is random"
                " data, as loom.bench.random makes it, in output buffers, too"
                " (constant=[…] names tensors that are rightly constant)"
            )


def check_result(case: Case, place: str) -> None:
    """Return if what a contestant gave shows that it works on the device `place`.

    Raises BenchError for a function of the CPU.
    """
    for where, tensor in tensors(case.result, "the result"):
        if str(tensor.device) == place:
            case.on_device = True
        elif tensor.dim():
            raise BenchError(
                f"loom.bench: {where} of {case.title} lies on {tensor.device}: a"
                f" function of the CPU; accepted are functions that work on {place}"
            )
    if not case.on_device:
        raise BenchError(
            f"loom.bench: {case.title} reaches no tensor on {place}, by an argument,"
            " its closure or its result, and so may not use the GPU at all; give it"
            " its tensors as arguments"
        )


# ------------------------------------------------------------------- the data it reads


def inputs(
    fn: Function, args: Sequence[Any] = ()
) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors that a call ``fn(*args)`` can reach, each with words for its place.

    Reached are those of its arguments, its closure and its defaults, of the object of
    a method, and of the global names it uses if it gets no arguments.
    """
    for number, value in enumerate(args, 1):
        yield from tensors(value, f"argument {number}")
    if isinstance(fn, functools.partial):
        for number, value in enumerate(fn.args, 1):
            yield from tensors(value, f"argument {number}")
        for name, value in fn.keywords.items():
            yield from tensors(value, f"argument {name!r}")
        yield from inputs(fn.func, args or (None,))
        return
    if inspect.ismethod(fn):
        yield from tensors(fn.__self__, "its object")
        fn = fn.__func__
    if not inspect.isfunction(fn):
        yield from tensors(fn, "the object")
        return
    cells = zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True)
    scope = {name: cell.cell_contents for name, cell in cells if _filled(cell)}
    for number, value in enumerate(fn.__defaults__ or (), 1):
        yield from tensors(value, f"default {number}")
    for name, value in (fn.__kwdefaults__ or {}).items():
        yield from tensors(value, f"default {name!r}")
    if not args:
        used = [n for n in fn.__code__.co_names if n in fn.__globals__]
        scope |= {name: fn.__globals__[name] for name in used}
    for name, value in scope.items():
        yield from tensors(value, f"{name!r}")


def _filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


def tensors(value: Any, where: str, depth: int = 4) -> Iterator[tuple[str, Any]]:
    """The tensors in a value: in containers, and in the attributes of an object."""
    import torch

    if isinstance(value, torch.Tensor):
        yield where, value
    elif depth == 0 or isinstance(value, type | str | bytes):
        return
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from tensors(item, f"{where}[{key!r}]", depth - 1)
    elif isinstance(value, list | tuple | set | frozenset):
        for number, item in enumerate(value):
            yield from tensors(item, f"{where}[{number}]", depth - 1)
    elif isinstance(value, torch.nn.Module):
        for name, tensor in [*value.named_parameters(), *value.named_buffers()]:
            yield f"{where}.{name}", tensor
    elif not inspect.ismodule(value) and not inspect.isroutine(value):
        if type(value).__module__.partition(".")[0] not in ("torch", "triton"):
            for name, item in list(getattr(value, "__dict__", {}).items()):
                yield from tensors(item, f"{where}.{name}", depth - 1)


def is_constant(tensor: torch.Tensor) -> bool:
    """Whether all elements are the same, bit for bit, and there are two or more."""
    import torch

    if tensor.numel() < 2:
        return False
    whole = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    if tensor.is_complex() or tensor.itemsize not in whole:
        tensor = torch.view_as_real(tensor.resolve_conj())
    bits = tensor.detach().view(whole[tensor.itemsize])
    return bool((bits == bits[(0,) * bits.dim()]).all())


# -------------------------------------------------------------------- bytes and flops


def set_amounts(case: Case, bytes: Any, flops: Any, count: bool) -> None:
    """Set what one call of a contestant moves and computes.

    Raises BenchError for what is no number above 0.  With `count`, a contestant
    without `bytes` reads its arguments once and writes what it returns.
    """
    case.bytes = _amount("bytes", bytes, case)
    case.flops = _amount("flops", flops, case)
    if case.bytes is None and count:
        found = [t for _, t in tensors((case.args, case.result), "")]
        own = {t.data_ptr(): t.numel() * t.itemsize for t in found}
        case.bytes = float(sum(own.values())) or None


def _amount(what: str, given: Any, case: Case) -> float | None:
    if callable(given):
        given = given(case.size)
    if isinstance(given, Mapping):
        if case.name not in given:
            raise BenchError(f"loom.bench: {what}: got none for {case.name!r}")
        given = given[case.name]
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, int | float) or given <= 0:
        raise BenchError(
            f"loom.bench: {what}: got {given!r} for {case.name!r}; accepted is a"
            " number above 0, such numbers by contestant, or a function of the size"
        )
    return float(given)
