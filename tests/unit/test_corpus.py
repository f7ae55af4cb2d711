"""Conversations that the embedded models are trained on."""

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

if TYPE_CHECKING:  # they import torch
    from transformers import PreTrainedTokenizerFast

    from pretraining.corpus import Batch, Corpus

BATCH_TOKENS = 2048
LAST = 95  # one of 100 chunks, in the last stage of a curriculum


@pytest.fixture(scope="module")
def tokenizer() -> "PreTrainedTokenizerFast":
    from pretraining.tokenizer import build_tokenizer

    return build_tokenizer(2048)


@pytest.fixture(scope="module")
def corpus(tokenizer: "PreTrainedTokenizerFast") -> "Corpus":
    return corpus_of(tokenizer, seed=3)


@pytest.fixture(scope="module", params=["REFINING", "READING"])
def refining(tokenizer: "PreTrainedTokenizerFast", request: pytest.FixtureRequest) -> "Corpus":
    return corpus_of(tokenizer, seed=3, curriculum=request.param)


def corpus_of(tokenizer: "PreTrainedTokenizerFast", seed: int, curriculum: str = "FIRST_TURNS") -> "Corpus":
    from pretraining import corpus as module
    from pretraining.corpus import Corpus, TaskConversations

    writer = TaskConversations(tokenizer, getattr(module, curriculum))
    return Corpus(writer, seed=seed, n_chunks=100, chunk_size=16, batch_tokens=BATCH_TOKENS)


@pytest.fixture(scope="module")
def early(corpus: "Corpus") -> "list[Batch]":
    return [batch for chunk in range(3) for batch in corpus[chunk]]


@pytest.fixture(scope="module")
def late(refining: "Corpus") -> "list[Batch]":
    return [batch for chunk in range(LAST, LAST + 3) for batch in refining[chunk]]


def rows(batches: "list[Batch]") -> list[tuple[list[int], list[bool], list[bool]]]:
    return [
        (ids.tolist(), answer.tolist(), outputs.tolist())
        for batch in batches
        for ids, answer, outputs in zip(batch.ids, batch.answer, batch.outputs, strict=True)
    ]


def marked(tokenizer: "PreTrainedTokenizerFast", ids: list[int], mask: list[bool]) -> str:
    return str(tokenizer.decode([number for number, is_marked in zip(ids, mask, strict=True) if is_marked]))


def unpadded(tokenizer: "PreTrainedTokenizerFast", ids: list[int]) -> str:
    return str(tokenizer.decode(ids)).replace("<|pad|>", "")


def test_an_item_is_the_same_each_time(corpus: "Corpus", tokenizer: "PreTrainedTokenizerFast") -> None:
    import torch

    first, again = corpus[LAST], corpus_of(tokenizer, seed=3)[LAST]
    assert len(first) == len(again)
    for row, two in zip(first, again, strict=True):
        assert torch.equal(row.ids, two.ids)
        assert torch.equal(row.answer, two.answer)
        assert torch.equal(row.outputs, two.outputs)


def test_items_and_seeds_differ(corpus: "Corpus", tokenizer: "PreTrainedTokenizerFast") -> None:
    def conversations(batches: "list[Batch]") -> set[tuple[int, ...]]:
        return {tuple(ids) for ids, _, _ in rows(batches)}

    other = conversations(corpus[1]) | conversations(corpus_of(tokenizer, seed=4)[0])
    assert conversations(corpus[0]).isdisjoint(other)


def test_a_chunk_holds_chunk_size_conversations(corpus: "Corpus") -> None:
    assert len(corpus) == 100
    assert [len(rows(corpus[chunk])) for chunk in (0, LAST)] == [16, 16]


def test_batches_hold_at_most_batch_tokens_padded_tokens(early: "list[Batch]", late: "list[Batch]") -> None:
    for batch in early + late:
        assert batch.ids.numel() <= BATCH_TOKENS
        assert batch.ids.shape == batch.answer.shape == batch.outputs.shape
        assert batch.ids.shape[1] % 32 == 0


def test_a_batch_is_padded_no_further_than_its_longest_conversation_asks(
    early: "list[Batch]", late: "list[Batch]", tokenizer: "PreTrainedTokenizerFast"
) -> None:
    for batch in early + late:
        longest = int((batch.ids != tokenizer.pad_token_id).sum(1).max())
        assert batch.ids.shape[1] - longest < 32


def test_conversations_get_longer_in_later_stages(corpus: "Corpus", tokenizer: "PreTrainedTokenizerFast") -> None:
    def longest(chunk: int) -> int:
        return max(sum(1 for number in ids if number != tokenizer.pad_token_id) for ids, _, _ in rows(corpus[chunk]))

    assert longest(0) <= 384 < longest(LAST) <= 1024


def test_answer_marks_the_last_assistant_turn_with_its_end_token(
    early: "list[Batch]", late: "list[Batch]", tokenizer: "PreTrainedTokenizerFast"
) -> None:
    for ids, answer, _ in rows(early + late):
        text = unpadded(tokenizer, ids)
        assert marked(tokenizer, ids, answer) == text.rpartition("<|assistant|>")[2]
        assert text.endswith("    return grid\n```<|end|>")
        last = max(index for index, number in enumerate(ids) if number != tokenizer.pad_token_id)
        assert answer[last - sum(answer) + 1 : last + 1] == [True] * sum(answer)  # at that place and nowhere else


def test_outputs_mark_the_output_grids_of_the_first_user_turn(
    early: "list[Batch]", late: "list[Batch]", tokenizer: "PreTrainedTokenizerFast"
) -> None:
    for ids, _, outputs in rows(early + late):
        first_turn = unpadded(tokenizer, ids).partition("<|assistant|>")[0]
        grids = re.findall(r"\noutput (\d+x\d+(?:\n\d+ \d+)+)", first_turn)
        assert len(grids) == first_turn.count("\noutput ") >= 2
        assert marked(tokenizer, ids, outputs) == "".join(grids)
        marked_places = np.flatnonzero(outputs)
        assert marked_places.max() < ids.index(tokenizer.convert_tokens_to_ids("<|assistant|>"))


def test_padding_is_on_the_right_and_carries_no_loss(
    early: "list[Batch]", late: "list[Batch]", tokenizer: "PreTrainedTokenizerFast"
) -> None:
    n_padded = 0
    for batch in early + late:
        padding = batch.ids == tokenizer.pad_token_id
        assert not (padding & (batch.answer | batch.outputs)).any()
        assert (padding.long().diff(dim=1) >= 0).all()
        n_padded += int(padding.sum())
    assert n_padded > 0


def test_no_token_carries_both_losses(early: "list[Batch]", late: "list[Batch]") -> None:
    assert not any((batch.answer & batch.outputs).any() for batch in early + late)


def test_only_the_refining_corpus_has_second_turns(
    early: "list[Batch]", late: "list[Batch]", tokenizer: "PreTrainedTokenizerFast"
) -> None:
    def n_turns(batches: "list[Batch]") -> list[int]:
        return [ids.count(tokenizer.convert_tokens_to_ids("<|assistant|>")) for ids, _, _ in rows(batches)]

    assert set(n_turns(early)) == {1}
    assert set(n_turns(late)) == {1, 2}


def pairs_shown(text: str) -> list[tuple[list[list[int]], list[list[int]]]]:
    """The pairs of a turn, read from its text: rows are numbered and digits are cells."""

    def grid(lines: str) -> list[list[int]]:
        return [[int(cell) for cell in line.split(" ")[1]] for line in lines.splitlines()[1:]]

    pairs = re.findall(r"\ninput (\d+x\d+(?:\n\d+ \d+)+)\noutput (\d+x\d+(?:\n\d+ \d+)+)", text)
    return [(grid(before), grid(wanted)) for before, wanted in pairs]


def given_by(answer: str, grid: list[list[int]]) -> list[list[int]] | None:
    """Return the output of an answer's program, or None if it raises."""
    program = answer.removeprefix("```python").partition("```")[0]
    namespace: dict[str, Any] = {}
    exec(program.replace("from common import", "from arc_refinery.barc.common import"), namespace)
    try:
        output: list[list[int]] = np.asarray(namespace["transform"](np.array(grid))).tolist()
    except (ValueError, IndexError, TypeError):
        return None
    return output


def second_turns(corpus: "Corpus", chunk: int, tokenizer: "PreTrainedTokenizerFast") -> list[tuple[str, str, str, str]]:
    """First prompt, wrong answer, feedback and last answer of the conversations with two turns."""
    texts = [unpadded(tokenizer, ids) for some in range(4) for ids, _, _ in rows(corpus[chunk + some])]
    turns = []
    for text in texts:
        if text.count("<|assistant|>") == 2:
            first, middle, last = text.split("<|assistant|>")
            wrong, feedback = middle.split("<|end|><|user|>")
            turns.append((first, wrong, feedback, last))
    return turns


@pytest.mark.parametrize("chunk", [10, LAST])
def test_a_second_turn_leads_from_the_given_grids_to_the_expected_ones(
    refining: "Corpus", tokenizer: "PreTrainedTokenizerFast", chunk: int
) -> None:
    turns = second_turns(refining, chunk, tokenizer)
    assert len(turns) > 10
    for first, wrong, feedback, _ in turns:
        assert feedback.startswith("Executing your program gave:\ninput ")
        assert feedback.endswith("\nWrite a corrected program.")
        task = pairs_shown(first)
        assert pairs_shown(feedback) == [(given_by(wrong, grid), wanted) for grid, wanted in task]
        assert any(given_by(wrong, grid) != wanted for grid, wanted in task)


def test_second_turns_that_do_not_mend_insist(refining: "Corpus", tokenizer: "PreTrainedTokenizerFast") -> None:
    for first, wrong, _, answer in second_turns(refining, LAST, tokenizer):
        is_right = all(given_by(answer, grid) == wanted for grid, wanted in pairs_shown(first))
        assert is_right != (answer == f"{wrong}<|end|>")


def test_second_turns_end_in_the_right_program_and_in_the_last_stage_seldom(
    refining: "Corpus", tokenizer: "PreTrainedTokenizerFast"
) -> None:
    def right(chunk: int) -> list[bool]:
        return [
            all(given_by(answer, grid) == wanted for grid, wanted in pairs_shown(first))
            for first, _, _, answer in second_turns(refining, chunk, tokenizer)
        ]

    early, late = right(10), right(LAST)
    assert all(early)
    assert 0 < sum(late) < 0.5 * len(late)  # 25 % or 35 % of them


def test_the_last_curriculum_insists_in_most_second_turns_from_its_start(tokenizer: "PreTrainedTokenizerFast") -> None:
    corpus = corpus_of(tokenizer, seed=3, curriculum="INSISTING")
    turns = [turn for chunk in (0, 4, 8) for turn in second_turns(corpus, chunk, tokenizer)]
    right = [
        all(given_by(answer, grid) == wanted for grid, wanted in pairs_shown(first)) for first, _, _, answer in turns
    ]
    insisting = [answer == f"{wrong}<|end|>" for _, wrong, _, answer in turns]
    assert len(turns) > 60
    assert all(mends != insists for mends, insists in zip(right, insisting, strict=True))
    assert 0.05 < sum(right) / len(turns) < 0.3  # 15 % are drawn
