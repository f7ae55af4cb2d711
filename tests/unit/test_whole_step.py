"""Processes that share a step draw what one process draws that has all of its rows."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from arc_refinery.training.whole_step import WholeStepDraws

N_PROCESSES, N_ROWS, N_TOKENS = 2, 4, 3  # rows of each process; tokens of the longest completion


PROBABILITIES = torch.rand(N_PROCESSES * N_ROWS, 50, generator=torch.Generator().manual_seed(7))


def token_by_token(rows: slice) -> Tensor:
    return torch.multinomial(PROBABILITIES[rows], num_samples=1)


def row_by_row(rows: slice) -> Tensor:
    return torch.rand(len(PROBABILITIES[rows]), device="cpu")


@pytest.mark.parametrize("draw", [token_by_token, row_by_row])
@pytest.mark.parametrize("index", range(N_PROCESSES))
@pytest.mark.parametrize("n_own_tokens", [1, 3])
def test_a_process_draws_its_part_of_the_step(draw: Callable[[slice], Tensor], index: int, n_own_tokens: int):
    own = slice(index * N_ROWS, (index + 1) * N_ROWS)
    torch.manual_seed(1)
    drawn = [draw(slice(None)) for _ in range(N_TOKENS)]
    order, after = torch.randperm(N_PROCESSES * N_ROWS).tolist(), torch.get_rng_state()

    torch.manual_seed(1)
    draws = WholeStepDraws(index, N_PROCESSES)
    with draws:
        own_drawn = [draw(own) for _ in range(n_own_tokens)]
        draws.catch_up(N_TOKENS)
        own_order = torch.randperm(N_ROWS).tolist()
    assert all(values.equal(whole[own]) for values, whole in zip(own_drawn, drawn, strict=False))
    assert own_order == [row - index * N_ROWS for row in order if row in range(N_PROCESSES * N_ROWS)[own]]
    assert torch.get_rng_state().equal(after)
