"""The decoding loop that reads prompts once and no completion after its end, against that of transformers."""

from typing import Any

import pytest
import torch
from small_networks import CONFIGS, network

from arc_refinery.models.shared_attention import enable_layouts
from arc_refinery.sampling.rows import sample_rows

pytestmark = [pytest.mark.model, pytest.mark.usefixtures("on_a_cpu")]  # weights of a few numbers

PROMPTS = [[5, 6, 7, 8, 9, 10], [11, 12, 13], [14]]
END, PADDING, LONGEST = [2, 3, 4, 5, 6], 0, 12


def generated(model: Any, numbers: list[int], **settings: Any) -> tuple[list[list[int]], float]:
    """Continue prompts; return all tokens, and the next random number."""
    prompts = [PROMPTS[number] for number in numbers]
    width = max(map(len, prompts))
    ids = torch.tensor([[PADDING] * (width - len(prompt)) + prompt for prompt in prompts])
    mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    settings = {"eos_token_id": END, "pad_token_id": PADDING, "max_new_tokens": LONGEST} | settings
    torch.manual_seed(1)
    sampled = model.generate(input_ids=ids, attention_mask=mask, **settings)
    return sampled.tolist(), torch.rand(1).item()


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize(
    "settings",
    [
        {"do_sample": True, "top_k": 0},
        {"do_sample": True, "top_k": 0, "top_p": 0.9, "temperature": 0.7, "repetition_penalty": 1.2},
        {"do_sample": False},
    ],
)
def test_the_same_tokens_and_random_numbers_as_by_the_library(name: str, settings: dict[str, Any]) -> None:
    before, after = network(CONFIGS[name]), network(CONFIGS[name])
    assert not enable_layouts(after)
    numbers = [0, 1, 0, 2, 0, 1, 1, 0, 2]  # equal prompts need not be neighbours
    expected = generated(before, numbers, **settings)
    assert generated(after, numbers, **settings, custom_generate=sample_rows) == expected
    if settings == {"do_sample": True, "top_k": 0}:
        lengths = [len([token for token in row[6:] if token]) for row in expected[0]]
        assert len(set(lengths)) > 2, "rows end at different times"


@pytest.mark.parametrize("settings", [{}, {"top_p": 0.6, "temperature": 0.7, "repetition_penalty": 1.5}])
def test_a_large_vocabulary_has_the_same_distribution(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("arc_refinery.sampling.rows.SMALL_VOCABULARY", 4)
    model = network(CONFIGS["qwen3"])
    enable_layouts(model)
    n = 4000
    settings = {"do_sample": True, "top_k": 0, "max_new_tokens": 1, "pad_token_id": PADDING} | settings
    ids = torch.tensor([PROMPTS[0]] * n)
    arguments = settings | {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    scores = model.generate(**arguments, output_scores=True, return_dict_in_generate=True).scores[0]
    torch.manual_seed(1)
    tokens = model.generate(**arguments, custom_generate=sample_rows)[:, -1]
    expected = scores[0].softmax(-1)
    assert (expected == 0).any() == ("top_p" in settings)
    counts = tokens.bincount(minlength=len(expected))
    assert not counts[expected == 0].any()
    deviations = (n * expected * (1 - expected)).sqrt()
    assert ((counts - n * expected).abs() <= 4 * deviations).all()


def test_prompts_are_read_once_and_rows_until_they_end() -> None:
    model = network(CONFIGS["qwen3"])
    enable_layouts(model)
    read: list[tuple[int, ...]] = []
    model.model.register_forward_pre_hook(
        lambda _, __, named: read.append(tuple(named["input_ids"].shape)), with_kwargs=True
    )
    rows, _ = generated(model, [0, 0, 1, 2, 2, 2], do_sample=True, top_k=0, custom_generate=sample_rows)
    n_tokens = [next((n for n, token in enumerate(row[6:], 1) if token in END), LONGEST) for row in rows]
    assert read[0] == (1, 6 + 3 + 1)
    assert read[1:] == [(n, 1) for column in range(1, max(n_tokens)) if (n := sum(n > column for n in n_tokens))]
