"""Attention to prompts that are kept once, against SDPA on prompts that are repeated."""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import DynamicCache

from arc_refinery.sampling.prefixes import Prefixes
from arc_refinery.shared_prompts import SideBySide

pytestmark = [pytest.mark.model, pytest.mark.usefixtures("on_a_cpu")]  # a few numbers

LENGTHS = [3, 7, 1]
OWNERS = torch.tensor([0, 0, 1, 2, 2, 2])
SIZE = 8


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def read() -> DynamicCache:
    """Keys and values of two layers, three prompts, two heads."""
    cache = DynamicCache()
    for layer in range(2):
        cache.update(random(1, 2, sum(LENGTHS), SIZE) + layer, random(1, 2, sum(LENGTHS), SIZE) - layer, layer)
    return cache


def repeated(cache: DynamicCache, layer: int, owner: int) -> tuple[Tensor, Tensor]:
    """Keys and values of one prompt: (heads, tokens, size)."""
    start = sum(LENGTHS[:owner])
    kept = slice(start, start + LENGTHS[owner])
    return cache.layers[layer].keys[0, :, kept], cache.layers[layer].values[0, :, kept]


@pytest.mark.parametrize("n_heads", [2, 6])
def test_each_prompt_attends_to_itself(n_heads: int) -> None:
    query, key, value = random(1, n_heads, 11, SIZE), random(1, 2, 11, SIZE), random(1, 2, 11, SIZE)
    found = SideBySide(LENGTHS).attend(0, query, key, value, None)
    for part in (slice(0, 3), slice(3, 10), slice(10, 11)):
        alone = query[:, :, part], key[:, :, part], value[:, :, part]
        expected = scaled_dot_product_attention(*alone, is_causal=True, enable_gqa=True)
        assert torch.allclose(found[:, :, part], expected, atol=1e-6)


@pytest.mark.parametrize("n_heads", [2, 6])
@pytest.mark.parametrize("kept", [[0, 1, 2, 3, 4, 5], [1, 4], [2, 3, 5]])
@pytest.mark.parametrize("scale", [None, 1.5])
def test_rows_attend_to_their_prompt_and_to_themselves(n_heads: int, kept: list[int], scale: float | None) -> None:
    cache = read()
    prefixes = Prefixes(read(), LENGTHS, OWNERS)
    prefixes.keep(torch.tensor(kept))
    query = 20 * random(len(kept), n_heads, 1, SIZE)  # some weights vanish
    key, value = random(len(kept), 2, 4, SIZE), random(len(kept), 2, 4, SIZE)
    for layer in range(2):
        found = prefixes.attend(layer, query, key, value, scale)
        for row, owner in enumerate(OWNERS[kept].tolist()):
            keys, values = (
                torch.cat([of_prompt, own[row]], 1)
                for of_prompt, own in zip(repeated(cache, layer, owner), (key, value), strict=True)
            )
            expected = scaled_dot_product_attention(query[row], keys, values, enable_gqa=True, scale=scale)
            assert torch.allclose(found[row], expected, atol=1e-5)


def test_prompts_without_rows_are_dropped() -> None:
    prefixes = Prefixes(read(), LENGTHS, OWNERS)
    prefixes.keep(torch.tensor([0, 1, 4]))
    assert [len(layer) for layer in prefixes.keys + prefixes.values] == [2] * 4
    assert prefixes.owners.tolist() == [0, 0, 1]
