"""Episodes: the model thinks, calls tools, reads their results, thinks on, answers.

Training and evaluation play them alike; what differs is who samples. A context is always the very ids that were sampled
before, never a text that was tokenised again. A mask says which ids those are: 1 for what the model sampled, its stop
tokens included; 0 for results, for the template's headers, and for a stop token that was added to a turn without one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from arc_refinery.records.transcripts import Ending, EpisodeMessage
from arc_refinery.tool_use.rendering import Renderer
from arc_refinery.tool_use.tools import Result, Toolbox, answer_all
from arc_refinery.tool_use.turns import Turn, parse_turn

Logprobs = list[float]
# From contexts to the ids of one more turn each, and their log-probabilities where the sampler gives any
Sample = Callable[[list[list[int]]], tuple[Sequence[list[int]], Sequence[Logprobs] | None]]


class Limits(Protocol):
    """What bounds an episode (config.Generation)."""

    @property
    def max_turn_tokens(self) -> int: ...
    @property
    def max_episode_tokens(self) -> int: ...
    @property
    def max_calls(self) -> int: ...


@dataclass(slots=True)
class Rollout:
    """One episode while it is played."""

    prompt_ids: list[int]
    toolbox: Toolbox
    completion_ids: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)
    logprobs: Logprobs | None = field(default_factory=list)  # of the sampler, 0 where the mask is 0
    messages: list[EpisodeMessage] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)  # of all calls, in order
    ending: Ending | None = None

    @property
    def n_counted(self) -> int:
        """Calls that count towards the limit: all but those that were put off to the next turn."""
        return sum(result.fault != "too_many" for result in self.results)

    @property
    def last_turn(self) -> str:
        """The turn that is graded; empty where the episode did not end with an answer."""
        return self.messages[-1].content if self.ending == "answer" else ""


def run_episodes(
    episodes: Sequence[Rollout], sample: Sample, renderer: Renderer, limits: Limits, ends: frozenset[int]
) -> None:
    """Run episodes to their ends, one turn of all of them at a time. `ends` are the ids that end a turn."""
    while running := [episode for episode in episodes if episode.ending is None]:
        sampled, logprobs = sample([episode.prompt_ids + episode.completion_ids for episode in running])
        turns = [
            _take(episode, ids, None if logprobs is None else logprobs[index], renderer, limits, ends)
            for index, (episode, ids) in enumerate(zip(running, sampled, strict=True))
        ]
        calling = [(episode, turn) for episode, turn in zip(running, turns, strict=True) if episode.ending is None]
        if calling:
            results = answer_all([(one.toolbox, turn, limits.max_calls - one.n_counted) for one, turn in calling])
            for (episode, _), told in zip(calling, results, strict=True):
                _tell(episode, told, renderer, limits)


def _take(
    episode: Rollout,
    ids: list[int],
    logprobs: Logprobs | None,
    renderer: Renderer,
    limits: Limits,
    ends: frozenset[int],
) -> Turn:
    """Add one turn; an episode goes on where it calls and has not been told that no calls are left."""
    room = min(limits.max_turn_tokens, limits.max_episode_tokens - len(episode.completion_ids))
    ids = ids[:room]
    _extend(episode, ids, None if logprobs is None else logprobs[:room], is_sampled=True)
    text = renderer.tokenizer.decode(ids, skip_special_tokens=True)
    turn = parse_turn(text)
    episode.messages.append(EpisodeMessage("assistant", text))
    if not turn.calls:
        episode.ending = "answer" if ids[-1] in ends else "truncated"
    elif episode.n_counted > limits.max_calls:
        episode.ending = "calls"
    return turn


def _tell(episode: Rollout, results: list[Result], renderer: Renderer, limits: Limits) -> None:
    """Add the results of a turn's calls, where there is room for them and another turn."""
    told = renderer.ids(renderer.results([result.text for result in results]))
    if episode.completion_ids[-1] != renderer.stop_id:
        told = [renderer.stop_id, *told]
    episode.results += results
    if len(episode.completion_ids) + len(told) >= limits.max_episode_tokens:
        episode.ending = "tokens"  # the results are not added: an episode ends with what the model wrote
        return
    _extend(episode, told, [0.0] * len(told), is_sampled=False)
    episode.messages += [EpisodeMessage("tool", result.text) for result in results]


def _extend(episode: Rollout, ids: list[int], logprobs: Logprobs | None, is_sampled: bool) -> None:
    episode.completion_ids += ids
    episode.mask += [int(is_sampled)] * len(ids)
    episode.logprobs = None if logprobs is None or episode.logprobs is None else episode.logprobs + logprobs
