"""Which tokens carry loss, token by token, against a reading of the ids alone: in episodes and in demonstrations."""

from typing import Any

import pytest
from written_turns import (
    END,
    NO_THOUGHT,
    loss_mask,
    make_renderer,
    questions,
    tokens_of,
)

from arc_refinery.sandbox import Executor
from arc_refinery.tool_use.config import Generation
from arc_refinery.tool_use.episodes.episodes import Rollout, run_episodes
from arc_refinery.tool_use.tools.toolbox import Toolbox
from arc_refinery.tool_use.training.demonstrations import demonstration

both = pytest.mark.parametrize("thinking", [True, False])


def test_one_episode_by_hand():
    """A call that is cut after eight tokens, its result, an answer: each token with what it is."""
    renderer = make_renderer(True, ())
    tokenizer = renderer.tokenizer
    turns = iter([[renderer.ids("<tool_call>\n1234567")], [renderer.ids(f"42{END}")]])
    episode = Rollout(renderer.ids(renderer.prompt("9?")), Toolbox(()))
    limits = Generation(max_turn_tokens=8, max_episode_tokens=200)
    run_episodes([episode], lambda contexts: (next(turns), None), renderer, limits, frozenset(renderer.ids(END)))
    result = [tokenizer.decode([token]) for token in renderer.ids(f"\n{episode.results[0].text}\n")]
    prompt = ["<|im_start|>", "user", "\n", "9", "?", END, "\n", "<|im_start|>", "assistant", "\n"]
    cut_turn = ["<tool_call>", "\n", "1", "2", "3", "4", "5", "6"]
    reply = [END, "\n", "<|im_start|>", "user", "\n", "<tool_response>", *result, "</tool_response>", END, "\n"]
    reply += ["<|im_start|>", "assistant", "\n"]
    answer = ["4", "2", END]
    ids = episode.prompt_ids + episode.completion_ids
    by_hand = [0] * len(prompt) + [1] * len(cut_turn) + [0] * len(reply) + [1] * len(answer)
    assert [tokenizer.decode([token]) for token in ids] == prompt + cut_turn + reply + answer
    assert [0] * len(prompt) + episode.mask == by_hand
    assert loss_mask(ids, tokenizer, True, longest_turn=8) == by_hand


@both
def test_demonstrations_have_the_mask_of_trls_template_for_qwen3(thinking: bool, executor: Executor):
    """But for three things: it counts the newline behind an end, the empty thought, and ends with a newline."""
    from trl.chat_template_utils import qwen3_training_chat_template

    renderer = make_renderer(thinking)
    tokenizer = renderer.tokenizer
    newline, nothing_thought = renderer.ids("\n"), renderer.ids(NO_THOUGHT)
    for question in questions(16):
        messages = demonstration(question, Toolbox(executor=executor), calls=question.domain == "gsm8k")
        assert messages is not None
        if not thinking:
            messages = [message | {"content": message["content"].rpartition("</think>\n\n")[2]} for message in messages]
        whole: Any = tokenizer.apply_chat_template(
            messages,
            tools=list(renderer.schemas),
            chat_template=qwen3_training_chat_template,
            return_dict=True,
            return_assistant_tokens_mask=True,
        )
        ids, mask = list(whole["input_ids"]), list(whole["assistant_masks"])
        for index in range(len(ids)):
            if ids[index - 1] == renderer.stop_id:
                assert [ids[index]] == newline
                mask[index] = 0
            if not thinking and ids[index : index + len(nothing_thought)] == nothing_thought:
                mask[index : index + len(nothing_thought)] = [0] * len(nothing_thought)
        assert tokens_of(renderer, renderer.segments(messages)) == (ids[:-1], mask[:-1])
        assert mask[:-1] == loss_mask(ids[:-1], tokenizer, thinking)
