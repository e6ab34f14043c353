"""What `loom.trace` records, against what the arithmetic says."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from loom.kernels import KernelError
from loom.trace import WORKER, OutOfBounds, Trace, TraceError, trace
from loom.worker import WorkerError

ROOT = Path(__file__).resolve().parents[2]
SCALE = tl.constexpr(2.0)


@triton.jit
def doubled(x):
    return x * SCALE


@triton.jit
def reverse_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask)
    tl.store(out_ptr + (n - 1 - offs), doubled(x), mask=mask)


@triton.jit
def copy2d_kernel(
    x_ptr, out_ptr, M, N, sx, so, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr
):
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    x = tl.load(
        x_ptr + offs_m[:, None] * sx[0] + offs_n[None, :] * sx[1], mask=mask, other=-1
    )
    tl.store(out_ptr + offs_m[:, None] * so[0] + offs_n[None, :] * so[1], x, mask=mask)


@triton.jit
def unmasked_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs)
    tl.store(out_ptr + offs, x)


@triton.jit
def row_sums_kernel(x_ptr, out_ptr, n, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + row * stride + offs, mask=offs < n, other=0.0)
    tl.store(out_ptr + row, tl.sum(total, 0))


@triton.jit
def histogram_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    bins = tl.load(x_ptr + offs, mask=mask, other=0)
    tl.atomic_add(out_ptr + bins, 1, mask=mask)


@triton.jit
def descriptor_kernel(x_ptr, out_ptr, M, N, BLOCK: tl.constexpr):
    source = tl.make_tensor_descriptor(x_ptr, [M, N], [N, 1], [BLOCK, BLOCK])
    target = tl.make_tensor_descriptor(out_ptr, [M, N], [N, 1], [BLOCK, BLOCK])
    m, n = tl.program_id(0) * BLOCK, tl.program_id(1) * BLOCK
    target.store([m, n], source.load([m, n]))


@triton.jit
def failing_kernel(x_ptr, BLOCK: tl.constexpr):
    tl.static_assert(BLOCK > 4, "BLOCK is too small")
    tl.load(x_ptr + tl.arange(0, BLOCK))


@triton.jit
def crashing_kernel(x_ptr, BLOCK: tl.constexpr):
    crash()
    tl.load(x_ptr + tl.arange(0, BLOCK))


def crash():
    import os
    import signal

    os.kill(os.getpid(), signal.SIGSEGV)


@triton.jit
def scaled_kernel(x_ptr, pair, label: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs).to(tl.float32)
    if label == "half":
        x = x * pair[0] + pair[1]
    tl.store(x_ptr + offs, x)


def reversed_trace(n: int = 10) -> tuple[Trace, torch.Tensor]:
    x, out = torch.arange(float(n)), torch.zeros(n)
    grid = (triton.cdiv(n, 4),)
    made = trace(reverse_kernel, grid=grid, x_ptr=x, out_ptr=out, n=n, BLOCK=4)
    return made, out


# --- indices, masks, values -----------------------------------------------------------


@pytest.mark.parametrize("n", [1, 4, 10, 12])
def test_ragged_1d(n):
    made, out = reversed_trace(n)
    programs = -(-n // 4)
    assert len(made.events) == 2 * programs
    for number, (load, store) in enumerate(
        zip(made.events[::2], made.events[1::2], strict=True)
    ):
        lanes = np.arange(4) + 4 * number
        assert load.program == store.program == (number, 0, 0)
        assert (load.kind, load.tensor) == ("load", "x_ptr")
        assert (store.kind, store.tensor) == ("store", "out_ptr")
        assert load.index.tolist() == lanes.tolist()
        assert store.index.tolist() == (n - 1 - lanes).tolist()
        assert load.mask.tolist() == store.mask.tolist() == (lanes < n).tolist()
        assert load.inside.tolist() == (lanes < n).tolist()
        assert load.values[load.mask].tolist() == lanes[lanes < n].tolist()
        assert store.values[store.mask].tolist() == (2 * lanes[lanes < n]).tolist()
    assert out.tolist() == [2.0 * (n - 1 - i) for i in range(n)]


BASE = torch.arange(60.0)
LAYOUTS = {
    "contiguous": BASE[:15].reshape(3, 5),
    "transposed": BASE[:15].reshape(5, 3).T,
    "storage offset": BASE.reshape(6, 10)[2:5, 3:8],
    "stepped": BASE.reshape(6, 10)[::2, ::2],
    "stride 0": BASE[:5].expand(3, 5),
    "one column": BASE[:3].reshape(3, 1),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_2d_through_strides(layout):
    x = LAYOUTS[layout]
    M, N = x.shape
    out = torch.full((N, M), -7.0).T
    made = trace(
        copy2d_kernel,
        grid=lambda meta: (triton.cdiv(M, meta["BLOCK_M"]), triton.cdiv(N, 2)),
        x_ptr=x,
        out_ptr=out,
        M=M,
        N=N,
        sx=x.stride(),
        so=out.stride(),
        BLOCK_M=2,
        BLOCK_N=2,
    )
    assert torch.equal(out, x)
    for event in made.events:
        tensor = x if event.tensor == "x_ptr" else out
        bm, bn, _ = event.program
        assert event.shape == (2, 2)
        for lane, index, live, value in zip(
            event.lanes, event.index, event.mask, event.values, strict=True
        ):
            i, j = 2 * bm + lane // 2, 2 * bn + lane % 2
            assert index == i * tensor.stride(0) + j * tensor.stride(1)
            assert live == (i < M and j < N)
            assert value == (x[i, j] if live else -1)
            if live:
                found = made.tensors[event.tensor].unravel(int(index))
                # a dimension of stride 0 has many indices for one element
                same = [s for s, t in zip(found, (i, j), strict=True) if s == t]
                assert len(same) == 2 or 0 in tensor.stride()
    live = sum(e.live for e in made.select("load"))
    assert live == M * N


def test_loop_helper_and_program_order():
    x, out = torch.arange(24.0).reshape(3, 8)[:, :7], torch.zeros(3)
    made = trace(
        row_sums_kernel, (3,), x_ptr=x, out_ptr=out, n=7, stride=x.stride(0), BLOCK=4
    )
    assert torch.equal(out, x.sum(1))
    kinds = [(e.program[0], e.operation, e.kind) for e in made.events]
    expected = [(p, o, k) for p in range(3) for o, k in enumerate(("load",) * 2)]
    expected += [(p, 2, "store") for p in range(3)]
    assert kinds == sorted(expected)
    # row 1 of a view of width 7: its masked eighth lane is an address in the storage
    last = made.select("load", "x_ptr", 1)[1]
    assert last.index.tolist() == [12, 13, 14, 15]
    assert last.inside.tolist() == [True, True, True, False]
    assert last.mask.tolist() == [True, True, True, False]


def test_lines_are_the_sources_own():
    made, _ = reversed_trace()
    first = reverse_kernel.fn.__code__.co_firstlineno
    assert {e.line for e in made.select("load")} == {first + 4}
    assert {e.line for e in made.select("store")} == {first + 5}
    assert {e.path for e in made.events} == {"tests/loom/test_trace.py"}
    assert {e.function for e in made.events} == {"reverse_kernel"}


def test_atomics():
    x, out = torch.tensor([0, 1, 1, 5, 5, 3]), torch.zeros(6, dtype=torch.int32)
    made = trace(histogram_kernel, (2,), x_ptr=x, out_ptr=out, n=6, BLOCK=4)
    assert out.tolist() == torch.bincount(x, minlength=6).tolist()
    first, second = made.select("atomic")
    assert first.detail == "add"
    assert first.index.tolist() == [0, 1, 1, 5]
    assert first.old.tolist() == [0, 0, 1, 0]
    assert second.mask.tolist() == [True, True, False, False]


def test_descriptors():
    x, out = torch.arange(48.0).reshape(6, 8), torch.zeros(6, 8)
    made = trace(descriptor_kernel, (2, 2), x_ptr=x, out_ptr=out, M=6, N=8, BLOCK=4)
    assert torch.equal(out, x)
    assert {e.detail for e in made.events} == {"descriptor"}
    assert sum(e.live for e in made.select("load")) == 48


def test_host_descriptor():
    from triton.tools.tensor_descriptor import TensorDescriptor

    x, out = torch.arange(16.0).reshape(4, 4), torch.zeros(16)
    made = trace(
        from_host_kernel,
        (1,),
        desc=TensorDescriptor.from_tensor(x, [4, 4]),
        out_ptr=out,
    )
    assert out.tolist() == list(range(16))
    assert made.select("load")[0].tensor == "desc"


@triton.jit
def from_host_kernel(desc, out_ptr):
    x = desc.load([0, 0])
    tl.store(out_ptr + tl.arange(0, 16), tl.reshape(x, (16,)))


def test_tuples_bfloat16_and_constants():
    x = torch.arange(4, dtype=torch.float32).to(torch.bfloat16)
    made = trace(scaled_kernel, (1,), x_ptr=x, pair=(0.5, 1.0), label="half", BLOCK=4)
    assert x.tolist() == [1.0, 1.5, 2.0, 2.5]
    assert made.events[0].values.tolist() == [0, 1, 2, 3]
    assert made.events[1].values.tolist() == [1.0, 1.5, 2.0, 2.5]
    assert made.tensors["x_ptr"].before.tolist() == [0, 1, 2, 3]
    assert made.tensors["x_ptr"].after.tolist() == [1.0, 1.5, 2.0, 2.5]


def test_empty_grid_and_empty_tensor():
    made = trace(
        unmasked_kernel, (0,), x_ptr=torch.zeros(0), out_ptr=torch.zeros(0), BLOCK=4
    )
    assert made.events == []
    assert "no memory access" in repr(made)


def test_aliased_arguments_share_memory():
    x = torch.arange(8.0)
    trace(reverse_kernel, (2,), x_ptr=x, out_ptr=x, n=8, BLOCK=4)
    # program 0 overwrites 7..4, then program 1 reads what it wrote there
    assert x.tolist() == [0, 4, 8, 12, 6, 4, 2, 0]


def test_a_kernel_defined_in_a_function_carries_its_closure():
    factor = tl.constexpr(3)

    @triton.jit
    def inner_kernel(x_ptr, BLOCK: tl.constexpr):
        offs = tl.arange(0, BLOCK)
        tl.store(x_ptr + offs, tl.load(x_ptr + offs) * factor)

    x = torch.ones(4)
    trace(inner_kernel, (1,), x_ptr=x, BLOCK=4)
    assert x.tolist() == [3, 3, 3, 3]


def test_an_autotuned_kernel_uses_its_first_configuration():
    tuned = triton.autotune(
        [triton.Config({"BLOCK": 4}), triton.Config({"BLOCK": 8})], key=["n"]
    )(reverse_kernel)
    x, out = torch.arange(6.0), torch.zeros(6)
    made = trace(
        tuned, lambda m: (triton.cdiv(6, m["BLOCK"]),), x_ptr=x, out_ptr=out, n=6
    )
    assert made.grid == (2,)
    assert made.events[0].shape == (4,)


# --- what is refused ------------------------------------------------------------------


def test_out_of_bounds_is_refused_and_nothing_is_changed():
    x, out = torch.arange(10.0), torch.zeros(10)
    with pytest.raises(OutOfBounds) as caught:
        trace(unmasked_kernel, (3,), x_ptr=x, out_ptr=out, BLOCK=4)
    line = unmasked_kernel.fn.__code__.co_firstlineno + 3
    text = str(caught.value)
    assert text.startswith(f"tests/loom/test_trace.py:{line}: load through x_ptr")
    assert "program 2, lane 2 reads element 10" in text
    assert "10 elements (0 to 9)" in text
    assert out.tolist() == [0] * 10
    last = caught.value.trace.events[-1]
    assert last.index.tolist() == [8, 9, 10, 11]
    assert last.inside.tolist() == [True, True, False, False]
    assert WORKER.pid is not None


@pytest.mark.parametrize("shift", [-1, 2**31, -(2**31), 2**38])
def test_far_and_negative_addresses_are_named(shift):
    with pytest.raises(OutOfBounds, match=f"reads element {shift},"):
        trace(shifted_kernel, (1,), x_ptr=torch.zeros(4), shift=shift)


@triton.jit
def shifted_kernel(x_ptr, shift):
    tl.load(x_ptr + shift)


def test_a_neighbor_in_memory_is_not_mistaken_for_the_tensor():
    both = torch.arange(8.0)
    with pytest.raises(OutOfBounds, match="store through out_ptr"):
        trace(
            unmasked_kernel,
            (2,),
            x_ptr=torch.arange(8.0),
            out_ptr=both[4:],
            BLOCK=4,
        )
    made = trace(unmasked_kernel, (1,), x_ptr=both[:2], out_ptr=both[4:], BLOCK=4)
    # inside the storage but outside the view: it runs, and it is said
    assert made.events[0].inside.tolist() == [True, True, False, False]


def test_argument_errors_name_the_argument():
    x = torch.zeros(4)
    with pytest.raises(KernelError, match=r"unmasked_kernel needs 'out_ptr', 'BLOCK'"):
        trace(unmasked_kernel, (1,), x_ptr=x)
    with pytest.raises(KernelError, match=r"got 'y_ptr'; its parameters are x_ptr"):
        trace(unmasked_kernel, (1,), x_ptr=x, out_ptr=x, y_ptr=x, BLOCK=4)
    with pytest.raises(KernelError, match="grid: got"):
        trace(unmasked_kernel, "3", x_ptr=x, out_ptr=x, BLOCK=4)
    with pytest.raises(KernelError, match="function decorated with @triton.jit"):
        trace(print, (1,))
    with pytest.raises(KernelError, match="argument 'x_ptr'"):
        trace(unmasked_kernel, (1,), x_ptr=object(), out_ptr=x, BLOCK=4)


def test_compile_options_are_ignored():
    x = torch.zeros(4)
    trace(unmasked_kernel, (1,), x_ptr=x, out_ptr=x, BLOCK=4, num_warps=8)


def test_the_kernels_own_failure_has_its_line():
    line = failing_kernel.fn.__code__.co_firstlineno + 2
    with pytest.raises(TraceError) as caught:
        trace(failing_kernel, (1,), x_ptr=torch.zeros(4), BLOCK=4)
    assert f"tests/loom/test_trace.py:{line}: " in str(caught.value)
    assert "BLOCK is too small" in str(caught.value)


def test_one_worker_and_a_new_one_after_a_death():
    reversed_trace()
    first = WORKER.pid
    reversed_trace()
    assert WORKER.pid == first
    with pytest.raises(WorkerError, match="SIGSEGV"):
        trace(crashing_kernel, (1,), x_ptr=torch.zeros(4), BLOCK=4)
    _, out = reversed_trace()
    assert out.tolist() == [2.0 * (9 - i) for i in range(10)]
    assert WORKER.pid not in (None, first)


def test_a_natively_defined_kernel_is_traced_and_no_worker_is_left():
    program = f"""
    import sys, torch
    sys.path.insert(0, {str(ROOT)!r})
    sys.path.insert(0, {str(Path(__file__).parent)!r})
    from test_trace import reverse_kernel, trace, WORKER
    assert type(reverse_kernel).__name__ == "JITFunction"
    out = torch.zeros(10)
    trace(reverse_kernel, (3,), x_ptr=torch.arange(10.0), out_ptr=out, n=10, BLOCK=4)
    assert out[0] == 18
    print(WORKER.pid)
    """
    environment = {**os.environ, "TRITON_INTERPRET": "0"}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        env=environment,
        check=True,
    )
    with pytest.raises(ProcessLookupError):
        os.kill(int(done.stdout), 0)


# --- how it shows itself --------------------------------------------------------------


def test_table_is_hand_sized_markdown():
    made, _ = reversed_trace()
    text = made.table()._repr_markdown_()
    lines = text.splitlines()
    assert lines[0].split("|")[1:-1] == [
        " program ",
        " operation       ",
        " indices           ",
        " live   ",
        " values            ",
    ]
    assert "| 2       | load `x_ptr`    | 8 9 ~~10~~ ~~11~~ | 2 of 4 |" in lines[6]
    assert "1 0 ~~−1~~ ~~−2~~" in lines[7]
    assert len(lines) == 8
    assert str(made.table(op="store", program=1)).count("\n") == 3
    assert "tests/loom/test_trace.py:" in str(made.table(lines=True))
    assert "5 more operations not shown" in str(made.table(limit=1))


def test_table_of_a_matrix_names_rows_and_columns():
    x = LAYOUTS["transposed"]
    out = torch.zeros(3, 5)
    made = trace(
        copy2d_kernel,
        (1, 2),
        x_ptr=x,
        out_ptr=out,
        M=3,
        N=5,
        sx=x.stride(),
        so=out.stride(),
        BLOCK_M=2,
        BLOCK_N=4,
    )
    last = str(made.table(op="load", nd=True)).splitlines()[-1]
    assert "(0,4) ~~(0,5)~~ ~~(0,6)~~ ~~(0,7)~~ / (1,4)" in last
    assert "| 0,1 " in last


def test_wrong_selections_say_what_there_is():
    made, _ = reversed_trace()
    with pytest.raises(KernelError, match="this launch has x_ptr, out_ptr"):
        made.table(tensor="y")
    with pytest.raises(KernelError, match="accepted are 'load'"):
        made.table(op="read")
