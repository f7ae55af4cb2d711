"""The optimizer with states of 8 bits, with the CPU kernels of bitsandbytes: states, and their reload from a file."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from arc_refinery.doctor.stages import EIGHT_BIT_RANK

WIDTH = 128  # the embedded model's


def weights() -> Tensor:
    return torch.linspace(-1, 1, EIGHT_BIT_RANK * WIDTH).view(EIGHT_BIT_RANK, WIDTH).requires_grad_()


def make_steps(optimizer: torch.optim.Optimizer, seeds: range) -> None:
    for seed in seeds:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                parameter.grad = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(seed))
        optimizer.step()


def eight_bits(of: Tensor) -> Any:
    from bitsandbytes.optim import AdamW

    return AdamW([of], lr=1e-2, optim_bits=8)  # as transformers makes it


def test_steps_after_a_reload_are_those_without(tmp_path: Path):
    whole, first = weights(), weights()
    make_steps(eight_bits(whole), range(6))
    optimizer = eight_bits(first)
    make_steps(optimizer, range(3))
    torch.save(optimizer.state_dict(), tmp_path / "optimizer.pt")
    resumed = first.detach().clone().requires_grad_()
    optimizer = eight_bits(resumed)
    optimizer.load_state_dict(torch.load(tmp_path / "optimizer.pt", weights_only=True))  # as transformers does
    make_steps(optimizer, range(3, 6))
    assert torch.equal(resumed, whole)


@pytest.mark.parametrize(("rank", "dtype"), [(EIGHT_BIT_RANK, torch.uint8), (EIGHT_BIT_RANK - 1, torch.float32)])
def test_doctors_rank_is_the_smallest_whose_states_have_8_bits(rank: int, dtype: torch.dtype):
    matrix = weights().detach()[:rank].clone().requires_grad_()
    optimizer = eight_bits(matrix)
    make_steps(optimizer, range(1))
    assert optimizer.state[matrix]["state1"].dtype == dtype
