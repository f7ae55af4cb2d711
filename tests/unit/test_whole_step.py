"""Processes that share a step draw what one process draws that has all of its rows."""

import pytest
import torch

from arc_refinery.training.whole_step import WholeStepDraws

N_PROCESSES, N_ROWS, N_TOKENS = 2, 4, 3  # rows of each process; tokens of the longest completion


@pytest.mark.parametrize("index", range(N_PROCESSES))
@pytest.mark.parametrize("n_own_tokens", [1, 3])
def test_a_process_draws_its_part_of_the_step(index: int, n_own_tokens: int):
    probabilities = torch.rand(N_PROCESSES * N_ROWS, 50, generator=torch.Generator().manual_seed(7))
    own = slice(index * N_ROWS, (index + 1) * N_ROWS)
    torch.manual_seed(1)
    tokens = [torch.multinomial(probabilities, num_samples=1) for _ in range(N_TOKENS)]
    order, after = torch.randperm(N_PROCESSES * N_ROWS).tolist(), torch.get_rng_state()

    torch.manual_seed(1)
    draws = WholeStepDraws(index, N_PROCESSES)
    with draws:
        own_tokens = [torch.multinomial(probabilities[own], num_samples=1) for _ in range(n_own_tokens)]
        draws.catch_up(N_TOKENS)
        own_order = torch.randperm(N_ROWS).tolist()
    assert all(token.equal(whole[own]) for token, whole in zip(own_tokens, tokens, strict=False))
    assert own_order == [row - index * N_ROWS for row in order if row in range(N_PROCESSES * N_ROWS)[own]]
    assert torch.get_rng_state().equal(after)
