"""Exercise: how often does it compile? (Chapter 1)"""

import random

import pytest
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import make_backend
from triton.runtime.jit import JITFunction, create_function_from_signature


def kernel(x_ptr, n, BLOCK: tl.constexpr):
    """Stands for a kernel with one pointer, one integer and one constant."""


class Pointer:
    """What the binder reads of a tensor: an address and a dtype."""

    def __init__(self, dtype: str, address: int) -> None:
        self.dtype = {"fp32": tl.float32, "bf16": tl.bfloat16, "i8": tl.int8}[dtype]
        self.address = address

    def data_ptr(self) -> int:
        return self.address


def tritons_answer(calls) -> int:
    native = JITFunction(kernel)
    backend = make_backend(GPUTarget("cuda", 90, 32))
    bind = create_function_from_signature(native.signature, native.params, backend)
    keys = {
        str(bind(Pointer(c["dtype"], c["address"]), c["n"], BLOCK=c["BLOCK"])[1])
        for c in calls
    }
    return len(keys)


def call(dtype="fp32", address=4096, n=1000, BLOCK=1024):
    return {"dtype": dtype, "address": address, "n": n, "BLOCK": BLOCK}


@pytest.mark.parametrize(
    "calls, why",
    [
        ([], "no call, no compilation"),
        ([call(), call()], "the same key twice"),
        ([call(n=1000), call(n=1001)], "neither is divisible by 16"),
        ([call(n=1000), call(n=1024)], "one is divisible by 16"),
        ([call(n=0), call(n=-16)], "16 divides 0 and -16"),
        ([call(n=1), call(n=2)], "1 is a constant"),
        ([call(address=4096), call(address=4100)], "an address off by 4 bytes"),
        ([call(address=4096), call(address=4112)], "16 bytes further"),
        ([call(n=2**31 - 1), call(n=2**31)], "32 bits and 64 bits"),
        ([call(n=2**31 + 1), call(n=2**63 + 1)], "signed and unsigned"),
        ([call(n=-(2**31)), call(n=-(2**31) - 16)], "below -2^31 it takes 64 bits"),
        ([call(BLOCK=1024), call(BLOCK=2048)], "another constant"),
        ([call("fp32"), call("bf16"), call("i8")], "three types"),
    ],
)
def test_by_hand(attempt, calls, why):
    assert attempt.compilations(calls) == tritons_answer(calls), why


@pytest.mark.parametrize("seed", range(10))
def test_at_random(attempt, seed):
    choose = random.Random(seed)
    calls = [
        call(
            choose.choice(["fp32", "bf16", "i8"]),
            choose.choice([4096, 4098, 4100, 4104, 4112]),
            choose.choice([0, 1, 2, 15, 16, 17, 2**31 - 16, 2**31, 2**40, 2**63]),
            choose.choice([256, 1024]),
        )
        for _ in range(40)
    ]
    assert attempt.compilations(calls) == tritons_answer(calls)
