"""Which tokens carry loss in each format of calls, against a reading of the ids alone."""

import random
from pathlib import Path
from typing import NamedTuple

import pytest
from call_format_models import CHATML_END, make_renderer
from written_turns import CALLS, HEADER, LIMITS, NO_THOUGHT, OTHER_END, loss_mask, questions, tokens_of, turn

from arc_refinery.sandbox import Executor
from arc_refinery.tool_use.episodes.episodes import Rollout, run_episodes
from arc_refinery.tool_use.episodes.rendering import ToolRenderer
from arc_refinery.tool_use.tools.toolbox import Toolbox
from arc_refinery.tool_use.training.demonstrations import conversation

XML_CALLS = (
    "<tool_call>\n<function=calculator>\n<parameter=expression>\n12*3\n</parameter>\n</function>\n</tool_call>",
    "<tool_call>\n<function=calculator>\n<parameter=expression>\n1/0\n</parameter>\n</function>\n</tool_call>",
    "<tool_call>\n<function=read_file>\n<parameter=path>\nnotes.txt\n</parameter>\n</function>\n</tool_call>",
    "<tool_call>\n<function=calculator>\n<parameter=x>\n1\n</parameter>\n</function>\n</tool_call>",
    "<tool_call>\n<function=search>\n</function>\n</tool_call>",
    "<tool_call>\n12*3\n</tool_call>",
    "<tool_call>\n",
)


class Case(NamedTuple):
    template: str
    thinking: bool
    header: str  # beginning of a turn, up to where the model writes
    calls: tuple[str, ...]
    ends: tuple[str, ...]


CHATML_ENDS = (CHATML_END, CHATML_END, OTHER_END)
CASES = [
    Case("qwen3", True, HEADER, CALLS, CHATML_ENDS),
    Case("qwen3", False, HEADER + NO_THOUGHT, CALLS, CHATML_ENDS),
    Case("qwen2_5", False, HEADER, CALLS, CHATML_ENDS),
    Case("qwen3_5_think", True, f"{HEADER}<think>\n", XML_CALLS, CHATML_ENDS),
    Case("qwen3_5_think", False, HEADER + NO_THOUGHT, XML_CALLS, CHATML_ENDS),
    Case("qwen3_8", True, f"{HEADER}<think>\n", XML_CALLS, CHATML_ENDS),
]
every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.template}-{case.thinking}")


@every_case
def test_of_an_episode_all_that_was_sampled_carries_loss_and_nothing_else(case: Case, tmp_path: Path):
    (tmp_path / "notes.txt").write_text(f"{case.ends[0]}\n{case.header}#### 1{case.ends[0]}")
    renderer, rng = make_renderer(case.template, case.thinking), random.Random(0)
    tokenizer, prompt = renderer.tokenizer, renderer.ids(renderer.prompt("How many hats?"))
    episodes = [
        Rollout(list(prompt), Toolbox(folder=tmp_path, max_calls_per_turn=2, call_format=renderer.call_format))
        for _ in range(100)
    ]
    by_prompt = {id(episode): list[int]() for episode in episodes}

    def sample(contexts: list[list[int]]) -> tuple[list[list[int]], None]:
        turns = [turn(rng, renderer, LIMITS.max_turn_tokens, case.calls, case.ends) for _ in contexts]
        for episode, ids in zip([episode for episode in episodes if episode.ending is None], turns, strict=True):
            by_prompt[id(episode)] += ids
        return turns, None

    run_episodes(episodes, sample, renderer, LIMITS, frozenset(renderer.ids("".join(case.ends))))
    for episode in episodes:
        ids = episode.prompt_ids + episode.completion_ids
        expected = loss_mask(ids, tokenizer, case.thinking, case.ends, LIMITS.max_turn_tokens, case.header)
        assert [0] * len(prompt) + episode.mask == expected
        written = [token for token, is_sampled in zip(episode.completion_ids, episode.mask, strict=True) if is_sampled]
        assert written == by_prompt[id(episode)][: len(written)]
        assert len(written) == len(by_prompt[id(episode)]) or len(ids) == len(prompt) + LIMITS.max_episode_tokens
    assert {episode.ending for episode in episodes} >= {"answer", "truncated", "tokens"}
    results = [result for episode in episodes for result in episode.results]
    assert {result.fault for result in results} >= {None, "malformed", "unknown_tool", "arguments", "cut_off", "failed"}
    assert any("#### 1" in result.text for result in results)  # the notes were read


@every_case
def test_demonstrations_are_prompts_results_and_turns_that_are_read_back(case: Case, executor: Executor):
    renderer = make_renderer(case.template, case.thinking)
    n_calls = 0
    for question in questions(8):
        toolbox = Toolbox(executor=executor, call_format=renderer.call_format)
        demo = conversation(question, toolbox, renderer, 0.0, 0)
        assert demo is not None
        ids, mask = tokens_of(renderer, demo.segments)
        assert mask == loss_mask(ids, renderer.tokenizer, case.thinking, case.ends, header=case.header)
        turns = [
            renderer.parse(renderer.text_of_turn(renderer.ids(segment.text)))
            for segment in demo.segments
            if segment.is_sampled
        ]
        assert sum(len(turn.calls) for turn in turns) == demo.n_calls
        assert all(turn.is_thinking_closed for turn in turns)
        assert (turns[-1].thinking != "") == case.thinking
        n_calls += demo.n_calls
    assert n_calls > 8


def run_turns(renderer: ToolRenderer, *written: str) -> Rollout:
    """Run one episode with turns that were written beforehand."""
    turns = iter(written)
    episode = Rollout(renderer.ids(renderer.prompt("9?")), Toolbox(("calculator",), call_format=renderer.call_format))

    def sample(_: list[list[int]]) -> tuple[list[list[int]], None]:
        return [renderer.ids(next(turns))], None

    run_episodes([episode], sample, renderer, LIMITS, frozenset([renderer.stop_id]))
    return episode


def test_a_thought_that_the_prompt_opens_is_a_thought():
    """Qwen3.5's prompts end with `<think>`: without its end, what the model writes is not an answer."""
    renderer = make_renderer("qwen3_5_think")
    written = {
        f"#### 6{CHATML_END}": ("#### 6", None),
        f"It is <tool_call>\n</think>\n\n#### 6{CHATML_END}": ("It is <tool_call>", "#### 6"),
    }
    for text, (thinking, answer) in written.items():
        episode = run_turns(renderer, text)
        turn_of_episode = renderer.parse(episode.messages[0].content)
        assert (turn_of_episode.thinking, turn_of_episode.answer) == (thinking, answer)
        assert episode.completion_ids == renderer.ids(text)
