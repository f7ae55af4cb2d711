"""The embedded model's tokenizer: any text round-trips, and what compact prompts are made of is one token each."""

import hashlib
import random
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from checkout import TINY
from factories import make_task

from arc_refinery.arc.tasks import Pair
from arc_refinery.barc.generator import ProblemDifficulty, generate_problem, program_body
from arc_refinery.domains.arc import prompts

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

CONVERSATION = [
    {"role": "user", "content": "What is it?"},
    {"role": "assistant", "content": "a guess"},
    {"role": "user", "content": "\nNo."},
]


@pytest.fixture(scope="module")
def tokenizer() -> "PreTrainedTokenizerFast":
    from pretraining.tokenizer import build_tokenizer

    return build_tokenizer(2048)


@pytest.fixture(scope="module")
def fragments() -> list[str]:
    from pretraining.tokenizer import fragments

    return fragments()


def ids_of(tokenizer: "PreTrainedTokenizerFast", text: str) -> list[int]:
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "plain words, punctuation: (a + b) * c != d",
        "tabs\tand\nnewlines\r\n\n\n  and  runs   of spaces ",
        "Grüße, 猫 и кошка, 🐈‍⬛, \u202eright to left\u202c, e\u0301",
        "zero \x00 and \x7f and \ufeff",
        "def transform(grid):\n    return np.rot90(grid, 2)\n",
        "half of a fragment: ```pyth",
    ],
)
def test_text_round_trips(tokenizer: "PreTrainedTokenizerFast", text: str) -> None:
    assert tokenizer.decode(ids_of(tokenizer, text)) == text


def test_random_unicode_round_trips(tokenizer: "PreTrainedTokenizerFast") -> None:
    rng = random.Random(0)
    for _ in range(200):
        codes = [
            rng.choice((rng.randrange(128), rng.randrange(0xD800), rng.randrange(0xE000, 0x110000))) for _ in "x" * 30
        ]
        text = "".join(map(chr, codes))
        assert tokenizer.decode(ids_of(tokenizer, text)) == text


def test_fragments_glued_together_round_trip(tokenizer: "PreTrainedTokenizerFast", fragments: list[str]) -> None:
    rng = random.Random(0)
    for _ in range(200):
        text = "".join(rng.choices(fragments, k=8))
        assert tokenizer.decode(ids_of(tokenizer, text)) == text


def test_every_fragment_is_one_token(tokenizer: "PreTrainedTokenizerFast", fragments: list[str]) -> None:
    assert [text for text in fragments if len(ids_of(tokenizer, text)) != 1] == []


def test_fragments_are_distinct_and_longer_than_a_character(fragments: list[str]) -> None:
    assert len(set(fragments)) == len(fragments)
    assert min(map(len, fragments)) > 1


def test_the_vocabulary_is_bytes_special_tokens_and_fragments(
    tokenizer: "PreTrainedTokenizerFast", fragments: list[str]
) -> None:
    assert len(tokenizer) == 256 + 4 + len(fragments)
    assert sorted(tokenizer.get_vocab().values()) == list(range(len(tokenizer)))


@pytest.mark.parametrize("special", ["<|end|>", "<|pad|>", "<|user|>", "<|assistant|>"])
def test_special_tokens_are_one_token(tokenizer: "PreTrainedTokenizerFast", special: str) -> None:
    assert ids_of(tokenizer, special) == [tokenizer.convert_tokens_to_ids(special)]


def test_end_and_padding_are_different_tokens(tokenizer: "PreTrainedTokenizerFast") -> None:
    assert (tokenizer.eos_token, tokenizer.pad_token) == ("<|end|>", "<|pad|>")
    assert tokenizer.eos_token_id != tokenizer.pad_token_id


def test_a_grid_is_one_token_a_cell_and_one_a_row_under_its_shape(tokenizer: "PreTrainedTokenizerFast") -> None:
    grid = np.array([[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 0, 1]], np.uint8)
    tokens = [tokenizer.decode([number]) for number in ids_of(tokenizer, prompts.COMPACT.notation.write(grid))]
    assert tokens == ["3x", "4", "\n1 ", *"0123", "\n2 ", *"4567", "\n3 ", *"8901"]


def test_the_largest_grid_is_one_token_a_cell_too(tokenizer: "PreTrainedTokenizerFast") -> None:
    grid = np.random.default_rng(0).integers(0, 10, (30, 30)).astype(np.uint8)
    # "30x", "3", "0" for the shape, then 30 rows of a number and 30 cells
    assert len(ids_of(tokenizer, prompts.COMPACT.notation.write(grid))) == 3 + 30 * (1 + 30)


def test_a_first_turn_takes_a_token_a_cell_a_row_and_a_side_and_three_a_grid(
    tokenizer: "PreTrainedTokenizerFast",
) -> None:
    before, wanted = np.zeros((2, 3), np.uint8), np.ones((4, 5), np.uint8)
    (message,) = prompts.first_turn(make_task(train=(Pair(before, wanted),) * 2, test=()), prompts.COMPACT)
    # a pair: "\ninput ", "2x", "3", 2 rows, 6 cells; "\noutput ", "4x", "5", 4 rows, 20 cells
    assert len(ids_of(tokenizer, message["content"])) == 2 * ((3 + 2 + 6) + (3 + 4 + 20))


def test_an_answer_takes_at_most_about_twelve_tokens(tokenizer: "PreTrainedTokenizerFast") -> None:
    lone: list[int] = []
    composed: list[int] = []
    for number in range(150):
        _, statements = generate_problem(ProblemDifficulty(compositions=0.5), 2, "pretraining", 3, number)
        n_tokens = len(ids_of(tokenizer, prompts.compact_answer(program_body(statements)) + "<|end|>"))
        (lone if len(statements) == 1 else composed).append(n_tokens)
    assert max(lone) <= 12
    assert np.mean(np.array(composed) <= 12) > 0.9


def test_the_chat_template_renders_a_conversation(tokenizer: "PreTrainedTokenizerFast") -> None:
    expected = "<|user|>What is it?<|assistant|>a guess<|end|><|user|>\nNo."
    assert tokenizer.apply_chat_template(CONVERSATION, tokenize=False) == expected


def test_the_generation_prompt_is_where_the_model_answers(tokenizer: "PreTrainedTokenizerFast") -> None:
    text = tokenizer.apply_chat_template(CONVERSATION, tokenize=False, add_generation_prompt=True)
    assert text == "<|user|>What is it?<|assistant|>a guess<|end|><|user|>\nNo.<|assistant|>"


def test_the_template_marks_what_the_assistant_wrote_for_training(tokenizer: "PreTrainedTokenizerFast") -> None:
    rendered = tokenizer.apply_chat_template(CONVERSATION, return_dict=True, return_assistant_tokens_mask=True)
    ids, mask = rendered["input_ids"], rendered["assistant_masks"]
    assert tokenizer.decode([number for number, mark in zip(ids, mask, strict=True) if mark]) == "a guess<|end|>"


def test_a_saved_tokenizer_is_the_same(tokenizer: "PreTrainedTokenizerFast", tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert loaded.get_vocab() == tokenizer.get_vocab()
    assert loaded.apply_chat_template(CONVERSATION, tokenize=False) == tokenizer.apply_chat_template(
        CONVERSATION, tokenize=False
    )


def test_the_shipped_tokenizer_is_the_one_that_is_built(tokenizer: "PreTrainedTokenizerFast") -> None:
    from transformers import AutoTokenizer

    shipped = AutoTokenizer.from_pretrained(TINY)
    assert shipped.get_vocab() == tokenizer.get_vocab()
    assert shipped.chat_template == tokenizer.chat_template
    assert (shipped.eos_token_id, shipped.pad_token_id) == (tokenizer.eos_token_id, tokenizer.pad_token_id)
    assert (shipped.model_max_length, shipped.padding_side) == (2048, "left")


def test_the_tokenizer_keeps_its_bytes(tokenizer: "PreTrainedTokenizerFast", tmp_path: Path) -> None:
    """The model's weights know its ids: no text and no order of fragments may change."""
    tokenizer.save_pretrained(tmp_path)
    digest = hashlib.sha256((tmp_path / "tokenizer.json").read_bytes()).hexdigest()
    assert digest == "f5c44d9665ea7e037284c059ef22ed2c027f58ea0bcdca843bc9bb146989f8bb"


def test_the_fragments_are_the_embedded_models_wording() -> None:
    from pretraining.tokenizer import PROMPT_FRAGMENTS

    texts = "".join(asdict(prompts.COMPACT.feedback).values()) + prompts.COMPACT.pair + prompts.compact_answer("")
    assert [fragment for fragment in PROMPT_FRAGMENTS if fragment not in texts] == []
