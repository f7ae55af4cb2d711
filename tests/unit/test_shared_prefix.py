"""Completions scored with their prompt read once, against TRL's way: a padded row per completion."""

from contextlib import nullcontext
from itertools import combinations, pairwise
from typing import Any

import pytest
import torch
from small_networks import CONFIGS, SIZES, network
from torch import Tensor
from torch.nn.attention.bias import CausalBias
from torch.nn.functional import scaled_dot_product_attention
from transformers import (
    DiffLlamaConfig,
    FalconConfig,
    GPT2Config,
    MistralConfig,
    PretrainedConfig,
    StableLmConfig,
)

from arc_refinery.models.shared_attention import enable_layouts
from arc_refinery.training import shared_prefix
from arc_refinery.training.shared_prefix import MOST_READ, Block, Group, Packed, group_by_prompt, groups_of, log_probs

pytestmark = [pytest.mark.model, pytest.mark.usefixtures("on_a_cpu")]  # weights of a few numbers

PROMPTS = [[5, 6, 7, 8, 9, 10], [11, 12, 13], [14]]
COMPLETIONS = [[[20, 21, 22, 2], [23, 2], [24, 25, 26, 27, 2]], [[28, 2], [20, 21, 22, 2]], [[29, 30, 2], [31, 2]]]
N_PROMPT, N_COMPLETION = 6, 7


def batch() -> tuple[Tensor, Tensor]:
    """Ids and mask of all completions in mixed order, padded as TRL does."""
    rows = [(prompt, completion) for prompt, many in zip(PROMPTS, COMPLETIONS, strict=True) for completion in many]
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
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("checkpointing", [False, True])
def test_log_probabilities_entropies_and_gradients_are_those_of_separate_rows(name: str, checkpointing: bool) -> None:
    ids, mask = batch()
    mask[4, N_PROMPT:] = 0  # a completion that carries no loss
    separate, shared = network(CONFIGS[name]), network(CONFIGS[name])
    enable_layouts(shared)
    if checkpointing:
        shared.gradient_checkpointing_enable({"use_reentrant": False})
        shared.train()
    expected, values = one_by_one(separate, ids, mask), log_probs(shared, ids, mask, N_COMPLETION)
    for reference, other in zip(expected, values, strict=True):
        torch.testing.assert_close(reference, other, atol=1e-5, rtol=0)
    assert not values[0][4].any() and values[0][0].ne(0).sum() == 2
    wanted, got = gradients(separate, expected[0]), gradients(shared, values[0])
    assert float((wanted - got).norm() / wanted.norm()) < 1e-4


def test_a_network_that_shares_generates_as_before() -> None:
    before, after = network(CONFIGS["qwen3"]), network(CONFIGS["qwen3"])
    enable_layouts(after)
    ids, mask = (tensor[:, :N_PROMPT] for tensor in batch())
    settings: dict[str, Any] = {"attention_mask": mask, "max_new_tokens": 8, "do_sample": False, "pad_token_id": 0}
    assert before.generate(ids, **settings).tolist() == after.generate(ids, **settings).tolist()


def test_16_bit_passes_are_those_of_separate_rows() -> None:
    """Rotated queries and keys stay in float32, values do not: autocast casts what attention is given."""
    ids, mask = batch()
    separate, shared = network(CONFIGS["llama"]), network(CONFIGS["llama"])
    enable_layouts(shared)
    with torch.autocast("cpu", torch.bfloat16):
        expected, values = one_by_one(separate, ids, mask), log_probs(shared, ids, mask, N_COMPLETION)
    torch.testing.assert_close(expected, values, atol=0.05, rtol=0)
    wanted, got = gradients(separate, expected[0]), gradients(shared, values[0])
    assert float((wanted - got).norm() / wanted.norm()) < 0.05


@pytest.mark.parametrize("with_gradient", [True, False])
def test_a_pass_without_loss_reads_one_token_and_has_gradients_of_zero(with_gradient: bool) -> None:
    """Not none: processes that train together wait for each other's gradients of all weights."""
    ids, mask = batch()
    mask[:, N_PROMPT:] = 0
    shared = network(CONFIGS["llama"])
    enable_layouts(shared)
    with nullcontext() if with_gradient else torch.no_grad():
        values = log_probs(shared, ids, mask, N_COMPLETION)
    assert groups_of(ids, mask, N_COMPLETION) == [Group((13,), (Block((0,), 1),))]
    assert all(value.shape == (7, N_COMPLETION) and not value.any() for value in values)
    if with_gradient:
        assert not gradients(shared, values[0]).any()


def test_groups_hold_the_rows_of_one_prompt_in_blocks_of_similar_lengths() -> None:
    ids, mask = batch()
    mask[3, N_PROMPT:] = 0  # carries no loss
    assert groups_of(ids, mask, N_COMPLETION) == [
        Group((11, 12, 13), (Block((0,), 2), Block((5,), 4))),
        Group((5, 6, 7, 8, 9, 10), (Block((1, 6), 5),)),  # 4 and 5 tokens: 10 positions for 9
        Group((14,), (Block((2, 4), 3),)),  # 3 and 2 tokens: 6 positions for 5
    ]


@pytest.mark.parametrize("seed", range(20))
def test_the_blocks_are_the_fewest_that_are_allowed_and_then_the_smallest(seed: int) -> None:
    lengths = torch.empty(9).log_normal_(3, 0.7, generator=torch.Generator().manual_seed(seed)).int() + 1
    mask = torch.arange(int(lengths.max())) < lengths[:, None]
    ids = torch.ones(9, 1 + mask.shape[1], dtype=torch.long)
    (group,) = groups_of(ids, torch.cat([torch.ones(9, 1), mask], 1).long(), mask.shape[1])
    assert sorted(row for block in group.blocks for row in block.rows) == list(range(9))
    assert all(block.n_columns == max(lengths[row] for row in block.rows) for block in group.blocks)

    ordered = sorted(lengths.tolist())
    ways = [[0, *cuts, 9] for n_cuts in range(9) for cuts in combinations(range(1, 9), n_cuts)]
    sizes = [(len(way) - 1, sum((end - start) * ordered[end - 1] for start, end in pairwise(way))) for way in ways]
    fewest = min(size for size in sizes if size[1] <= MOST_READ * sum(ordered))
    assert (len(group.blocks), sum(block.n_tokens for block in group.blocks)) == fewest


def test_the_packed_tokens_are_those_of_the_example_in_the_docstring() -> None:
    ids = torch.tensor(
        [
            [0, 1, 2, 3, 11, 12, 0, 0, 0, 0],
            [0, 1, 2, 3, 31, 32, 33, 34, 35, 36],
            [0, 1, 2, 3, 21, 22, 23, 0, 0, 0],
        ]
    )
    (group,) = groups_of(ids, (ids != 0).long(), 6)
    tokens, positions, labels = shared_prefix.packed(group, ids, (ids != 0).long(), 6)
    assert tokens.tolist() == [1, 2, 3, 11, 12, 3, 21, 22, 3, 31, 32, 33, 34, 35]
    assert positions.tolist() == [0, 1, 2, 3, 4, 2, 3, 4, 2, 3, 4, 5, 6, 7]
    assert labels.tolist() == [-100, -100, 11, 12, -100, 21, 22, 23, 31, 32, 33, 34, 35, 36]
    assert group.lengths == [2, 6, 6]


@pytest.mark.parametrize("n_heads", [2, 6])
@pytest.mark.parametrize("scale", [None, 1.5])
def test_attention_and_its_gradients_are_those_of_a_mask_of_all_pairs(
    n_heads: int, scale: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = [Group((1, 2, 3), (Block((0, 2), 3), Block((1,), 6))), Group((4,), (Block((3, 4), 2),))]
    texts = [(0, 0)] * 2 + [(0, 1)] * 3 + [(0, 2)] * 3 + [(0, 3)] * 6 + [(1, 1)] * 2 + [(1, 2)] * 2  # group, row
    sees = [
        [i <= j and text in (other, (other[0], 0)) for i, text in enumerate(texts)] for j, other in enumerate(texts)
    ]
    torch.manual_seed(0)
    separate = [torch.randn(1, n, len(texts), 8, dtype=torch.float64, requires_grad=True) for n in (n_heads, 2, 2)]
    query, key, value = packed = [tensor.detach().requires_grad_() for tensor in separate]
    masks = []

    def recorded(*arguments: Any, **named: Any) -> Tensor:
        masks.append(named.get("attn_mask"))
        return scaled_dot_product_attention(*arguments, **named)

    monkeypatch.setattr(shared_prefix, "scaled_dot_product_attention", recorded)
    attended = Packed(groups).attend(0, query, key, value, scale)
    query, key, value = separate
    expected = scaled_dot_product_attention(
        query, key, value, attn_mask=torch.tensor(sees), scale=scale, enable_gqa=True
    )
    torch.testing.assert_close(attended, expected, atol=1e-12, rtol=0)
    weights = torch.randn_like(expected)
    for values in (attended, expected):
        (values * weights).sum().backward()
    for reference, other in zip(separate, packed, strict=True):
        torch.testing.assert_close(other.grad, reference.grad, atol=1e-12, rtol=0)
    assert [type(mask) for mask in masks] == [type(None), CausalBias, CausalBias, CausalBias]


def test_passes_are_regrouped_by_prompt_without_losing_a_row() -> None:
    prompts = torch.tensor([[1], [2], [1], [3], [2], [3], [1], [1]])
    whole = {"prompt_ids": prompts, "row": torch.arange(8), "name": list("abcdefgh"), "n": torch.tensor(9), "x": None}
    passes = [
        {key: value[part] if key in ("prompt_ids", "row", "name") else value for key, value in whole.items()}  # type: ignore[index]
        for part in (slice(0, 4), slice(4, 8))
    ]
    one, other = group_by_prompt(passes)
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
    model = network(config, **changes)
    obstacle = enable_layouts(model)
    assert reason in obstacle if reason else not obstacle
    assert (model.config._attn_implementation == "sdpa") == bool(reason)
    assert enable_layouts(model) == obstacle  # once more


def test_a_network_without_sdpa_cannot_share() -> None:
    model = network(CONFIGS["llama"])
    model.set_attn_implementation("eager")
    assert enable_layouts(model) == "its attention is eager, not sdpa"
