"""The timer, on a device that is made up: what it times, refuses and computes."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import loom
from loom import captures
from loom.bench import Gpu, compare, host_seconds, measure, random
from loom.contestants import BenchError, inputs, is_constant
from loom.measurements import Comparison, Measurement, draw, size_text

ROOT = Path(__file__).resolve().parents[2]


class Pretend(Gpu):
    """A device whose calls take the seconds that `cost` says, at a drifting clock."""

    def __init__(self, cost=lambda call: 1e-3, drift=0.0, place="cpu"):
        self.cost = cost
        self.drift = drift
        self.where = place
        self.log = []
        self.now = 0.0

    def require(self):
        self.required = True

    def place(self):
        return self.where

    def wait(self):
        pass

    def times(self, call, calls):
        self.log.append((getattr(call, "name", "ceiling"), calls))
        took = []
        for _ in range(calls):
            self.now += 1
            took.append(self.cost(call) * (1 + self.drift * self.now))
        return took

    def copy(self):
        return (lambda: None), 4e9

    def matmul(self, dtype):
        return (lambda: None), 8e12

    def about(self):
        versions = {"triton": "3.6.0", "torch": "2.11.0"}
        return {"device": "Pretend 1", "versions": versions, "date": "2026-11-30"}


def by_name(**seconds):
    return lambda call: seconds.get(getattr(call, "name", ""), 1e-3)


def noise(n):
    return random(n, device="cpu")


def compared(contestants, **options):
    options = {"sizes": [2**10, 2**12], "make": noise, **options}
    options.setdefault("gpu", Pretend())
    return compare(contestants, **options)


def double(x):
    return 2 * x


def negate(x):
    return -x


# ------------------------------------------------------------------------------ results


def test_rates_ratios_and_ceilings():
    gpu = Pretend(by_name(double=1e-3, negate=2e-3))
    result = compared(
        {"double": double, "negate": negate},
        bytes=lambda n: {"double": 8 * n, "negate": 12 * n},
        flops=lambda n: n,
        matmul=torch.bfloat16,
        gpu=gpu,
    )
    row = result.row("double")
    assert row.size == 2**12
    assert row.gbps == pytest.approx(8 * 2**12 / 1e-3 / 1e9)
    assert row.tflops == pytest.approx(2**12 / 1e-3 / 1e12)
    assert row.of_copy == pytest.approx(8 * 2**12 / 4e9)
    assert row.of_matmul == pytest.approx(2**12 / 8e12)
    assert result.run.matmul_dtype == "bfloat16"
    assert result.ratio("negate", "double") == pytest.approx(12 / 8 / 2)
    assert result.ratio("negate", "double", of="calls") == pytest.approx(1 / 2)
    assert result.ratio("negate", "double", size=2**10) == pytest.approx(3 / 4)
    assert result.sizes == [2**10, 2**12] and result.names == ["double", "negate"]
    assert len(result) == 4 and [r.size for r in result.series("double")] == [
        1024,
        4096,
    ]
    assert gpu.required


def test_median_and_quartiles():
    costs = iter([9.0] * 5 + [9.0] + [1.0, 5.0, 2.0, 4.0, 3.0] + [1.0] * 99)
    gpu = Pretend(lambda call: next(costs))
    row = measure(double, noise(8), rounds=5, seconds=0.1, warm=0.1, gpu=gpu)
    assert (row.low, row.seconds, row.high, row.calls) == (2.0, 3.0, 4.0, 5)
    assert row.spread == pytest.approx(2 / 3)
    assert row.name == "double" and row.gbps is None


def test_bytes_are_counted_only_where_nothing_else_is_said(monkeypatch):
    monkeypatch.setattr("loom.bench._random_tensor", noise)
    plain = compared({"double": double}, make=None, sizes=[1000])
    assert plain.row("double").bytes == 8000
    assert compared({"double": double}, sizes=[1000]).row("double").bytes is None
    own = compared({"double": double}, make=None, sizes=[1000], bytes=5)
    assert own.row("double").bytes == 5


def test_contestants_take_turns_so_that_a_drifting_clock_favors_none():
    gpu = Pretend(drift=0.01)
    result = compared(
        {"a": double, "b": double, "c": double}, sizes=[8], rounds=6, gpu=gpu
    )
    for name in "bc":
        assert result.ratio("a", name) == pytest.approx(1, abs=0.02)
    turns = [name for name, calls in gpu.log[6:] if name != "ceiling"]
    assert turns == list("abccba" * 3)
    warmed = dict(gpu.log[:6])  # the longer call of each: 0.1 s at 1 ms or more
    assert set(warmed) == set("abc") and all(20 < n <= 100 for n in warmed.values())


def test_the_cache_is_flushed_before_each_call_and_the_call_timed_alone(monkeypatch):
    log = []

    class Event:
        def __init__(self, enable_timing):
            assert enable_timing

        def record(self):
            log.append("record")

        def elapsed_time(self, end):
            return 2.0

    class Flush:
        def zero_(self):
            log.append("flush")

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: log.append("wait"))
    gpu = Gpu()
    gpu._flush = Flush()
    assert gpu.times(lambda: log.append("call"), 2) == [2e-3, 2e-3]
    assert log == ["wait", *["flush", "record", "call", "record"] * 2, "wait"]


def test_functions_without_sizes_and_shapes_as_sizes():
    x = noise(64)
    result = compare({"double": lambda: double(x)}, gpu=Pretend(), bytes=512)
    assert result.sizes == [None]
    shapes = [(2, 3), (4, 5)]
    result = compare(
        {"negate": negate},
        sizes=shapes,
        make=lambda shape: random(*shape, device="cpu"),
        gpu=Pretend(),
    )
    assert result.sizes == shapes
    assert [size_text(s) for s in (*shapes, 2**20, 1000, None)] == [
        "2 × 3", "4 × 5", "2^20", "1000", "",
    ]  # fmt: skip


def test_a_comparison_is_kept_as_json_and_read_back():
    made = compared({"double": double}, bytes=lambda n: 8 * n)
    stored = json.loads(json.dumps(captures.encode(made)))
    again = captures.decode(stored)
    assert isinstance(again, Comparison)
    assert again.rows == made.rows and again.run == made.run
    assert str(again.table()) == str(made.table())
    one = measure(double, noise(8), gpu=Pretend())
    assert captures.decode(json.loads(json.dumps(captures.encode(one)))) == one
    tupled = Measurement.from_kept(
        json.loads(json.dumps(one.to_kept() | {"size": [2]}))
    )
    assert tupled.size == (2,)


def test_the_table_has_the_columns_that_say_something():
    gpu = Pretend(by_name(double=12.34e-6))
    made = compared({"double": double}, bytes=lambda n: 8 * n, gpu=gpu)
    head, _, *body = str(made).splitlines()
    assert [cell.strip() for cell in head.strip("|").split("|")] == [
        "size", "contestant", "median, µs", "quartiles, µs", "GB/s", "of the copy",
    ]  # fmt: skip
    assert [cell.strip() for cell in body[0].strip("|").split("|")] == [
        "2^10", "double", "12.34", "12.34–12.34", "0.6639", "0.0 %",
    ]  # fmt: skip
    assert len(body) == 2


@pytest.mark.parametrize("sizes", [[2**10, 2**12], [2**10], [(2, 2), (2, 3)]])
def test_a_drawing_of_each_form(sizes):
    made = compared(
        {"double": double, "negate": negate},
        sizes=sizes,
        make=lambda size: noise(8),
        bytes=8,
    )
    assert "<svg" in made.draw().svg
    assert made.draw().svg == made.draw().svg


def test_a_drawing_of_what_was_not_run_says_so():
    plot = draw(captures.Missing())
    assert [text.get_text() for text in plot.axes.texts] == ["not yet run on a GPU"]


# ----------------------------------------------------------------------------- refusals


ZEROS = torch.zeros(64)


def over_zeros():
    return ZEROS + 1


class Layer:
    def __init__(self, weight):
        self.inner = {"weight": [weight]}

    def __call__(self, x):
        return x * self.inner["weight"][0]

    def method(self, x):
        return self(x)


def bound_to(x):
    return lambda: x + 1


@pytest.mark.parametrize(
    ("fn", "args", "where"),
    [
        (double, (torch.zeros(64),), "argument 1"),
        (double, (torch.full((8, 8), float("nan")),), "argument 1"),
        (double, (torch.ones(1).expand(64),), "argument 1"),
        (double, (torch.zeros(8, dtype=torch.complex64),), "argument 1"),
        (torch.add, (noise(8), torch.full((8,), 3)), "argument 2"),
        (lambda xs: xs["x"] + 1, ({"x": torch.zeros(8)},), r"argument 1\['x'\]"),
        (bound_to(torch.zeros(64)), (), "'x'"),
        (over_zeros, (), "'ZEROS'"),
        (functools.partial(torch.add, torch.zeros(64)), (noise(64),), "argument 1"),
        (functools.partial(torch.sum, input=torch.zeros(64)), (), "argument 'input'"),
        (lambda x=ZEROS: x + 1, (), "default 1"),
        (Layer(torch.ones(8)), (noise(8),), r"the object.inner\['weight'\]\[0\]"),
        (Layer(torch.ones(8)).method, (noise(8),), "its object.inner"),
        (torch.nn.LayerNorm(8), (noise(8),), "the object.weight"),
    ],
)
def test_constant_data_is_refused_wherever_it_is(fn, args, where):
    with pytest.raises(BenchError, match=rf"{where}.* everywhere.*random data"):
        measure(fn, *args, gpu=Pretend())


def test_data_that_is_rightly_constant_is_named():
    lengths = torch.full((4,), 7)
    with pytest.raises(BenchError, match="everywhere"):
        measure(torch.add, noise(4), lengths, gpu=Pretend())
    assert measure(torch.add, noise(4), lengths, constant=[lengths], gpu=Pretend())
    assert measure(torch.mul, noise(4), torch.tensor(2.0), gpu=Pretend())


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "bfloat16", "float64", "int64"])
def test_random_data_is_not_constant(dtype):
    made = random(3, 50, dtype=getattr(torch, dtype), device="cpu")
    assert made.dtype == getattr(torch, dtype) and not is_constant(made)
    assert is_constant(torch.zeros_like(made))
    assert not is_constant(made.t()) and not is_constant(made[:1, :1])
    assert random(50, dtype=torch.bool, device="cpu").unique().numel() == 2
    assert not random(9, device="cpu").equal(random(9, device="cpu", seed=1))


def test_the_cpu_is_refused():
    gpu = Pretend(place="cuda:0")
    with pytest.raises(BenchError, match=r"argument 1 of 'double' lies on cpu.*cuda:0"):
        measure(double, noise(8), gpu=gpu)
    with pytest.raises(BenchError, match=r"result of 'f' lies on cpu: a function of"):
        compare({"f": lambda: noise(8) + 1}, gpu=gpu)
    with pytest.raises(BenchError, match=r"'f' reaches no tensor on cuda:0"):
        compare({"f": lambda: sum(range(9))}, gpu=gpu)
    with pytest.raises(BenchError, match="argument 2 of 'add' lies on meta"):
        measure(torch.add, noise(8), torch.zeros(8, device="meta"), gpu=Pretend())


@pytest.mark.skipif(torch.cuda.is_available(), reason="about a machine without a GPU")
@pytest.mark.parametrize("call", [measure, host_seconds, lambda f: compare({"f": f})])
def test_without_a_gpu_the_error_says_where_to_run(call):
    with pytest.raises(BenchError, match=r"no CUDA GPU.*capture: gpu.*--capture"):
        call(lambda: ZEROS)


def test_the_interpreter_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    with pytest.raises(BenchError, match="interpreted"):
        measure(double, noise(8))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"contestants": {}}, "functions by name"),
        ({"contestants": [double]}, "functions by name"),
        ({"contestants": {"a": 3}}, "'a': got a int"),
        ({"sizes": []}, "got none"),
        ({"sizes": [0]}, "got 0"),
        ({"sizes": [1.5]}, r"got 1\.5"),
        ({"sizes": [(2, "x")]}, "got"),
        ({"rounds": 0}, "rounds=0"),
        ({"bytes": -1}, "bytes: got -1"),
        ({"flops": {"other": 1}}, "flops: got none for 'double'"),
    ],
)
def test_wrong_requests(change, message):
    request = {"contestants": {"double": double}, **change}
    with pytest.raises(BenchError, match=message):
        compared(request.pop("contestants"), **request)


def test_wrong_questions():
    made = compared({"double": double})
    with pytest.raises(KeyError, match=r"'x' at size 4096; there are double.*2\^10"):
        made.row("x")
    with pytest.raises(ValueError, match="accepted are bytes, flops, calls"):
        made.ratio("double", "double", of="hours")
    with pytest.raises(ValueError, match="not given"):
        made.ratio("double", "double", of="bytes")


def test_an_error_says_whose_it_is_and_full_memory_at_which_size():
    def wrong(x):
        raise ZeroDivisionError("x")

    with pytest.raises(ZeroDivisionError) as caught:
        compared({"double": double, "wrong": wrong})
    assert caught.value.__notes__ == ["while calling 'wrong' at size 2^10"]

    def full(x):
        if x.numel() > 2**10:
            raise torch.OutOfMemoryError("of course")
        return x + 1

    with pytest.raises(BenchError, match=r"memory is full at size 2\^12"):
        compared({"full": full})


# ---------------------------------------------------------------------- host and name


def test_the_hosts_seconds_are_the_hosts():
    took = host_seconds(lambda: time.sleep(0.01), calls=3, gpu=Pretend())
    assert 0.01 <= took < 0.1


def test_only_the_tensors_a_function_reaches_are_looked_at():
    assert list(inputs(double, (3,))) == []
    found = [where for where, _ in inputs(over_zeros)]
    assert found == ["'ZEROS'"]
    assert [where for where, _ in inputs(over_zeros, (3,))] == []


def test_loom_bench_is_the_module_and_imports_nothing_heavy():
    assert loom.bench.compare is compare
    code = "import sys, loom; loom.bench.compare; print('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        check=True,
    )
    assert done.stdout.strip() == "False"
