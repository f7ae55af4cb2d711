"""Rewards of completions during GRPO, and the metrics of each step."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from arc_refinery.config import Grpo
from arc_refinery.records.refining import NO_CODE
from arc_refinery.refine.grading import Grade, grade_answers
from arc_refinery.refine.rewards import REWARDS
from arc_refinery.refine.rollout import TwoTurnEpisode
from arc_refinery.refine.rows import TrainingPrompt, prompt_of_row
from arc_refinery.sandbox import Executor, Status
from arc_refinery.training import processes
from arc_refinery.training.step_metrics import ScoredCompletion, ngram_repetition, step_metrics

FAILURES = (NO_CODE, *(str(status) for status in Status if status is not Status.ok))


@dataclass(frozen=True, slots=True)
class _Completion:
    """One completion with its grade."""

    token_ids: list[int]  # the sampled ones
    is_truncated: bool
    grade: Grade  # of the last answer
    parent: Grade | None  # of the answer before it; None in a first turn, or if not needed


class Scorer:
    """A reward function of TRL: executes the last answer of each completion.

    `rewards` keeps the rewards of the last call, for advantages that TRL does not compute.
    """

    def __init__(self, settings: Grpo, executor: Executor, ends: Sequence[int]) -> None:
        self.settings = settings
        self.executor = executor
        self.ends = frozenset(ends)
        self.reward = REWARDS[settings.reward_name]
        self.rewards: list[float] = []
        self.__name__ = settings.reward_name  # part of the names of TRL's metrics

    def __call__(
        self,
        prompts: Sequence[list[dict[str, str]]],
        completions: Sequence[list[dict[str, str]]],
        completion_ids: Sequence[list[int]],
        log_metric: Callable[[str, float], None],
        episode: Sequence[TwoTurnEpisode] | None = None,
        **columns: Any,
    ) -> list[float]:
        """TRL passes the dataset's columns, repeated for each completion."""
        if episode is None:
            rows = [
                {"prompt": prompt, **{name: columns[name][index] for name in ("assistant_prefix", "train", "test")}}
                for index, prompt in enumerate(prompts)
            ]
            texts = [completion[0]["content"] for completion in completions]
            sampled = self._graded_answers([prompt_of_row(row) for row in rows], texts, completion_ids)
        else:
            sampled = [_last_answer(one) for one in episode]
        self.rewards = [self._reward(one) for one in sampled]
        metrics = self._metrics(sampled)
        for name, value in metrics.items():
            log_metric(name, value)
        return self.rewards

    def _graded_answers(
        self, prompts: Sequence[TrainingPrompt], texts: Sequence[str], completion_ids: Sequence[list[int]]
    ) -> list[_Completion]:
        answers = [one.answer(one.prefix + text) for one, text in zip(prompts, texts, strict=True)]
        parents: list[Grade | None] = [None] * len(prompts)
        if self.settings.improvement_weight:
            refining = [index for index, one in enumerate(prompts) if one.parent is not None]
            of_parents = grade_answers(
                [prompts[index].answer(str(prompts[index].parent)) for index in refining], self.executor
            )
            for index, grade in zip(refining, of_parents, strict=True):
                parents[index] = grade
        return [
            _Completion(ids, ids[-1] not in self.ends, grade, parent)
            for ids, grade, parent in zip(completion_ids, grade_answers(answers, self.executor), parents, strict=True)
        ]

    def _reward(self, completion: _Completion) -> float:
        settings, reward = self.settings, self.reward(completion.grade)
        improvement = 0.0 if completion.parent is None else max(0.0, reward - self.reward(completion.parent))
        reward += settings.improvement_weight * improvement
        if settings.repetition_weight:
            reward -= settings.repetition_weight * ngram_repetition(completion.token_ids)
        return reward - settings.truncation_penalty * completion.is_truncated

    def _metrics(self, sampled: Sequence[_Completion]) -> dict[str, float]:
        scored = [
            ScoredCompletion(one.token_ids, one.is_truncated, reward, one.grade.status, one.grade.is_solved)
            for one, reward in zip(sampled, self.rewards, strict=True)
        ]
        metrics = step_metrics(processes.gather(scored), self.settings.num_generations, FAILURES)
        if self.settings.rollout == "on-policy":
            refined = [(one.grade, one.parent) for one in sampled if one.parent is not None]
            metrics["share/second_turn"] = len(refined) / len(sampled)
            if refined:
                improved = sum(self.reward(grade) > self.reward(parent) for grade, parent in refined)
                metrics["share/improved"] = improved / len(refined)
        return metrics


def _last_answer(episode: TwoTurnEpisode) -> _Completion:
    sampled = [token for token, mask in zip(episode.completion_ids, episode.mask, strict=True) if mask]
    parent = episode.grades[0] if len(episode.grades) > 1 else None
    return _Completion(sampled, episode.is_truncated, episode.grades[-1], parent)
