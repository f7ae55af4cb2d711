"""Attention to prompts that are kept once, against SDPA on prompts that are repeated."""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import DynamicCache

from arc_refinery.models.shared_attention import Continued, SideBySide
from arc_refinery.sampling.prefixes import Prefixes

pytestmark = [pytest.mark.model, pytest.mark.usefixtures("on_a_cpu")]  # a few numbers

LENGTHS = [3, 7, 1]
OWNERS = torch.tensor([0, 0, 1, 2, 2, 2])
SIZE = 8


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def random(*shape: int) -> Tensor:
    return torch.randn(*shape)


def read(dtype: torch.dtype = torch.float32) -> DynamicCache:
    """Keys and values of two layers, three prompts, two heads."""
    cache = DynamicCache()
    for layer in range(2):
        keys, values = (random(1, 2, sum(LENGTHS), SIZE).to(dtype) for _ in range(2))
        cache.update(keys, values, layer)
    return cache


@pytest.mark.parametrize("n_heads", [2, 6])
@pytest.mark.parametrize("scale", [None, 1.5])
def test_each_prompt_attends_to_itself(n_heads: int, scale: float | None) -> None:
    query, key, value = random(1, n_heads, 11, SIZE), random(1, 2, 11, SIZE), random(1, 2, 11, SIZE)
    result = SideBySide(LENGTHS).attend(0, query, key, value, scale)
    for part in (slice(0, 3), slice(3, 10), slice(10, 11)):
        alone = query[:, :, part], key[:, :, part], value[:, :, part]
        expected = scaled_dot_product_attention(*alone, is_causal=True, enable_gqa=True, scale=scale)
        assert torch.allclose(result[:, :, part], expected, atol=1e-6)


@pytest.mark.parametrize("n_heads", [2, 6])
@pytest.mark.parametrize("scale", [None, 1.5])
def test_a_text_attends_to_what_was_read_of_it_before(n_heads: int, scale: float | None) -> None:
    """Texts of 3, 7 and 1 tokens, of which 2, 6 and none were read before."""
    query, key, value = random(1, n_heads, 11, SIZE), random(1, 2, 11, SIZE), random(1, 2, 11, SIZE)
    whole = SideBySide(LENGTHS).attend(0, query, key, value, scale)
    before = [[(key[0, :, first:last], value[0, :, first:last])] for first, last in ((0, 2), (3, 9))]
    new = [2, 9, 10]
    result = Continued([1, 1, 1], [*before, []]).attend(0, query[:, :, new], key[:, :, new], value[:, :, new], scale)
    assert torch.allclose(result, whole[:, :, new], atol=1e-6)
    before = [[(key[0, :, :1], value[0, :, :1])], [], []]  # of the first text, one of three
    new = [*range(1, 11)]
    result = Continued([2, 7, 1], before).attend(0, query[:, :, new], key[:, :, new], value[:, :, new], scale)
    assert torch.allclose(result, whole[:, :, new], atol=1e-6)


def worst(
    dtype: torch.dtype,
    n_heads: int = 2,
    rows: list[int] | None = None,
    scale: float | None = None,
    shift: float = 0.0,
) -> float:
    """The largest difference from float64 on prompts that are repeated, relative to the largest value.

    `shift` is added to all keys, and so to all scores, as the bias of a layer may be.
    """
    rows = rows or list(range(len(OWNERS)))
    cache = read(dtype)
    for layer in cache.layers:
        layer.keys += shift
    copied = [(layer.keys.clone(), layer.values.clone()) for layer in cache.layers]
    prefixes = Prefixes(cache, LENGTHS, OWNERS)
    assert not cache.layers
    prefixes.select_rows(torch.tensor(rows))
    query = 20 * random(len(rows), n_heads, 1, SIZE).abs().to(dtype)  # some weights vanish
    key, value = (random(len(rows), 2, 4, SIZE) + shift).to(dtype), random(len(rows), 2, 4, SIZE).to(dtype)
    differences = []
    for layer, (keys, values) in enumerate(copied):
        result = prefixes.attend(layer, query, key, value, scale)
        assert result.dtype == dtype
        for row, owner in enumerate(OWNERS[rows].tolist()):
            start = sum(LENGTHS[:owner])
            own = slice(start, start + LENGTHS[owner])
            exact = scaled_dot_product_attention(
                query[row].double(),
                torch.cat([keys[0, :, own], key[row]], 1).double(),
                torch.cat([values[0, :, own], value[row]], 1).double(),
                enable_gqa=True,
                scale=scale,
            )
            differences.append(((result[row] - exact).abs().max() / exact.abs().max()).item())
    return max(differences)


@pytest.mark.parametrize("n_heads", [2, 6])
@pytest.mark.parametrize("rows", [[0, 1, 2, 3, 4, 5], [1, 4], [2, 3, 5]])
@pytest.mark.parametrize("scale", [None, 1.5])
def test_rows_attend_to_their_prompt_and_to_themselves(n_heads: int, rows: list[int], scale: float | None) -> None:
    assert worst(torch.float32, n_heads, rows, scale) < 1e-4


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shift", [0.0, 8.0])
def test_16_bits_are_as_exact_as_their_values(dtype: torch.dtype, shift: float) -> None:
    """bfloat16 has 8 bits, a rounding error of 0.4 %; scores in bfloat16 would be wrong by whole units here."""
    assert worst(dtype, shift=shift) < 0.01


def test_prompts_without_rows_are_dropped() -> None:
    prefixes = Prefixes(read(), LENGTHS, OWNERS)
    prefixes.select_rows(torch.tensor([0, 1, 4]))
    assert [len(layer) for layer in prefixes.keys + prefixes.values] == [2] * 4
    assert prefixes.owners.tolist() == [0, 0, 1]
