"""Exercise: rounding to float8 by hand (Chapter 1)."""

import pytest
import torch


def torchs_answer(bits: torch.Tensor) -> list[int]:
    halves = bits.to(torch.int16).view(torch.float16)
    return halves.to(torch.float8_e5m2).view(torch.uint8).tolist()


@pytest.mark.parametrize(
    "half, expected, why",
    [
        (0x3C00, 0x3C, "1.0 is exact"),
        (0x3C80, 0x3C, "a tie goes to the even neighbor, here down"),
        (0x3D80, 0x3E, "a tie goes to the even neighbor, here up"),
        (0x3C81, 0x3D, "above a tie goes up"),
        (0xBD80, 0xBE, "the sign takes no part"),
        (0x7BFF, 0x7C, "the largest float16 rounds to infinity"),
        (0x0000, 0x00, "zero"),
        (0x8000, 0x80, "minus zero"),
        (0x0001, 0x00, "the smallest subnormal float16"),
        (0xFC00, 0xFC, "minus infinity"),
    ],
)
def test_by_hand(attempt, half, expected, why):
    assert attempt.to_float8(half) == expected, why


def test_nan_stays_nan(attempt):
    for half in (0x7C01, 0x7E00, 0x7FFF, 0xFC01, 0xFFFF):
        assert attempt.to_float8(half) in (0x7F, 0xFF), f"{half:#06x} is a NaN"


def test_all_65536(attempt):
    every = torch.arange(65536)
    expected = torchs_answer(every)
    nan = every.to(torch.int16).view(torch.float16).isnan().tolist()
    wrong = [
        half
        for half in range(65536)
        if not nan[half] and attempt.to_float8(half) != expected[half]
    ]
    shown = ", ".join(f"{half:#06x}" for half in wrong[:5])
    assert not wrong, f"{len(wrong)} of 65,536 differ: {shown} …"
