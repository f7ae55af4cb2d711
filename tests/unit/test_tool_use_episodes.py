"""Episodes with turns that were written beforehand: what is added to them, what ends them, which ids stay."""

import random
from collections.abc import Sequence
from typing import Any

import pytest
from checkout import TINY_TOOLS
from messages import Wording
from written_turns import END, OTHER_END

from arc_refinery.records.tool_use import EpisodeMessage
from arc_refinery.tool_use.config import Generation
from arc_refinery.tool_use.episodes.episodes import Rollout, run_episodes
from arc_refinery.tool_use.episodes.rendering import ToolRenderer
from arc_refinery.tool_use.tools.toolbox import Toolbox

LIMITS = Generation(max_turn_tokens=100, max_episode_tokens=400, max_calls=3)
ANSWER = f"<think>\n6 hats.\n</think>\n\n#### 6{END}"


@pytest.fixture(scope="module")
def renderer() -> ToolRenderer:
    from arc_refinery.models.tokenizers import load_tokenizer

    return ToolRenderer(load_tokenizer(TINY_TOOLS), Toolbox(("calculator",)).schemas, True, END)


def call(expression: str) -> str:
    return f'<tool_call>\n{{"name": "calculator", "arguments": {{"expression": "{expression}"}}}}\n</tool_call>'


def told(*results: str) -> str:
    """The text that Qwen3's template puts between a turn's end and the next turn."""
    blocks = "".join(f"\n<tool_response>\n{result}\n</tool_response>" for result in results)
    return f"\n<|im_start|>user{blocks}<|im_end|>\n<|im_start|>assistant\n"


class Turns:
    """Samples what it was given, a turn of each episode at a time, and keeps what it was asked.

    A token's log-probability, where there are any, is -token.
    """

    def __init__(self, *turns: list[list[int]], has_logprobs: bool = False) -> None:
        self.turns, self.has_logprobs = list(turns), has_logprobs
        self.contexts: list[list[list[int]]] = []

    def __call__(self, contexts: list[list[int]]) -> tuple[Sequence[list[int]], Sequence[list[float]] | None]:
        self.contexts.append([list(context) for context in contexts])
        sampled = self.turns[len(self.contexts) - 1]
        return sampled, [[-float(token) for token in ids] for ids in sampled] if self.has_logprobs else None


def played(renderer: ToolRenderer, *turns: str | list[int], limits: Generation = LIMITS, **toolbox: Any) -> Rollout:
    """One episode; a turn is a text or ids."""
    episode = Rollout(renderer.ids(renderer.prompt("Hats?")), Toolbox(("calculator",), **toolbox))
    ids = [renderer.ids(turn) if isinstance(turn, str) else turn for turn in turns]
    turn_by_turn = Turns(*([turn] for turn in ids))
    run_episodes([episode], turn_by_turn, renderer, limits, ends_of(renderer))
    assert len(turn_by_turn.contexts) == len(turns)  # all were asked for
    return episode


def ends_of(renderer: ToolRenderer) -> frozenset[int]:
    return frozenset(renderer.ids(END + OTHER_END))


def stretches(renderer: ToolRenderer, episode: Rollout) -> list[tuple[str, int]]:
    """Texts of an episode between changes of its mask."""
    pieces: list[tuple[list[int], int]] = []
    for token, is_sampled in zip(episode.completion_ids, episode.mask, strict=True):
        if not pieces or pieces[-1][1] != is_sampled:
            pieces.append(([], is_sampled))
        pieces[-1][0].append(token)
    return [(renderer.tokenizer.decode(ids), is_sampled) for ids, is_sampled in pieces]


def test_an_answer_at_once(renderer: ToolRenderer):
    episode = played(renderer, ANSWER)
    assert episode.completion_ids == renderer.ids(ANSWER)
    assert episode.mask == [1] * len(episode.completion_ids)
    assert episode.messages == [EpisodeMessage("assistant", ANSWER.removesuffix(END))]
    assert (episode.ending, episode.results) == ("answer", [])
    assert episode.last_turn == "<think>\n6 hats.\n</think>\n\n#### 6"


def test_a_call_then_an_answer(renderer: ToolRenderer):
    first = f"<think>\n2 rows.\n</think>\n\n{call('2*3')}"
    episode = played(renderer, first + END, ANSWER)
    assert episode.completion_ids == [*renderer.ids(first + END), *renderer.ids(told("6")), *renderer.ids(ANSWER)]
    assert stretches(renderer, episode) == [(first + END, 1), (told("6"), 0), (ANSWER, 1)]
    assert [(message.role, message.content) for message in episode.messages] == [
        ("assistant", first),
        ("tool", "6"),
        ("assistant", ANSWER.removesuffix(END)),
    ]
    assert [(result.text, result.tool, result.fault) for result in episode.results] == [("6", "calculator", None)]
    assert episode.ending == "answer"


def test_a_complete_call_ends_a_thought_that_is_never_closed(renderer: ToolRenderer):
    first = f"<think>\n2 rows.\n{call('2*3')}"
    episode = played(renderer, first + END, ANSWER)
    assert episode.completion_ids == [*renderer.ids(first + END), *renderer.ids(told("6")), *renderer.ids(ANSWER)]
    assert stretches(renderer, episode) == [(first + END, 1), (told("6"), 0), (ANSWER, 1)]
    assert [(result.text, result.fault) for result in episode.results] == [("6", None)]
    assert episode.ending == "answer"


def test_results_of_one_turn_stand_together_in_the_order_of_their_calls(renderer: ToolRenderer, wording: Wording):
    first = f"{call('2*3')}\n{call('1/0')}\n{call('4+4')}{END}"
    episode = played(renderer, first, ANSWER)
    texts = [result.text for result in episode.results]
    assert texts[::2] == ["6", "8"]
    wording(texts[1])
    assert stretches(renderer, episode)[1] == (told(*texts), 0)
    assert [result.fault for result in episode.results] == [None, "failed", None]


@pytest.mark.parametrize(
    ("written", "fault", "names"),
    [
        ("<tool_call>\n2*3\n</tool_call>", "malformed", 'JSON: unexpected "*" at line 1 column 2'),
        (
            '<tool_call>{"name": "read_file", "arguments": {"path": "x"}}</tool_call>',  # known, but not offered
            "unknown_tool",
            '"read_file"',
        ),
        (
            '<tool_call>{"name": "calculator", "arguments": {"x": "1"}}</tool_call>',
            "arguments",
            '"expression"',
        ),
        ("<tool_call>2*3", "cut_off", " closing tag"),  # the model ended the turn itself
    ],
)
def test_a_wrong_call_has_a_result_and_the_episode_goes_on(
    renderer: ToolRenderer, written: str, fault: str, names: str, wording: Wording
):
    episode = played(renderer, written + END, ANSWER)
    assert [result.fault for result in episode.results] == [fault]
    assert episode.results[0].text.startswith("Error: ")
    assert names in episode.results[0].text.partition(" like this: ")[0]
    wording(episode.results[0].text)
    assert stretches(renderer, episode)[1] == (told(episode.results[0].text), 0)
    assert episode.ending == "answer"


def test_a_call_that_is_cut_off_gets_an_added_end_without_loss_and_a_result(renderer: ToolRenderer):
    long_call = '<tool_call>\n{"name": "calculator", "arguments": {"expression": "' + "1+" * 200
    ids = renderer.ids(long_call)
    episode = played(renderer, ids[:100], ANSWER)
    assert episode.completion_ids[:101] == [*ids[:100], renderer.stop_id]
    assert episode.mask[:101] == [1] * 100 + [0]
    assert [result.fault for result in episode.results] == ["cut_off"]
    assert stretches(renderer, episode)[1:] == [(END + told(episode.results[0].text), 0), (ANSWER, 1)]
    assert episode.ending == "answer"


def test_a_turn_that_ends_with_another_end_gets_the_stop_token_too_and_keeps_its_own(renderer: ToolRenderer):
    episode = played(renderer, call("2*3") + OTHER_END, ANSWER)
    assert stretches(renderer, episode) == [(call("2*3") + OTHER_END, 1), (END + told("6"), 0), (ANSWER, 1)]


@pytest.mark.parametrize("end", [END, OTHER_END])
def test_any_end_ends_an_answer_and_nothing_is_added_to_it(renderer: ToolRenderer, end: str):
    episode = played(renderer, f"#### 6{end}")
    assert stretches(renderer, episode) == [(f"#### 6{end}", 1)]
    assert (episode.ending, episode.last_turn) == ("answer", "#### 6")


# limits


def test_a_turn_without_an_end_is_truncated_and_no_answer(renderer: ToolRenderer):
    episode = played(renderer, "#### 6")
    assert (episode.ending, episode.last_turn) == ("truncated", "")
    assert stretches(renderer, episode) == [("#### 6", 1)]


def test_no_turn_is_longer_than_its_limit_whatever_is_sampled(renderer: ToolRenderer):
    ids = renderer.ids("word " * 99 + END)
    episode = played(renderer, ids)
    assert len(ids) > 100
    assert episode.completion_ids == ids[:100]
    assert (episode.ending, episode.mask) == ("truncated", [1] * 100)


def test_who_calls_too_often_is_told_once_then_the_episode_ends(renderer: ToolRenderer, wording: Wording):
    """Of 3 calls, the last one is made; a fourth is answered by a result that says so; a fifth ends the episode."""
    episode = played(renderer, f"{call('1')}\n{call('2')}{END}", f"{call('3')}\n{call('4')}{END}", call("5") + END)
    assert [result.text for result in episode.results[:3]] == ["1", "2", "3"]
    assert [result.fault for result in episode.results[3:]] == ["none_left"]
    wording(episode.results[3].text)
    assert (episode.ending, episode.last_turn) == ("calls", "")
    assert stretches(renderer, episode)[-1] == (call("5") + END, 1)  # with what the model wrote, not with a result


def test_who_gives_an_answer_after_being_told_has_answered(renderer: ToolRenderer):
    calls = f"{call('1')}\n{call('2')}\n{call('3')}{END}"
    assert played(renderer, calls, ANSWER).ending == "answer"
    assert played(renderer, calls, call("4") + END, ANSWER).ending == "answer"


def test_a_call_that_is_put_off_to_the_next_turn_can_be_made_there(renderer: ToolRenderer, wording: Wording):
    """It is neither one of the three, nor the warning that none are left."""
    turn = f"{call('1')}\n{call('2')}\n{call('3')}{END}"
    episode = played(renderer, turn, call("3") + END, call("4") + END, ANSWER, max_calls_per_turn=2)
    assert [result.fault for result in episode.results] == [None, None, "too_many", None, "none_left"]
    assert " 2." in episode.results[2].text  # calls in a turn
    wording(episode.results[2].text)
    assert episode.results[3].text == "3"
    assert episode.ending == "answer"


def test_results_that_leave_no_room_for_another_turn_are_left_out(renderer: ToolRenderer):
    first = renderer.ids(call("2*3") + END)
    whole = len(first) + len(renderer.ids(told("6")))

    def limits(n: int) -> Generation:
        return LIMITS.model_copy(update={"max_episode_tokens": n})

    episode = played(renderer, first, limits=limits(whole))
    assert (episode.completion_ids, episode.mask) == (first, [1] * len(first))
    assert (episode.ending, episode.last_turn) == ("tokens", "")
    assert [result.text for result in episode.results] == ["6"]  # the call counts, though nobody reads its result
    assert [message.role for message in episode.messages] == ["assistant"]

    episode = played(renderer, first, renderer.ids(ANSWER), limits=limits(whole + 1))
    assert len(episode.completion_ids) == whole + 1
    assert episode.ending == "truncated"


def test_the_last_turn_has_what_earlier_ones_and_their_results_left(renderer: ToolRenderer):
    first, last = renderer.ids(call("2*3") + END), renderer.ids(ANSWER)
    before = len(first) + len(renderer.ids(told("6")))
    fits = LIMITS.model_copy(update={"max_episode_tokens": before + len(last)})
    short = LIMITS.model_copy(update={"max_episode_tokens": before + len(last) - 1})
    assert played(renderer, first, last, limits=fits).ending == "answer"
    episode = played(renderer, first, last, limits=short)
    assert (episode.ending, episode.completion_ids[before:]) == ("truncated", last[:-1])


# ids


def test_sampled_ids_stay_as_they_are_where_their_text_has_others(renderer: ToolRenderer):
    """Every character by itself: a tokenizer would merge some of them."""
    text = f"<think>\nThere are six hats altogether: é, 帽.\n</think>\n\n{call('2*3')}"
    scattered = [token for character in text for token in renderer.ids(character)]
    assert scattered != renderer.ids(text)
    assert renderer.tokenizer.decode(scattered) == text
    episode = played(renderer, [*scattered, renderer.stop_id], ANSWER, limits=Generation(**LARGE))
    assert episode.completion_ids[: len(scattered) + 1] == [*scattered, renderer.stop_id]
    assert episode.mask[: len(scattered) + 2] == [1] * (len(scattered) + 1) + [0]
    assert [result.text for result in episode.results] == ["6"]  # a call is a call however its text is spelt


LARGE: dict[str, Any] = {"max_turn_tokens": 500, "max_episode_tokens": 1000}


def test_each_context_is_the_prompt_and_all_ids_so_far(renderer: ToolRenderer):
    """Three episodes: one ends after each round, and the others continue with their own."""
    ids = [renderer.ids(call(f"{number}+1") + END) for number in range(3)]
    answer = renderer.ids(ANSWER)
    episodes = [Rollout(renderer.ids(renderer.prompt(f"{n} hats?")), Toolbox(("calculator",))) for n in range(3)]
    prompts = [episode.prompt_ids.copy() for episode in episodes]
    turns = Turns(ids, [answer, ids[1], ids[2]], [answer, ids[2]], [answer], has_logprobs=True)
    run_episodes(episodes, turns, renderer, LIMITS, ends_of(renderer))
    first = [
        prompt + sampled + renderer.ids(told(str(n + 1)))
        for n, (prompt, sampled) in enumerate(zip(prompts, ids, strict=True))
    ]
    second = [first[n] + ids[n] + renderer.ids(told(str(n + 1))) for n in (1, 2)]
    third = [second[1] + ids[2] + renderer.ids(told("3"))]
    assert turns.contexts == [prompts, first, second, third]
    assert [episode.prompt_ids for episode in episodes] == prompts
    assert [len(episode.results) for episode in episodes] == [1, 2, 3]
    assert {episode.ending for episode in episodes} == {"answer"}
    assert [episode.logprobs for episode in episodes] == [logprobs(episode) for episode in episodes]


def logprobs(episode: Rollout) -> list[float]:
    """-token, and 0 where nothing was sampled."""
    return [-token * is_sampled for token, is_sampled in zip(episode.completion_ids, episode.mask, strict=True)]


@pytest.mark.parametrize("cut", [False, True])
def test_logprobs_are_the_samplers_and_0_where_nothing_was_sampled(renderer: ToolRenderer, cut: bool):
    first = renderer.ids(call("2*3") + (" " + call("2*3") * 9 if cut else END))
    episode = Rollout([5], Toolbox(("calculator",)))
    turns = Turns([first], [renderer.ids(ANSWER)], has_logprobs=True)
    run_episodes([episode], turns, renderer, LIMITS, ends_of(renderer))
    assert 0 in episode.mask
    assert episode.logprobs == logprobs(episode)


def test_without_the_samplers_logprobs_there_are_none(renderer: ToolRenderer):
    assert played(renderer, call("2*3") + END, ANSWER).logprobs is None


def test_no_ids_raise_and_every_episode_ends_inside_its_limits(renderer: ToolRenderer):
    """Random ids, with the marks of calls and turns often among them."""
    rng = random.Random(0)
    marks = renderer.ids(f'{"<tool_call>" * 5}</tool_call><think></think><|im_start|>{END}{OTHER_END}{{}}[]"\n1')
    n_tokens, ends = len(renderer.tokenizer), ends_of(renderer)

    def turn() -> list[int]:
        """Up to an end, or as long as the limit on turns."""
        ids: list[int] = []
        while len(ids) < 40 and not ends.intersection(ids):
            ids.append(rng.choice(marks) if rng.random() < 0.5 else rng.randrange(n_tokens))
        return ids

    def sample(contexts: list[list[int]]) -> tuple[list[list[int]], None]:
        return [turn() for _ in contexts], None

    limits = Generation(max_turn_tokens=40, max_episode_tokens=600, max_calls=3)
    episodes = [Rollout([5], Toolbox()) for _ in range(300)]
    run_episodes(episodes, sample, renderer, limits, ends)
    assert {episode.ending for episode in episodes} == {"answer", "truncated", "tokens", "calls"}
    for episode in episodes:
        assert len(episode.mask) == len(episode.completion_ids) <= 600
        assert episode.mask[-1] == 1  # nothing follows what the model wrote last
