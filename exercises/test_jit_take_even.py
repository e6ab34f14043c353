"""Exercise: every second element (Chapter 1)."""

import pytest
import torch

import generated

DEVICE = "cpu" if generated.interpreting() else "cuda"


@pytest.mark.parametrize("n", [0, 1, 2, 3, 11, 1024, 2047, 2049])
def test_every_second_element(attempt, n):
    x = torch.arange(float(n), device=DEVICE)
    out = attempt.take_even(x)
    assert out.shape == ((n + 1) // 2,), f"{n} elements have {(n + 1) // 2} even ones"
    assert torch.equal(out, x[::2])


@pytest.mark.parametrize("stride", [2, 3, 7])
def test_any_stride(attempt, stride):
    x = torch.arange(100.0, device=DEVICE)[::stride]
    assert torch.equal(attempt.take_even(x), x[::2]), f"x has stride {stride}"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64, torch.int8])
def test_the_type_is_kept(attempt, dtype):
    x = torch.arange(11, device=DEVICE).to(dtype)
    out = attempt.take_even(x)
    assert out.dtype == dtype and torch.equal(out, x[::2])


def test_nothing_is_read_past_the_end(attempt):
    """The element after the last is a NaN that nobody may see."""
    memory = torch.tensor([0.0, 1.0, 2.0, float("nan")], device=DEVICE)
    assert attempt.take_even(memory[:3]).tolist() == [0.0, 2.0]
