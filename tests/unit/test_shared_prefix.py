"""Completions scored with their prompt read once, against TRL's way: a padded row per completion."""

from typing import Any

import pytest
import torch
from small_networks import CONFIGS, SIZES, network
from torch import Tensor
from transformers import (
    DiffLlamaConfig,
    FalconConfig,
    GPT2Config,
    MistralConfig,
    PretrainedConfig,
    StableLmConfig,
)

from arc_refinery.shared_prompts import share
from arc_refinery.training import shared_prefix
from arc_refinery.training.shared_prefix import Group, groups_of, log_probs, regrouped

pytestmark = [pytest.mark.model, pytest.mark.usefixtures("on_a_cpu")]  # weights of a few numbers

PROMPTS = [[5, 6, 7, 8, 9, 10], [11, 12, 13], [14]]
COMPLETIONS = [[[20, 21, 22, 2], [23, 2], [24, 25, 26, 27, 2]], [[28, 2], [20, 21, 22, 2]], [[29, 30, 2], [31, 2]]]
N_PROMPT, N_COMPLETION = 6, 7


def batch() -> tuple[Tensor, Tensor]:
    """Ids and mask of all completions in mixed order, padded as TRL does."""
    rows = [(prompt, one) for prompt, many in zip(PROMPTS, COMPLETIONS, strict=True) for one in many]
    mixed = [rows[place] for place in (3, 0, 5, 1, 6, 4, 2)]
    ids = [[0] * (N_PROMPT - len(p)) + p + c + [0] * (N_COMPLETION - len(c)) for p, c in mixed]
    mask = [[0] * (N_PROMPT - len(p)) + [1] * len(p + c) + [0] * (N_COMPLETION - len(c)) for p, c in mixed]
    return torch.tensor(ids), torch.tensor(mask)


def one_by_one(model: Any, ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    labels = ids.masked_fill(mask == 0, -100)
    labels[:, :N_PROMPT] = -100
    scored = model(input_ids=ids, attention_mask=mask, labels=labels, fused_lm_head=True)
    return scored.log_probs[:, -N_COMPLETION:], scored.entropy[:, -N_COMPLETION:]


def gradients(model: Any, values: Tensor) -> Tensor:
    weights = torch.linspace(-1, 1, values.numel()).view_as(values)
    (values * weights).sum().backward()
    return torch.cat([one.grad.flatten() for one in model.parameters()])


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("checkpointing", [False, True])
def test_log_probabilities_entropies_and_gradients_are_those_of_separate_rows(name: str, checkpointing: bool) -> None:
    ids, mask = batch()
    mask[4, N_PROMPT:] = 0  # a completion that carries no loss
    separate, shared = network(CONFIGS[name]), network(CONFIGS[name])
    share(shared)
    if checkpointing:
        shared.gradient_checkpointing_enable({"use_reentrant": False})
        shared.train()
    expected, found = one_by_one(separate, ids, mask), log_probs(shared, ids, mask, N_COMPLETION)
    for one, other in zip(expected, found, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=0)
    assert not found[0][4].any() and found[0][0].ne(0).sum() == 2
    wanted, got = gradients(separate, expected[0]), gradients(shared, found[0])
    assert float((wanted - got).norm() / wanted.norm()) < 1e-4


def test_a_network_that_shares_generates_as_before() -> None:
    before, after = network(CONFIGS["qwen3"]), network(CONFIGS["qwen3"])
    share(after)
    ids, mask = (one[:, :N_PROMPT] for one in batch())
    settings: dict[str, Any] = {"attention_mask": mask, "max_new_tokens": 8, "do_sample": False, "pad_token_id": 0}
    assert before.generate(ids, **settings).tolist() == after.generate(ids, **settings).tolist()


def test_groups_hold_the_rows_of_one_prompt_up_to_the_longest_completion() -> None:
    assert groups_of(*batch(), N_COMPLETION) == [
        Group((0, 5), (11, 12, 13), 4),
        Group((1, 3, 6), (5, 6, 7, 8, 9, 10), 5),
        Group((2, 4), (14,), 3),
    ]


def test_the_packed_tokens_are_those_of_the_example_in_the_docstring() -> None:
    ids = torch.tensor([[0, 1, 2, 3, 11, 12, 0], [0, 1, 2, 3, 21, 22, 23]])
    mask = torch.tensor([[0, 1, 1, 1, 1, 1, 0], [0, 1, 1, 1, 1, 1, 1]])
    (group,) = groups_of(ids, mask, 3)
    tokens, positions, labels = shared_prefix.packed(group, ids, mask, 3)
    assert tokens.tolist() == [1, 2, 3, 11, 12, 3, 21, 22]
    assert positions.tolist() == [0, 1, 2, 3, 4, 2, 3, 4]
    assert labels.tolist() == [-100, -100, 11, 12, -100, 21, 22, 23]
    assert group.n_tokens == 8


def test_passes_are_regrouped_by_prompt_without_losing_a_row() -> None:
    prompts = torch.tensor([[1], [2], [1], [3], [2], [3], [1], [1]])
    whole = {"prompt_ids": prompts, "row": torch.arange(8), "name": list("abcdefgh"), "n": torch.tensor(9), "x": None}
    passes = [
        {key: value[part] if key in ("prompt_ids", "row", "name") else value for key, value in whole.items()}  # type: ignore[index]
        for part in (slice(0, 4), slice(4, 8))
    ]
    one, other = regrouped(passes)
    assert (one["row"].tolist(), other["row"].tolist()) == ([0, 2, 6, 7], [1, 4, 3, 5])
    assert (one["name"], other["name"]) == (list("acgh"), list("bedf"))
    assert one["n"] == other["n"] == 9 and one["x"] is None
    assert other["prompt_ids"].flatten().tolist() == [2, 2, 3, 3]


@pytest.mark.parametrize(
    ("config", "changes", "reason"),
    [
        (CONFIGS["llama"], {}, ""),
        (CONFIGS["qwen3"], {}, ""),
        (CONFIGS["granite"], {}, ""),
        (CONFIGS["llama"], {"attention_dropout": 0.1}, "dropout"),
        (GPT2Config(vocab_size=40, n_embd=32, n_layer=2, n_head=4), {}, "dropout"),
        (FalconConfig(**SIZES), {}, "its attention cannot be replaced"),
        (StableLmConfig(**SIZES), {}, "its attention does not take the layout"),
        (DiffLlamaConfig(**SIZES), {}, "its layers attend to other keys than they keep"),
        (MistralConfig(**SIZES, sliding_window=16), {}, "not all of its layers"),
        (CONFIGS["qwen3"], {"use_sliding_window": True, "sliding_window": 8, "layer_types": None}, "not all"),
    ],
)
def test_a_network_that_cannot_share_says_why(config: PretrainedConfig, changes: dict[str, Any], reason: str) -> None:
    made = network(config, **changes)
    found = share(made)
    assert reason in found if reason else not found
    assert (made.config._attn_implementation == "sdpa") == bool(reason)
    assert share(made) == found  # once more


def test_a_network_without_sdpa_cannot_share() -> None:
    made = network(CONFIGS["llama"])
    made.set_attn_implementation("eager")
    assert share(made) == "its attention is eager, not sdpa"
