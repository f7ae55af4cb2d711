"""Run and grade the episodes of a shard of held-out questions; an interrupted job resumes.

Batches are the same for any number of shards, because padding changes the order of floating-point sums.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from arc_refinery import records
from arc_refinery.config import TUNING, ModelConfig, Sandbox, marked
from arc_refinery.errors import InputError, NoRoomError
from arc_refinery.records.tool_use import Call, Episode, Question
from arc_refinery.sampling.backends import Decoding, Report, Sampler, open_sampler
from arc_refinery.sampling.shard import Entry, check_shard, resumed
from arc_refinery.seeding import stream_seed
from arc_refinery.tool_use.config import Generation
from arc_refinery.tool_use.episodes.episodes import Rollout, run_episodes
from arc_refinery.tool_use.episodes.rendering import MAKE_ROOM, ToolRenderer
from arc_refinery.tool_use.grading.domains import modules_hash
from arc_refinery.tool_use.grading.rewards import Executors, grade_episodes
from arc_refinery.tool_use.tools.toolbox import Toolbox


class _Offers(Protocol):
    @property
    def schemas(self) -> Sequence[dict[str, Any]]: ...


Renderer = TypeVar("Renderer", bound=_Offers)


@dataclass(frozen=True, slots=True)
class EpisodeSettings(Generic[Renderer]):
    """Everything that determines an episode: model, adapter, tools, limits, seed."""

    model: ModelConfig
    adapter: Path | None
    generation: Generation
    renderer: Renderer
    open_toolbox: Callable[[Question], Toolbox]
    executors: Executors
    sandbox: Sandbox  # their limits
    files_hash: str  # hash of the readable files
    n_predictions: int  # episodes per question
    questions_per_batch: int
    seed: int

    def settings(self) -> dict[str, Any]:
        """Return everything that determines the episodes, except the adapter's weights and the questions."""
        return {
            "model": self.model.model_dump(exclude=marked(ModelConfig, TUNING)),
            "generation": self.generation.model_dump(),
            "tools": list(self.renderer.schemas),
            "sandbox": self.sandbox.model_dump(),
            "files": self.files_hash,
            "n_predictions": self.n_predictions,
            "questions_per_batch": self.questions_per_batch,
            "seed": self.seed,
        }


def run_shard(
    questions: Sequence[Question], setup: EpisodeSettings[ToolRenderer], shard: int, n_shards: int, output: Path
) -> Iterator[Episode]:
    """Yield the episodes of every `n_shards`-th batch, from batch `shard`; progress is kept next to `output`."""
    check_shard(shard, n_shards)
    batches = records.batches_of_shard(questions, setup.questions_per_batch, shard, n_shards)
    renderer, window, answer = setup.renderer, setup.model.window, setup.generation.max_episode_tokens
    in_shard = [question for batch in batches for question in batch]
    prompts = {question.question_id: renderer.ids(renderer.prompt(question.text)) for question in in_shard}
    if too_long := {name: len(ids) for name, ids in prompts.items() if len(ids) > window - answer}:
        raise NoRoomError(
            f"question {next(iter(too_long))}", len(prompts), list(too_long.values()), window, answer, MAKE_ROOM
        )

    def new_entries(done: Sequence[Entry], report: Report) -> Iterator[Entry]:
        limits = setup.generation
        decoding = Decoding(
            limits.temperature,
            limits.top_p,
            limits.max_turn_tokens,
            top_k=limits.top_k,
            stop_token=limits.stop_token,
        )
        sampler = open_sampler(setup.model, setup.adapter, decoding, setup.renderer.tokenizer, report)
        for batch in batches[len(done) :]:
            yield {"episodes": [asdict(episode) for episode in _run_batch(batch, prompts, setup, sampler)]}

    settings = {**setup.settings(), "questions": list(map(repr, in_shard)), **modules_hash(in_shard)}
    n_episodes = len(in_shard) * setup.n_predictions
    for entry in resumed(output, settings, setup.adapter, n_episodes, "episode", new_entries):
        yield from records.from_rows(Episode, entry["episodes"])


def _run_batch(
    batch: Sequence[Question], prompts: Mapping[str, list[int]], setup: EpisodeSettings[ToolRenderer], sampler: Sampler
) -> list[Episode]:
    questions = [question for question in batch for _ in range(setup.n_predictions)]
    rollouts = [Rollout(list(prompts[question.question_id]), setup.open_toolbox(question)) for question in questions]
    n_ended = 0

    def sample(contexts: list[list[int]]) -> tuple[list[list[int]], None]:
        nonlocal n_ended
        running = [(number, rollout) for number, rollout in enumerate(rollouts) if rollout.ending is None]
        sampler.report(len(rollouts) - len(running) - n_ended, 0)
        n_ended = len(rollouts) - len(running)
        seeds = [
            stream_seed(setup.seed, questions[number].question_id, number % setup.n_predictions, len(rollout.messages))
            for number, rollout in running
        ]
        return sampler.sample_turns(contexts, seeds), None

    run_episodes(rollouts, sample, setup.renderer, setup.generation, sampler.ends)
    numbers = [number % setup.n_predictions for number in range(len(rollouts))]
    return graded(rollouts, questions, numbers, setup)


def graded(
    rollouts: Sequence[Rollout], questions: Sequence[Question], numbers: Sequence[int], setup: EpisodeSettings[Any]
) -> list[Episode]:
    """Return the records of ended episodes, `numbers` of their questions; raises `InputError` if a tool failed."""
    for question, rollout in zip(questions, rollouts, strict=True):
        if rollout.ending == "failed":
            raise InputError(f"question {question.question_id}: {rollout.failure}")
    turns = [rollout.last_turn for rollout in rollouts]
    grades = grade_episodes(turns, questions, setup.executors, setup.renderer.call_format)
    return [
        Episode(
            episode_id=records.attempt_id(question.question_id, number),
            question_id=question.question_id,
            model=setup.model.path,
            adapter=str(setup.adapter or ""),
            seed=setup.seed,
            temperature=setup.generation.temperature,
            top_p=setup.generation.top_p,
            messages=tuple(rollout.messages),
            calls=tuple(Call(result.tool, result.fault or "") for result in rollout.results),
            completion_ids=tuple(rollout.completion_ids),
            mask=tuple(rollout.mask),
            ending=str(rollout.ending),
            n_prompt_tokens=rollout.n_prompt_tokens,
            n_tokens=rollout.n_sampled,
            answer=grade.answer,
            reward=grade.reward,
        )
        for number, question, rollout, grade in zip(numbers, questions, rollouts, grades, strict=True)
    ]
