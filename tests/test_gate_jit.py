"""Chapter 1's kernels through the compile gate, as its public functions launch them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch

from generated import jit
from loom.gate import TARGETS, Configuration, check, identify, pairs

TYPES = {
    torch.float16: "fp16",
    torch.bfloat16: "bf16",
    torch.float32: "fp32",
    torch.float64: "fp64",
    torch.int8: "i8",
    torch.uint8: "u8",
    torch.int16: "i16",
    torch.int32: "i32",
    torch.int64: "i64",
}
NONE: Mapping[str, int] = {}
KERNELS = {
    "vector_add": (jit.vector_add_kernel, "x", "y", "out"),
    "fused_multiply_add": (jit.multiply_add_kernel, "x", "y", "z", "out"),
}


def launched(
    public: str,
    dtype: str,
    rank: int = 0,
    n: str = "i32",
    targets: tuple[str, ...] = TARGETS,
    spills: Mapping[str, int] = NONE,
    **more: object,
) -> Configuration:
    """A kernel as `launch` calls it: rank 0 stands for tensors of the same strides."""
    kernel, *tensors = KERNELS[public]
    shape = (n,) if rank == 0 else (n,) * rank
    strides = (1,) if rank == 0 else (n,) * rank
    arguments = {f"{name}_ptr": f"*{dtype}" for name in tensors}
    arguments |= {f"{name}_strides": strides for name in tensors}
    arguments |= {"n": n, "shape": shape, "BLOCK": jit.BLOCK_SIZE}
    layout = f"rank {rank}" if rank else "contiguous"
    width = "" if n == "i32" else f" n {n}"
    mark = " unaligned" if more else ""
    name = f"{public} {dtype} {layout}{width}{mark}"
    return Configuration(name, kernel, {**arguments, **more}, targets, spills)


# With 64-bit strides, the assembler keeps a number or two in memory.
SOME = dict.fromkeys(("3.6", "3.7", "3.9"), 8)
TWO = ("sm_90", "gfx942")  # one of each maker
SHIPPED = [
    *(launched("fused_multiply_add", dtype) for dtype in TYPES.values()),
    *(launched("vector_add", dtype, targets=TWO) for dtype in TYPES.values()),
    *(
        launched(public, dtype, rank=2, targets=TWO)
        for public in KERNELS
        for dtype in ("bf16", "fp32", "fp64", "i8")
    ),
    launched("vector_add", "fp32", n="i64", targets=TWO),
    launched("vector_add", "fp32", targets=TWO, divisible_by_16=()),
    Configuration(
        "add_kernel fp32",
        jit.add_kernel,
        {"x_ptr": "*fp32", "y_ptr": "*fp32", "out_ptr": "*fp32"}
        | {"n": "i32", "BLOCK": 1024},
    ),
]
OTHERS = [
    *(
        launched(public, dtype, rank, n)
        for public in KERNELS
        for dtype in TYPES.values()
        for rank, n in ((1, "i32"), (2, "i32"), (3, "i32"), (0, "i64"))
    ),
    *(
        launched(public, dtype, rank=2, n="i64", spills=SOME)
        for public in KERNELS
        for dtype in TYPES.values()
    ),
    *(
        launched(public, dtype, rank, divisible_by_16=())
        for public in KERNELS
        for dtype in TYPES.values()
        for rank in (0, 2)
    ),
    *(
        launched("vector_add", dtype, targets=("sm_80", "sm_100"))
        for dtype in TYPES.values()
    ),
]


@pytest.mark.parametrize(("configuration", "target"), pairs(SHIPPED), ids=identify)
def test_gate(configuration: Configuration, target: str) -> None:
    assert check(configuration, target).problems == ()


def test_every_accepted_type_is_compiled() -> None:
    assert set(TYPES) == set(jit.ARITHMETIC_DTYPES)
