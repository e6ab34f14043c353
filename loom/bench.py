"""The timer of the book: contestants in turns, warm, on random data.

`compare` times several functions side by side and `measure` times one, both with
CUDA events, the L2 cache flushed before each call; `host_seconds` times what a call
costs the host.  What is timed must be on a GPU and must not be given constant data,
which a GPU can process faster than the reader's.

The timing alone is here: a change to this file makes captures stale.
"""

from __future__ import annotations

import functools
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from loom.begin import interpreted, version
from loom.contestants import (
    BenchError,
    Case,
    Function,
    check_inputs,
    check_result,
    set_amounts,
)
from loom.measurements import Comparison, Measurement, Run, Size, size_text

if TYPE_CHECKING:
    import torch

bench = sys.modules[__name__]  # `loom.bench` is this module

ROUNDS = 10
SECONDS = 0.1  # of timed calls, for each contestant at each size
WARM = 0.1  # seconds of calls before them
FLUSH_BYTES = 256 * 2**20  # more than any L2 cache
FLUSH_SECONDS = 1e-4  # about what a flush takes
MOST_CALLS = 1000
COPY_BYTES = 2**30
MATMUL = 8192

Amount = float | Mapping[str, float] | Callable[[Any], float | Mapping[str, float]]


# ------------------------------------------------------------------------- the device


class Gpu:
    """The current CUDA device, as what times calls."""

    def __init__(self) -> None:
        self._flush: torch.Tensor | None = None

    def require(self) -> None:
        """Return if kernels run on a GPU here; raises BenchError otherwise."""
        import torch

        capture = (
            "cells that time are capture cells: give the cell the option `#| capture:"
            " gpu` and run `python weave.py --capture` on a machine with a CUDA GPU"
        )
        if not torch.cuda.is_available():
            raise BenchError(f"loom.bench: there is no CUDA GPU here; {capture}")
        if interpreted():
            raise BenchError(
                "loom.bench: kernels are interpreted here (TRITON_INTERPRET=1), which"
                f" says nothing about a GPU's time; {capture}"
            )

    def place(self) -> str:
        """Where tensors must lie."""
        import torch

        return f"cuda:{torch.cuda.current_device()}"

    def wait(self) -> None:
        """Return when the device has done all that it was given."""
        import torch

        torch.cuda.synchronize()

    def times(self, call: Callable[[], Any], calls: int) -> list[float]:
        """Seconds of device time of each of so many calls, the L2 flushed before."""
        import torch

        if self._flush is None:
            self._flush = torch.empty(FLUSH_BYTES, dtype=torch.int8, device="cuda")
        pairs = [
            [torch.cuda.Event(enable_timing=True) for _ in range(2)]
            for _ in range(calls)
        ]
        torch.cuda.synchronize()
        for begin, end in pairs:
            self._flush.zero_()
            begin.record()
            call()
            end.record()
        torch.cuda.synchronize()
        return [begin.elapsed_time(end) / 1e3 for begin, end in pairs]

    def copy(self) -> tuple[Callable[[], Any], float]:
        """A large device-to-device copy, and the bytes that it reads and writes."""
        import torch

        source = random(COPY_BYTES // 2, dtype=torch.bfloat16)
        into = torch.empty_like(source)
        return lambda: into.copy_(source), 2.0 * COPY_BYTES

    def matmul(self, dtype: Any) -> tuple[Callable[[], Any], float]:
        """A large matrix product by torch, and its floating-point operations."""
        import torch

        a, b = random(2, MATMUL, MATMUL, dtype=dtype).unbind()
        return lambda: torch.matmul(a, b), 2.0 * MATMUL**3

    def about(self) -> dict[str, Any]:
        """The device, the versions and the date."""
        import torch

        versions = {name: version(name) for name in ("triton", "torch")}
        versions["cuda"] = str(torch.version.cuda)
        versions["python"] = ".".join(map(str, sys.version_info[:2]))
        date = datetime.now(UTC).date().isoformat()
        device = torch.cuda.get_device_name()
        return {"device": device, "versions": versions, "date": date}


def random(
    *shape: int, dtype: Any = None, seed: int = 0, device: str = "cuda"
) -> torch.Tensor:
    """A tensor of random numbers: normal ones, or the whole range of an integer type.

    The dtype is float32 if it is not given.
    """
    import torch

    dtype = dtype or torch.float32
    generator = torch.Generator(device).manual_seed(seed)
    options: dict[str, Any] = {"generator": generator, "device": device}
    if dtype.is_complex:
        return torch.randn(shape, dtype=dtype, **options)
    if dtype.is_floating_point:
        own = dtype if dtype.itemsize > 1 else torch.float32
        return torch.randn(shape, dtype=own, **options).to(dtype)
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, **options).bool()
    low, high = torch.iinfo(dtype).min, torch.iinfo(dtype).max
    return torch.randint(low, high, shape, dtype=dtype, **options)


# ------------------------------------------------------------------------------ timing


# ------------------------------------------------------------------------------ timing


def measure(
    fn: Function,
    *args: Any,
    bytes: float | None = None,
    flops: float | None = None,
    **options: Any,
) -> Measurement:
    """Time ``fn(*args)``; `bytes` and `flops` are those of one call.

    The options are those of `compare`.
    """
    name = getattr(fn, "__name__", None) or type(fn).__name__
    amounts: dict[str, Any] = {"bytes": bytes, "flops": flops}
    (one,) = compare({name: fn}, make=lambda: args, **amounts, **options)
    return one


def compare(
    contestants: Mapping[str, Function],
    *,
    sizes: Iterable[Any] | None = None,
    make: Callable[..., Any] | None = None,
    bytes: Amount | None = None,
    flops: Amount | None = None,
    matmul: Any = None,
    constant: Sequence[torch.Tensor] = (),
    rounds: int = ROUNDS,
    seconds: float = SECONDS,
    warm: float = WARM,
    gpu: Any = None,
) -> Comparison:
    """Time functions on the same random inputs, in turns.

    Args:
        contestants: functions by name, all of the same arguments.
        sizes: numbers, or tuples such as shapes; none means one size without a name.
        make: ``make(size)`` gives the arguments as a tuple or a single tensor,
            ``make()`` without sizes.  Without it, a random float32 tensor of the size,
            or no arguments if there are no sizes.
        bytes: what one call reads and writes: a number, a number by contestant, or a
            function of the size that gives either.  With neither this nor `make`, a
            contestant is taken to read its tensor once and to write what it returns.
        flops: floating-point operations of one call, given likewise.
        matmul: a dtype; then a large matrix product of it is measured, too, as the
            ceiling of `flops`.  That of `bytes`, a large device copy, always is.
        constant: tensors that are rightly constant, such as lengths.
        rounds: turns that each contestant gets at each size.
        seconds, warm: about how long a contestant is timed at a size, and warmed.

    Raises:
        BenchError: no GPU, kernels interpreted, constant data, tensors or functions of
            the CPU, no memory left, or arguments that are not accepted.
    """
    gpu = gpu or Gpu()
    listed = [None] if sizes is None else [_size(size) for size in sizes]
    _check_plan(contestants, listed, rounds, seconds)
    gpu.require()
    made: Callable[..., Any] = make or (tuple if sizes is None else _random_tensor)
    ceilings = _Ceilings(gpu, matmul)
    timed: list[Case] = []
    for size in listed:
        try:
            args = _arguments(made() if size is None else made(size))
            cases = [Case(name, fn, args, size) for name, fn in contestants.items()]
            for case in cases:
                check_inputs(case, gpu.place(), constant)
                _call_first(case)
                check_result(case, gpu.place())
                set_amounts(case, bytes, flops, count=make is None)
                case.result = None
            _take_turns(gpu, cases, rounds, seconds, warm)
            del args
            for case in cases:
                case.release()
            ceilings.again()
        except Exception as error:
            if type(error).__name__ != "OutOfMemoryError":
                raise
            at = f" at size {size_text(size)}" if size else ""
            raise BenchError(
                f"loom.bench: the GPU's memory is full{at}; accepted are smaller sizes"
            ) from error
        timed += cases
    run = Run(**gpu.about(), **ceilings.rates())
    return Comparison([_measurement(case, run) for case in timed], run)


def _size(size: Any) -> Size:
    """A size as it is kept; raises BenchError for what is none."""
    whole = size if isinstance(size, list | tuple) else (size,)
    if whole and all(type(n) is int and n > 0 for n in whole):
        return tuple(whole) if isinstance(size, list | tuple) else size
    raise BenchError(
        f"loom.bench: sizes: got {size!r}; accepted are whole numbers above 0 and"
        " tuples of them"
    )


def _check_plan(
    contestants: Any, sizes: Sequence[Size], rounds: int, seconds: float
) -> None:
    """Return if there is something to time; raises BenchError otherwise."""
    if not isinstance(contestants, Mapping) or not contestants:
        raise BenchError(
            f"loom.bench: contestants: got {contestants!r}; accepted are functions by"
            " name, as {'copy': copy}"
        )
    for name, fn in contestants.items():
        if not callable(fn):
            raise BenchError(
                f"loom.bench: {name!r}: got a {type(fn).__name__}; accepted is a"
                " function"
            )
    if not sizes:
        raise BenchError("loom.bench: sizes: got none; accepted is one or more")
    if rounds < 1 or seconds <= 0:
        raise BenchError(
            f"loom.bench: got rounds={rounds} and seconds={seconds}; accepted are"
            " values above 0"
        )


def _random_tensor(size: Any) -> torch.Tensor:
    return random(*(size if isinstance(size, tuple) else (size,)))


def _arguments(made: Any) -> tuple[Any, ...]:
    return tuple(made) if isinstance(made, list | tuple) else (made,)


def _call_first(case: Case) -> None:
    """The first call, which compiles; an error says whose it is."""
    try:
        case.result = case()
    except Exception as error:
        error.add_note(f"while calling {case.title}")
        raise


def _take_turns(
    gpu: Any, cases: Sequence[Case], rounds: int, seconds: float, warm: float
) -> None:
    """Warm every contestant, then time them in turns, forward and backward."""
    for case in cases:
        one = max(statistics.median(gpu.times(case, 5)), FLUSH_SECONDS)
        gpu.times(case, min(MOST_CALLS, math.ceil(warm / one)))
        case.calls = min(MOST_CALLS, math.ceil(seconds / rounds / one))
    for number in range(rounds):
        for case in cases if number % 2 == 0 else reversed(cases):
            case.seconds += gpu.times(case, case.calls)


class _Ceilings:
    """What the device reaches at best, measured again after every size."""

    def __init__(self, gpu: Any, matmul: Any) -> None:
        self.works = {"copy": gpu.copy}
        self.dtype = ""
        if matmul is not None:
            self.works["matmul"] = functools.partial(gpu.matmul, matmul)
            self.dtype = str(matmul).removeprefix("torch.")
        self.gpu = gpu
        self.rate: dict[str, list[float]] = {name: [] for name in self.works}

    def again(self) -> None:
        for name, make in self.works.items():
            call, amount = make()
            self.gpu.times(call, 5)
            self.rate[name] += [amount / took for took in self.gpu.times(call, 20)]

    def rates(self) -> dict[str, Any]:
        found = {name: statistics.median(all_) for name, all_ in self.rate.items()}
        return {**found, "matmul_dtype": self.dtype}


def _measurement(case: Case, run: Run) -> Measurement:
    times = case.seconds
    low = middle = high = times[0]
    if len(times) > 1:
        low, middle, high = statistics.quantiles(times, n=4, method="inclusive")
    spread = (middle, low, high, len(times))
    return Measurement(case.name, case.size, *spread, case.bytes, case.flops, run)


def host_seconds(
    call: Callable[[], Any], *, calls: int = 1, wait: bool = True, gpu: Any = None
) -> float:
    """The median seconds that a call takes the host, by the host's clock.

    With `wait`, until the GPU is done, as a first launch is timed; without, until
    the call returns, as the cost of a launch is.  Nothing is warmed.
    """
    gpu = gpu or Gpu()
    gpu.require()
    took = []
    gpu.wait()
    for _ in range(calls):
        start = time.perf_counter()
        call()
        if wait:
            gpu.wait()
        took.append(time.perf_counter() - start)
    gpu.wait()
    return statistics.median(took)
