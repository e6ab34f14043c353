"""Exercise: division as Python has it (Chapter 1)."""

import pytest
import torch

import generated

DEVICE = "cpu" if generated.interpreting() else "cuda"


def vector(values):
    return torch.tensor(values, dtype=torch.int32, device=DEVICE)


@pytest.mark.parametrize("a, b", [(7, 2), (-7, 2), (7, -2), (-7, -2), (-8, 2), (0, -3)])
def test_by_hand(attempt, a, b):
    quotient, remainder = attempt.floor_divmod(vector([a]), vector([b]))
    assert (quotient.item(), remainder.item()) == divmod(a, b), f"divmod({a}, {b})"


def test_every_pair_of_small_numbers(attempt):
    a = torch.arange(-40, 41, device=DEVICE).to(torch.int32).repeat(80)
    divisors = [d for d in range(-40, 41) if d]
    b = vector(divisors).repeat_interleave(81)
    quotient, remainder = attempt.floor_divmod(a, b)
    assert torch.equal(quotient, torch.div(a, b, rounding_mode="floor"))
    assert torch.equal(remainder, torch.remainder(a, b))
    assert quotient.dtype == remainder.dtype == torch.int32


def test_any_stride(attempt):
    a, b = vector(list(range(-30, 30)))[::3], vector([3, 0, -7, 0] * 10)[::2]
    quotient, remainder = attempt.floor_divmod(a, b)
    assert torch.equal(quotient, torch.div(a, b, rounding_mode="floor"))
    assert torch.equal(remainder, torch.remainder(a, b))


def test_large_and_empty(attempt):
    a, b = vector([2**31 - 1, -(2**31), -(2**31)]), vector([-2, 3, 2**31 - 1])
    quotient, remainder = attempt.floor_divmod(a, b)
    expected = [divmod(x, y) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    assert list(zip(quotient.tolist(), remainder.tolist(), strict=True)) == expected
    quotient, remainder = attempt.floor_divmod(vector([]), vector([]))
    assert quotient.numel() == remainder.numel() == 0
