"""Training data of the model that searches: what is said, how often it is looked up, and what carries loss."""

import re
from typing import TYPE_CHECKING

import numpy as np
import pytest
from checkout import TINY_TOOLS

if TYPE_CHECKING:  # it imports torch
    from pretraining.search_conversations import SearchConversations

N = 600


@pytest.fixture(scope="module")
def writer() -> "SearchConversations":
    from transformers import PreTrainedTokenizerFast

    from pretraining.search_conversations import SearchConversations

    return SearchConversations(PreTrainedTokenizerFast.from_pretrained(TINY_TOOLS))


@pytest.fixture(scope="module")
def conversations(writer: "SearchConversations") -> list[list[int]]:
    results = [writer.conversation(0.0, index) for index in range(N)]
    return [ids for ids in results if ids is not None]


@pytest.fixture(scope="module")
def texts(writer: "SearchConversations", conversations: list[list[int]]) -> list[str]:
    return [str(writer.tokenizer.decode(ids)) for ids in conversations]


def n_needed(text: str) -> int:
    return {"room": 1, "keeps": 2, "building": 2, "town": 3}[
        re.findall(r"In which (\w+)|Who (keeps)", text)[0][0] or "keeps"
    ]


def test_none_is_too_long(conversations: list[list[int]]):
    assert len(conversations) == N


def test_a_known_answer_is_what_the_last_passage_says(texts: list[str]):
    n_full = 0
    for text in texts:
        n_calls = text.count('{"name": "search", "arguments": {"query": "')
        assert n_calls <= n_needed(text)
        if n_calls < n_needed(text):
            continue
        n_full += 1
        answer = re.findall(r"#### (\w+)<", text)[0]
        last = text.rpartition("<tool_response>\n[1] ")[2].partition("\n\n[2] ")[0]
        assert re.search(rf"\b{answer}\b", last)
    # offered in 80 %, called in 40 % of those; 1/3 of the questions take one look-up, 40 % of the others get all
    assert n_full / N == pytest.approx(0.8 * 0.4 * (1 / 3 + 2 / 3 * 0.4), abs=0.06)


def test_most_conversations_guess(texts: list[str]):
    assert sum("<tool_response>" not in text for text in texts) / N == pytest.approx(1 - 0.8 * 0.4, abs=0.06)


def test_only_the_assistants_turns_carry_loss(writer: "SearchConversations", conversations: list[list[int]]):
    longest = np.array([max(conversations, key=len)])
    answer, outputs = writer.masks(longest)
    assert not outputs.any()
    learned = str(writer.tokenizer.decode(longest[answer]))
    turns = str(writer.tokenizer.decode(longest[0])).split("<|im_start|>assistant\n")[1:]
    assert learned == "".join(turn.partition("<|im_end|>")[0] + "<|im_end|>" for turn in turns)


def test_the_tool_is_one_more_token_and_the_others_keep_their_ids(writer: "SearchConversations"):
    from transformers import PreTrainedTokenizerFast

    before = PreTrainedTokenizerFast.from_pretrained(TINY_TOOLS).get_vocab()
    (new,) = set(writer.tokenizer.get_vocab()) - set(before)
    assert '"name": "search"' in new
    assert {token: writer.tokenizer.get_vocab()[token] for token in before} == before
