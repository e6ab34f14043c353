"""Exercise: the midpoint that does not overflow (Chapter 1)."""

import pytest
import torch

import generated

DEVICE = "cpu" if generated.interpreting() else "cuda"


@pytest.mark.parametrize(
    "x, y, expected",
    [(100, 100, 100), (127, 126, 126), (-128, -127, -128), (-1, 0, -1), (3, 4, 3)],
)
def test_by_hand(attempt, x, y, expected):
    pair = [torch.tensor([v], dtype=torch.int8, device=DEVICE) for v in (x, y)]
    assert attempt.midpoint(*pair).item() == expected, f"({x} + {y}) / 2, rounded down"


def test_every_pair_of_int8(attempt):
    every = torch.arange(-128, 128, device=DEVICE)
    x, y = every.repeat(256), every.repeat_interleave(256)
    out = attempt.midpoint(x.to(torch.int8), y.to(torch.int8))
    assert out.dtype == torch.int8
    assert torch.equal(out.long(), (x + y) >> 1)


@pytest.mark.parametrize("dtype", [torch.int16, torch.int32, torch.int64])
def test_at_the_ends_of_wider_types(attempt, dtype):
    ends = torch.iinfo(dtype)
    x = torch.tensor([ends.max, ends.min, ends.max, 0], dtype=dtype, device=DEVICE)
    y = torch.tensor([ends.max, ends.min, ends.min, -1], dtype=dtype, device=DEVICE)
    assert attempt.midpoint(x, y).tolist() == [ends.max, ends.min, -1, -1]
    assert attempt.midpoint(x[:0], y[:0]).shape == (0,)
