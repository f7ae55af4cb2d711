"""Run episodes: the model thinks, calls tools, reads their results, continues thinking, answers.

Training and evaluation share this code; only the sampler differs. A context consists of the sampled ids; text is never
re-tokenised. The mask is 1 for sampled ids, including stop tokens, and 0 for results, the template's headers, and a
stop token added to a turn without one:

    mask  tokens
    1     33  <think>\\n2 rows.\\n</think>\\n\\n
              <tool_call>\\n{"name": "calculator", "arguments": {"expression": "2*3"}}\\n</tool_call><|im_end|>
    0     14  \\n<|im_start|>user\\n<tool_response>\\n6\\n</tool_response><|im_end|>\\n<|im_start|>assistant\\n
    1     14  <think>\\n6 hats.\\n</think>\\n\\n#### 6<|im_end|>
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeVar

from arc_refinery.records.tool_use import Call, Ending, EpisodeMessage
from arc_refinery.tool_use.calls.turns import ParsedTurn
from arc_refinery.tool_use.config import Generation
from arc_refinery.tool_use.episodes.rendering import ToolRenderer
from arc_refinery.tool_use.tools.toolbox import CallResult, Toolbox, answer_all

Logprobs = list[float]
# From contexts to the ids of the next turn of each, and their log-probabilities if the sampler returns any
SampleTurns = Callable[[list[list[int]]], tuple[Sequence[list[int]], Sequence[Logprobs] | None]]


@dataclass(slots=True)
class Rollout:
    """One episode in progress; a server's has no ids."""

    prompt_ids: list[int]
    toolbox: Toolbox
    completion_ids: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)
    logprobs: Logprobs | None = field(default_factory=list)  # from the sampler; 0 where the mask is 0
    messages: list[EpisodeMessage] = field(default_factory=list)
    results: list[CallResult] = field(default_factory=list)  # results of all calls, in order
    ending: Ending | None = None
    failure: str = ""  # why a tool could not work, with the ending `failed`; such an episode is no result

    @property
    def n_counted(self) -> int:
        """Number of calls that count towards the limit: all but those postponed to the next turn."""
        return sum(result.fault != "too_many" for result in self.results)

    @property
    def n_prompt_tokens(self) -> int:
        return len(self.prompt_ids)

    @property
    def n_sampled(self) -> int:
        """Number of tokens that the model wrote."""
        return sum(self.mask)

    @property
    def last_turn(self) -> str:
        """The turn to grade; empty unless the episode ended with an answer."""
        return self.messages[-1].content if self.ending == "answer" else ""


R = TypeVar("R", bound=Rollout)


def calls_by_turn(messages: Sequence[EpisodeMessage], calls: Iterable[Call]) -> list[list[Call]]:
    """Return the calls of each turn of the model; those whose results had no room were the last turn's."""
    turns: list[list[Call]] = []
    remaining = iter(calls)
    for message in messages:
        if message.role == "assistant":
            turns.append([])
        elif message.role == "tool":
            turns[-1] += islice(remaining, 1)
    if turns:
        turns[-1] += remaining
    return turns


def run_episodes(
    episodes: Sequence[Rollout],
    sample: SampleTurns,
    renderer: ToolRenderer,
    limits: Generation,
    ends: frozenset[int],
) -> None:
    """Run all episodes to their ends in parallel, turn by turn. `ends` are the ids that end a turn."""
    while running := [episode for episode in episodes if episode.ending is None]:
        sampled, logprobs = sample([episode.prompt_ids + episode.completion_ids for episode in running])
        turns = [
            _add_turn(episode, ids, None if logprobs is None else logprobs[index], renderer, limits, ends)
            for index, (episode, ids) in enumerate(zip(running, sampled, strict=True))
        ]
        for episode, results in results_of_calls(running, turns, limits):
            _add_results(episode, results, renderer, limits)


def results_of_calls(
    episodes: Sequence[R], turns: Sequence[ParsedTurn], limits: Generation
) -> Iterator[tuple[R, list[CallResult]]]:
    """Run the calls of the episodes that go on; yield these with their results, except those of which a tool failed."""
    calling = [(episode, turn) for episode, turn in zip(episodes, turns, strict=True) if episode.ending is None]
    if not calling:
        return
    results = answer_all([(episode.toolbox, turn, limits.max_calls - episode.n_counted) for episode, turn in calling])
    for (episode, _), results_of_turn in zip(calling, results, strict=True):
        episode.failure = next((result.failure for result in results_of_turn if result.failure), "")
        if episode.failure:
            episode.ending = "failed"
        else:
            episode.results += results_of_turn
            yield episode, results_of_turn


def end_of_turn(episode: Rollout, turn: ParsedTurn, has_ended: bool, limits: Generation) -> None:
    """End an episode after a turn without calls, or with calls although a result said that none are left."""
    if not turn.calls:
        episode.ending = "answer" if has_ended else "truncated"
    elif episode.n_counted > limits.max_calls:
        episode.ending = "calls"


def _add_turn(
    episode: Rollout,
    ids: list[int],
    logprobs: Logprobs | None,
    renderer: ToolRenderer,
    limits: Generation,
    ends: frozenset[int],
) -> ParsedTurn:
    """Add one turn."""
    room = min(limits.max_turn_tokens, limits.max_episode_tokens - len(episode.completion_ids))
    ids = ids[:room]
    _extend(episode, ids, None if logprobs is None else logprobs[:room], is_sampled=True)
    text = renderer.text_of_turn(ids)
    turn = renderer.parse(text)
    episode.messages.append(EpisodeMessage("assistant", text))
    end_of_turn(episode, turn, ids[-1] in ends, limits)
    return turn


def _add_results(episode: Rollout, results: list[CallResult], renderer: ToolRenderer, limits: Generation) -> None:
    """Add the results of a turn's calls, if there is room for them and another turn."""
    texts = [renderer.masked(result.text) for result in results]
    ids = renderer.ids(renderer.results(texts))
    if episode.completion_ids[-1] != renderer.stop_id:
        ids = [renderer.stop_id, *ids]
    if len(episode.completion_ids) + len(ids) >= limits.max_episode_tokens:
        episode.ending = "tokens"  # it ends with a turn of the model
        return
    _extend(episode, ids, [0.0] * len(ids), is_sampled=False)
    episode.messages += [EpisodeMessage("tool", text) for text in texts]


def _extend(episode: Rollout, ids: list[int], logprobs: Logprobs | None, is_sampled: bool) -> None:
    episode.completion_ids += ids
    episode.mask += [int(is_sampled)] * len(ids)
    episode.logprobs = None if logprobs is None or episode.logprobs is None else episode.logprobs + logprobs
