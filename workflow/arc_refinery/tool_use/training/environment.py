"""The training environment of tool use, through TRL's environment interface.

TRL puts an environment's tools into the prompt, resets one environment per episode, and passes them all to the reward.
tool_use/episodes/episodes.py runs the episodes instead of TRL's own loop, which treats a call that is not valid JSON as
an answer, does not report truncated calls, and has one limit for all tokens.
"""

import logging
import math
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from inspect import Parameter, Signature
from itertools import accumulate, pairwise
from statistics import fmean
from typing import Any, Literal

from trl.chat_template_utils import (
    add_response_schema,
    get_training_chat_template,
    is_chat_template_prefix_preserving,
)

from arc_refinery.config import EVALUATION, marked
from arc_refinery.errors import InputError, NoRoomError
from arc_refinery.records import settings_hash
from arc_refinery.records.tool_use import Question
from arc_refinery.sampling.library_arguments import tool_rollouts
from arc_refinery.tool_use.config import Generation
from arc_refinery.tool_use.config.rewards import CORRECT, REWARDS, ToolGrpo
from arc_refinery.tool_use.config.tool_signatures import JsonSchema, ToolSignature
from arc_refinery.tool_use.episodes.episodes import Rollout, run_episodes
from arc_refinery.tool_use.episodes.rendering import MAKE_ROOM, ToolRenderer
from arc_refinery.tool_use.grading.domains import modules_hash
from arc_refinery.tool_use.grading.rewards import Executors, grade_episodes
from arc_refinery.tool_use.tools.toolbox import Toolbox
from arc_refinery.tool_use.training.reward_terms import FailureLimit, scored_episode, spread, without_failed
from arc_refinery.training.rewards import Reward, Scored, ScoredCompletion, step_metrics
from arc_refinery.training.trainer import Trainer, TrainingData

logger = logging.getLogger(__name__)


def check_template(tokenizer: Any) -> None:
    """Raise `InputError` unless TRL supports the model's chat template, which it recognises by its text."""
    try:
        tokenizer_with_schema = add_response_schema(copy(tokenizer))
        if not is_chat_template_prefix_preserving(tokenizer_with_schema):
            get_training_chat_template(tokenizer_with_schema)
    except ValueError as error:
        raise InputError(f"{tokenizer.name_or_path}: TRL cannot train with its chat template ({error})") from None


class EpisodeEnvironment:
    """One episode for TRL: its question, toolbox and rollout. TRL offers the public methods as tools."""

    def __init__(self, questions: dict[str, Question], open_toolbox: Callable[[Question], Toolbox]) -> None:
        self._questions = questions
        self._open_toolbox = open_toolbox
        self.question: Question
        self.toolbox: Toolbox
        self.episode: Rollout

    def reset(self, **row: Any) -> None:
        """Begin an episode on the question of a dataset row."""
        self.question = self._questions[row["question_id"]]
        self.toolbox = self._open_toolbox(self.question)


def environment_class(tools: Iterable[ToolSignature]) -> type[EpisodeEnvironment]:
    """Return an `EpisodeEnvironment` with a method per tool, with the signature and docstring that TRL reads."""
    return type("EpisodeWithTools", (EpisodeEnvironment,), {tool.name: _method(tool) for tool in tools})


def _method(tool: ToolSignature) -> Callable[..., str]:
    # TRL only reads the signature: run_episodes runs the calls
    def call(self: EpisodeEnvironment, **arguments: Any) -> str:
        return self.toolbox.run(tool.name, arguments).text

    types = {name: _type(schema) for name, schema in tool.parameters.items()}
    descriptions = "\n".join(f"    {name}: {schema['description']}" for name, schema in tool.parameters.items())
    parameters = [
        Parameter(
            name, Parameter.KEYWORD_ONLY, annotation=kind, default=Parameter.empty if name in tool.required else None
        )
        for name, kind in types.items()
    ]
    call.__name__ = tool.name
    call.__doc__ = f"{tool.description}\n\nArgs:\n{descriptions}" if types else tool.description
    call.__annotations__ = types
    call.__signature__ = Signature([Parameter("self", Parameter.POSITIONAL_ONLY), *parameters])  # type: ignore[attr-defined]
    return call


_TYPES = {"string": str, "integer": int, "number": float, "boolean": bool}


def _type(schema: JsonSchema) -> Any:
    """Return the annotation that has a schema."""
    if "enum" in schema:
        kind: Any = Literal[tuple(schema["enum"])]
    else:
        kind = list[_type(schema["items"])] if schema["type"] == "array" else _TYPES[schema["type"]]  # type: ignore[misc]
    return kind | None if schema.get("nullable") else kind


class Rewards:
    """Grades the last turn of each episode, and logs each term of the reward."""

    def __init__(
        self,
        executors: Executors,
        num_generations: int,
        max_tokens: int,
        reward: Reward,
    ) -> None:
        """`executors` are those that grade (grading/rewards.py)."""
        self.reward = reward
        self.executors = executors
        self.num_generations = num_generations
        self.max_tokens = max_tokens  # limit of an episode
        self.name = "answer"

    def __call__(
        self, environments: Sequence[EpisodeEnvironment], log_metric: Callable[[str, float], None], **_: Any
    ) -> Scored:
        episodes = [environment.episode for environment in environments]
        questions = [environment.question for environment in environments]
        turns, call_format = [episode.last_turn for episode in episodes], episodes[0].toolbox.call_format
        graded = grade_episodes(turns, questions, self.executors, call_format)
        finished = [
            scored_episode(question, episode, grade, self.max_tokens)
            for question, episode, grade in zip(questions, episodes, graded, strict=True)
        ]
        failed = [episode.ending == "failed" for episode in episodes]
        graded_values = self.reward.values([ended for ended in finished if ended.ending != "failed"])
        values = {name: spread(term, failed) for name, term in graded_values.items()}
        rewards = [math.fsum(summands) for summands in self.reward.weighted(values)]
        rewards = without_failed(rewards, failed, self.num_generations)
        earned = self.reward.earned(values, [ended.n_turns for ended in finished])
        scored = [
            ScoredCompletion(
                [token for token, is_sampled in zip(episode.completion_ids, episode.mask, strict=True) if is_sampled],
                episode.ending in ("truncated", "tokens"),
                reward,
                "failed" if has_failed else "",
                ended.is_correct,
                question.question_id,
                _turns(episode.mask),
                failed=has_failed,
                earned=() if has_failed else of_turns,
            )
            for question, episode, reward, ended, has_failed, of_turns in zip(
                questions, episodes, rewards, finished, failed, earned, strict=True
            )
        ]
        metrics = step_metrics(scored, self.num_generations) | _metrics(episodes)
        if self.reward.terms != CORRECT:
            metrics |= self.reward.metrics(graded_values)
        for name, value in metrics.items():
            log_metric(name, value)
        return Scored(scored, values)


def _turns(mask: Sequence[int]) -> list[int]:
    """Return the number of the turn of each token, 0 where the mask is."""
    numbers = accumulate(is_sampled > before for before, is_sampled in pairwise([0, *mask]))
    return [number * is_sampled for number, is_sampled in zip(numbers, mask, strict=True)]


def _metrics(episodes: Sequence[Rollout]) -> dict[str, float]:
    """Return shares of episodes and of calls."""
    results = [result for episode in episodes for result in episode.results]
    metrics = {
        "share/calling": fmean(bool(episode.results) for episode in episodes),
        "share/answered": fmean(episode.ending == "answer" for episode in episodes),
        "calls": len(results) / len(episodes),
    }
    if any(episode.failure for episode in episodes):
        metrics["share/failed"] = fmean(episode.failure != "" for episode in episodes)
    if results:
        metrics["share/faulty_calls"] = fmean(result.fault is not None for result in results)
    return metrics


class ToolTrainer(Trainer):
    def __init__(self, renderer: ToolRenderer, generation: Generation, settings: ToolGrpo, **arguments: Any) -> None:
        super().__init__(settings=settings, **arguments)
        self.failures = FailureLimit(settings.max_failed, settings.prompts_per_step * settings.num_generations)
        self._tokenizer.response_template = None  # otherwise TRL also parses first turns, and deeply nested JSON raises
        self.renderer = renderer
        self.generation = generation

    def _tool_call_loop(
        self,
        prompts: Any,
        prompt_ids: list[list[int]],
        completion_ids: list[list[int]],
        completions: Any,
        logprobs: list[list[float]] | None,
        *_: Any,
    ) -> tuple[Any, ...]:
        """Run the episodes after the first turns, which TRL sampled; return what TRL's own loop would."""
        environments: list[EpisodeEnvironment] = self.environments
        by_tools = {type(environment): index for index, environment in enumerate(environments)}
        for index in by_tools.values():  # one prompt for each set of tools
            self._check_prompt(prompts[index], prompt_ids[index], environments[index].toolbox)
        first_turns = [(completion_ids, logprobs)]

        def sample(contexts: list[list[int]]) -> Any:
            return first_turns.pop() if first_turns else self._generate_single_turn(contexts, None, {}, 1)

        for environment, ids in zip(environments, prompt_ids, strict=True):
            environment.episode = Rollout(list(ids), environment.toolbox)
        episodes = [environment.episode for environment in environments]
        sampled_before = self._seconds["sampling"]
        with self.timed("tools"):
            run_episodes(episodes, sample, self.renderer, self.generation, frozenset(self.eos_token_ids))
        self._seconds["tools"] -= self._seconds["sampling"] - sampled_before
        self._note_failures(environments)
        results = [result for episode in episodes for result in episode.results]
        return (
            [episode.mask for episode in episodes],
            [
                [{"role": message.role, "content": message.content} for message in episode.messages]
                for episode in episodes
            ],
            [episode.completion_ids for episode in episodes],
            None if logprobs is None else [episode.logprobs for episode in episodes],
            len(results),
            sum(result.fault is not None for result in results),
            [[] for _ in episodes],  # images
        )

    def _note_failures(self, environments: Sequence[EpisodeEnvironment]) -> None:
        """Raise `InputError` for too many failed episodes; of held-out ones, which choose the adapter, for any."""
        if self.model.training:
            self.failures.add([environment.episode.failure for environment in environments])
            return
        for environment in environments:
            if environment.episode.failure:
                raise InputError(f"held-out question {environment.question.question_id}: {environment.episode.failure}")

    def _check_prompt(self, prompt: Any, ids: list[int], toolbox: Toolbox) -> None:
        """Raise unless TRL renders the prompt as the evaluation does."""
        ours = self.renderer.ids(self.renderer.offering(toolbox.schemas).prompt(prompt[-1]["content"]))
        if list(ids) != ours:
            theirs = self.renderer.tokenizer.decode(ids)
            raise InputError(f"TRL renders prompts differently from the evaluation: {theirs[-200:]!r}")


def fitting(
    questions: Sequence[Question],
    renderer: ToolRenderer,
    open_toolbox: Callable[[Question], Toolbox],
    window: int,
    answer: int,
) -> list[Question]:
    """Return the questions whose prompts leave room for `answer` tokens; raise `InputError` if there are none."""
    if not questions:
        raise InputError("there are no training questions: all were left out when the files were written")
    short, too_long = [], []
    for question in questions:
        n_tokens = len(renderer.ids(renderer.offering(open_toolbox(question).schemas).prompt(question.text)))
        if n_tokens <= window - answer:
            short.append(question)
        else:
            too_long.append(n_tokens)
    if not short:
        raise NoRoomError("training questions", len(too_long), too_long, window, answer, MAKE_ROOM)
    logger.info("%d of %d questions leave no room for an episode and were left out", len(too_long), len(questions))
    return short


@dataclass(kw_only=True)
class ToolEnvironment:
    """The training environment of questions to answer with tools."""

    questions: Sequence[Question]  # whose prompts are not too long (`fitting`)
    renderer: ToolRenderer
    training: ToolGrpo
    generation: Generation
    open_toolbox: Callable[[Question], Toolbox]
    names: Sequence[str]  # the tools, as on the command line
    executors: Executors
    files_hash: str  # hash of what tools read
    seed: int

    def __post_init__(self) -> None:
        self.reward = Reward(self.training.rewards, REWARDS)
        self.tool_sets: list[list[ToolSignature]] = []  # all different ones
        rows = []
        for question in self.questions:
            tools = self.open_toolbox(question).signatures
            if tools not in self.tool_sets:
                self.tool_sets.append(tools)
            row = {"prompt": self.renderer.opening(question.text), "question_id": question.question_id}
            rows.append(row | {"environment": str(self.tool_sets.index(tools))})
        if len(self.tool_sets) == 1:  # TRL reads the column only if there is a choice
            rows = [{key: value for key, value in row.items() if key != "environment"} for row in rows]
        self.data = TrainingData.split(rows, self.training.n_heldout, self.seed)

    def identity(self) -> dict[str, Any]:
        return {
            "generation": self.generation.model_dump(exclude=marked(Generation, EVALUATION)),
            "tools": list(self.names),
            "files": self.files_hash,
            "questions": settings_hash({question.question_id: repr(question) for question in self.questions}),
            **modules_hash(self.questions),
            **({} if self.reward.terms == CORRECT else {"reward": self.reward.identity()}),
        }

    def arguments(self) -> dict[str, Any]:
        limits = self.generation
        return tool_rollouts(self.training, limits.max_turn_tokens, limits.enable_thinking, self.renderer.stop_id)

    @property
    def longest_completion(self) -> int:
        return self.generation.max_episode_tokens

    def trainer(self, tokenizer: Any, ends: list[int], **arguments: Any) -> Trainer:
        tokenizer.eos_token = self.generation.stop_token
        questions = {question.question_id: question for question in self.questions}
        factories = {  # by the name in a row's column `environment`
            str(index): partial(environment_class(tools), questions, self.open_toolbox)
            for index, tools in enumerate(self.tool_sets)
        }
        return ToolTrainer(
            self.renderer,
            self.generation,
            settings=self.training,
            scorer=Rewards(
                self.executors,
                self.training.num_generations,
                self.generation.max_episode_tokens,
                self.reward,
            ),
            environment_factory=factories if len(factories) > 1 else factories["0"],
            **arguments,
        )
