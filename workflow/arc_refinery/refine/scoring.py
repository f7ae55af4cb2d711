"""What completions earn while GRPO samples them, and the figures of each step."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from arc_refinery.config import Grpo
from arc_refinery.refine.grading import Grade, grade_answers
from arc_refinery.refine.rewards import REWARDS
from arc_refinery.refine.rollout import Episode
from arc_refinery.refine.rows import TrainingPrompt, prompt_of_row
from arc_refinery.sandbox import Executor
from arc_refinery.training.step_metrics import Measured, ngram_repetition, step_metrics


@dataclass(frozen=True, slots=True)
class _Sampled:
    """One completion as the reward sees it."""

    token_ids: list[int]  # those that were sampled
    is_truncated: bool
    graded: Grade  # of its last answer
    parent: Grade | None  # of the answer that the last one refines; None where it need not be known


class Scorer:
    """A reward function of TRL: one number for each completion, from executing its last answer.

    `rewards` keeps the numbers of the last call, for advantages that TRL does not know.
    """

    def __init__(self, settings: Grpo, executor: Executor, ends: Sequence[int]) -> None:
        self.settings = settings
        self.executor = executor
        self.ends = frozenset(ends)
        self.reward = REWARDS[settings.reward_name]
        self.rewards: list[float] = []
        self.__name__ = settings.reward_name  # TRL's metrics carry it

    def __call__(
        self,
        prompts: Sequence[list[dict[str, str]]],
        completions: Sequence[list[dict[str, str]]],
        completion_ids: Sequence[list[int]],
        log_metric: Callable[[str, float], None],
        episode: Sequence[Episode] | None = None,
        **columns: Any,
    ) -> list[float]:
        """TRL hands over the columns of the data set, repeated for each completion."""
        if episode is None:
            rows = [
                {"prompt": prompt, **{name: columns[name][index] for name in ("assistant_prefix", "train", "test")}}
                for index, prompt in enumerate(prompts)
            ]
            texts = [completion[0]["content"] for completion in completions]
            sampled = self._of_answers([prompt_of_row(row) for row in rows], texts, completion_ids)
        else:
            sampled = [_of_episode(one) for one in episode]
        self.rewards = [self._earned(one) for one in sampled]
        metrics = self._metrics(sampled)
        for name, value in metrics.items():
            log_metric(name, value)
        return self.rewards

    def _of_answers(
        self, asked: Sequence[TrainingPrompt], texts: Sequence[str], completion_ids: Sequence[list[int]]
    ) -> list[_Sampled]:
        answers = [one.answered(one.prefix + text) for one, text in zip(asked, texts, strict=True)]
        parents: list[Grade | None] = [None] * len(asked)
        if self.settings.improvement_weight:
            refining = [index for index, one in enumerate(asked) if one.parent is not None]
            of_parents = grade_answers(
                [asked[index].answered(str(asked[index].parent)) for index in refining], self.executor
            )
            for index, graded in zip(refining, of_parents, strict=True):
                parents[index] = graded
        return [
            _Sampled(ids, ids[-1] not in self.ends, graded, parent)
            for ids, graded, parent in zip(completion_ids, grade_answers(answers, self.executor), parents, strict=True)
        ]

    def _earned(self, sampled: _Sampled) -> float:
        settings, earned = self.settings, self.reward(sampled.graded)
        improvement = 0.0 if sampled.parent is None else max(0.0, earned - self.reward(sampled.parent))
        earned += settings.improvement_weight * improvement
        if settings.repetition_weight:
            earned -= settings.repetition_weight * ngram_repetition(sampled.token_ids)
        return earned - settings.truncation_penalty * sampled.is_truncated

    def _metrics(self, sampled: Sequence[_Sampled]) -> dict[str, float]:
        measured = [
            Measured(one.token_ids, one.is_truncated, reward, one.graded.status, one.graded.is_solved)
            for one, reward in zip(sampled, self.rewards, strict=True)
        ]
        metrics = step_metrics(measured, self.settings.num_generations)
        if self.settings.rollout == "on-policy":
            refined = [(one.graded, one.parent) for one in sampled if one.parent is not None]
            metrics["share/second_turn"] = len(refined) / len(sampled)
            if refined:
                improved = sum(self.reward(graded) > self.reward(parent) for graded, parent in refined)
                metrics["share/improved"] = improved / len(refined)
        return metrics


def _of_episode(episode: Episode) -> _Sampled:
    sampled = [token for token, mask in zip(episode.completion_ids, episode.mask, strict=True) if mask]
    parent = episode.graded[0] if len(episode.graded) > 1 else None
    return _Sampled(sampled, episode.is_truncated, episode.graded[-1], parent)
