"""The training environment of tool use, through TRL's environment interface.

TRL puts an environment's tools into the prompt, resets one environment per episode, and passes them all to the reward.
tool_use/episodes.py runs the episodes instead of TRL's own loop, which treats a call that is not valid JSON as an
answer, does not report truncated calls, and has one limit for all tokens.
"""

from collections.abc import Callable, Sequence
from copy import copy
from inspect import Parameter, Signature
from statistics import fmean
from typing import Any

from trl.chat_template_utils import (
    add_response_schema,
    get_training_chat_template,
    is_chat_template_prefix_preserving,
)

from arc_refinery.config import EVALUATION, Generation, PolicyGradient, marked
from arc_refinery.library_arguments import tool_rollouts
from arc_refinery.records import settings_hash
from arc_refinery.records.questions import Question
from arc_refinery.sandbox import Executor
from arc_refinery.tool_use.episodes import Rollout, run_episodes
from arc_refinery.tool_use.rendering import ToolRenderer, ToolTemplateError
from arc_refinery.tool_use.rewards import grade_episodes
from arc_refinery.tool_use.tools import TOOLS, Tool, Toolbox
from arc_refinery.training.grpo import TrainingData, TrainingError
from arc_refinery.training.step_metrics import ScoredCompletion, step_metrics
from arc_refinery.training.trainer import Trainer


def check_template(tokenizer: Any) -> None:
    """Raise `ToolTemplateError` unless TRL supports the model's chat template, which it recognises by its text."""
    try:
        known = add_response_schema(copy(tokenizer))
        if not is_chat_template_prefix_preserving(known):
            get_training_chat_template(known)
    except ValueError as error:
        raise ToolTemplateError(
            f"{tokenizer.name_or_path}: TRL cannot train with its chat template ({error})"
        ) from None


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


def environment_class(names: Sequence[str]) -> type[EpisodeEnvironment]:
    """Return an `EpisodeEnvironment` with a method per tool, with the signature and docstring that TRL reads."""
    return type("ToolEnvironment", (EpisodeEnvironment,), {name: _method(TOOLS[name]) for name in names})


def _method(tool: Tool) -> Callable[..., str]:
    # TRL only reads the signature: run_episodes runs the calls
    def call(self: EpisodeEnvironment, **arguments: str) -> str:
        return self.toolbox.run(tool.name, arguments).text

    descriptions = "\n".join(f"    {name}: {text}" for name, text in tool.parameters.items())
    parameters = [Parameter(name, Parameter.KEYWORD_ONLY, annotation=str) for name in tool.parameters]
    call.__name__ = tool.name
    call.__doc__ = f"{tool.description}\n\nArgs:\n{descriptions}"
    call.__annotations__ = dict.fromkeys(tool.parameters, str)
    call.__signature__ = Signature([Parameter("self", Parameter.POSITIONAL_ONLY), *parameters])  # type: ignore[attr-defined]
    return call


class Rewards:
    """A reward function of TRL: grades the last turn of each episode."""

    def __init__(self, executor: Executor, graders: Executor, num_generations: int) -> None:
        """`graders` compares the programs' values with the expected ones, and never runs a program (code_exec.py)."""
        self.executor = executor
        self.graders = graders
        self.num_generations = num_generations
        self.rewards: list[float] = []
        self.__name__ = "answer"  # part of the names of TRL's metrics

    def __call__(
        self, environments: Sequence[EpisodeEnvironment], log_metric: Callable[[str, float], None], **_: Any
    ) -> list[float]:
        episodes = [environment.episode for environment in environments]
        questions = [environment.question for environment in environments]
        graded = grade_episodes([episode.last_turn for episode in episodes], questions, self.executor, self.graders)
        self.rewards = [one.reward for one in graded]
        scored = [
            ScoredCompletion(_sampled(episode), episode.ending in ("truncated", "tokens"), reward, "", reward == 1.0)
            for episode, reward in zip(episodes, self.rewards, strict=True)
        ]
        for name, value in (step_metrics(scored, self.num_generations) | _metrics(episodes)).items():
            log_metric(name, value)
        return self.rewards


def _sampled(episode: Rollout) -> list[int]:
    return [token for token, is_sampled in zip(episode.completion_ids, episode.mask, strict=True) if is_sampled]


def _metrics(episodes: Sequence[Rollout]) -> dict[str, float]:
    """Return shares of episodes and of calls."""
    results = [result for episode in episodes for result in episode.results]
    metrics = {
        "share/calling": fmean(bool(episode.results) for episode in episodes),
        "share/answered": fmean(episode.ending == "answer" for episode in episodes),
        "calls": len(results) / len(episodes),
    }
    if results:
        metrics["share/faulty_calls"] = fmean(result.fault is not None for result in results)
    return metrics


class ToolTrainer(Trainer):
    def __init__(self, renderer: ToolRenderer, generation: Generation, **arguments: Any) -> None:
        super().__init__(**arguments)
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
        self._check_prompt(prompts[0], prompt_ids[0])
        environments: list[EpisodeEnvironment] = self.environments
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

    def _check_prompt(self, prompt: Any, ids: list[int]) -> None:
        """Raise unless TRL renders the prompt as the evaluation does."""
        ours = self.renderer.ids(self.renderer.prompt(prompt[-1]["content"]))
        if list(ids) != ours:
            theirs = self.renderer.tokenizer.decode(ids)
            raise ToolTemplateError(f"TRL renders prompts differently from the evaluation: {theirs[-200:]!r}")


class ToolEnvironment:
    """The training environment of questions to answer with tools."""

    def __init__(
        self,
        questions: Sequence[Question],
        renderer: ToolRenderer,
        training: PolicyGradient,
        generation: Generation,
        window: int,
        open_toolbox: Callable[[Question], Toolbox],
        names: Sequence[str],
        executors: tuple[Executor, Executor],
        files_hash: str,
        seed: int,
    ) -> None:
        """`executors` run programs and compare their values; `files_hash` is the hash of the readable files.

        Questions whose prompts leave no room for an episode in the window are left out. Raise `TrainingError` if none
        are left.
        """
        longest = window - generation.max_episode_tokens
        fitting = [one for one in questions if len(renderer.ids(renderer.prompt(one.text))) <= longest]
        if not questions:
            raise TrainingError("there are no training questions: all were left out when the files were written")
        if not fitting:
            raise TrainingError(
                f"none of {len(questions)} questions has a prompt of at most {longest} tokens, that is model.window "
                "minus generation.max_episode_tokens; raise the former or lower the latter"
            )
        self.n_left_out = len(questions) - len(fitting)
        self.questions = {one.question_id: one for one in fitting}
        self.renderer = renderer
        self.training = training
        self.generation = generation
        self.open_toolbox = open_toolbox
        self.names = names
        self.executors = executors
        self.files_hash = files_hash
        rows = [{"prompt": renderer.opening(one.text), "question_id": one.question_id} for one in fitting]
        self.data = TrainingData.split(rows, training.n_heldout, seed)

    def identity(self) -> dict[str, Any]:
        return {
            "generation": self.generation.model_dump(exclude=marked(Generation, EVALUATION)),
            "tools": list(self.names),
            "files": self.files_hash,
            "questions": settings_hash({name: repr(question) for name, question in self.questions.items()}),
        }

    def arguments(self) -> dict[str, Any]:
        return tool_rollouts(self.training, self.generation, self.renderer.stop_id)

    def trainer(self, tokenizer: Any, ends: list[int], **arguments: Any) -> Trainer:
        tokenizer.eos_token = self.generation.stop_token
        environment = environment_class(self.names)
        return ToolTrainer(
            self.renderer,
            self.generation,
            settings=self.training,
            scorer=Rewards(*self.executors, self.training.num_generations),
            environment_factory=lambda: environment(self.questions, self.open_toolbox),
            **arguments,
        )
