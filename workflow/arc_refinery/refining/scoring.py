"""Rewards of completions during GRPO, and the metrics of each step."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

from accelerate.utils import gather_object

from arc_refinery.domains.domain import Answer, Domain
from arc_refinery.domains.grading import grades_of
from arc_refinery.grades import solved
from arc_refinery.records.refining import NO_CODE
from arc_refinery.refining.config import Grpo
from arc_refinery.refining.config.rewards import REFINING_REWARDS, ScoredAttempt
from arc_refinery.refining.rollout import OnPolicyEpisode, TrainingPrompt
from arc_refinery.sandbox import Executor, Status
from arc_refinery.training.rewards import Reward, Scored, ScoredCompletion, ngram_repetition, step_metrics

FAILURES = (NO_CODE, *(str(status) for status in Status if status is not Status.ok))


def by_term(rows: Sequence[Mapping[str, float]]) -> dict[str, list[float]]:
    """Return the values of each term from those of each completion."""
    return {name: [row[name] for row in rows] for name in rows[0]}


@dataclass
class Scorer:
    """Executes the last answer of each completion, and scores it."""

    settings: Grpo
    reward: Reward
    domain: Domain
    executors: tuple[Executor, ...]
    ends: Sequence[int]
    prompts: Sequence[TrainingPrompt]

    def __post_init__(self) -> None:
        names = [term.reward for term in self.reward.terms]
        of_program = self.domain.program_rewards
        self.program_reward = next((of_program[name] for name in names if name in of_program), solved)
        self.needs_parents = any(term.own_code or term.reward in REFINING_REWARDS for term in self.reward.terms)
        self.name = self.reward.terms[0].name

    def __call__(
        self,
        completions: Sequence[list[dict[str, str]]],
        completion_ids: Sequence[list[int]],
        prompt_index: Sequence[int],
        log_metric: Callable[[str, float], None],
        episode: Sequence[OnPolicyEpisode] | None = None,
        attempt: Sequence[ScoredAttempt] | None = None,
        terms: Sequence[Mapping[str, float]] | None = None,
        **_: Any,
    ) -> Scored:
        """TRL passes the dataset's column `prompt_index`, repeated for each completion.

        `attempt` and `terms`: what `attempts` and the reward returned, if they were asked before.
        """
        prompts = [self.prompts[index] for index in prompt_index]
        texts = [completion[0]["content"] for completion in completions]
        attempts = attempt or self.attempts(prompt_index, texts, completion_ids, episode)
        values = self.reward.values(attempts) if terms is None else by_term(terms)
        rewards = self.rewards(values)
        sampled = completion_ids if episode is None else [turns.sampled_ids for turns in episode]
        turns_of = [None] * len(prompts) if episode is None else episode
        scored = [
            ScoredCompletion(
                ids,
                attempt.is_truncated,
                reward,
                attempt.status,
                attempt.is_solved,
                prompt.prompt.prompt_id,
                turns.turns if turns else (),
                tuple(map(self.program_reward, turns.grades[:-1])) if turns else (),
            )
            for prompt, ids, attempt, reward, turns in zip(prompts, sampled, attempts, rewards, turns_of, strict=True)
        ]
        metrics = step_metrics(gather_object(scored), self.settings.num_generations, FAILURES)
        if len(self.reward.terms) > 1:
            metrics |= self.reward.metrics(values)
        if episode is not None:
            gains = [
                attempt.reward - attempt.parent_reward for attempt in attempts if attempt.parent_reward is not None
            ]
            metrics["share/second_turn"] = len(gains) / len(attempts)
            if gains:
                metrics["share/improved"] = sum(gain > 0 for gain in gains) / len(gains)
        for name, value in metrics.items():
            log_metric(name, value)
        return Scored(scored, values)

    def attempts(
        self,
        prompt_index: Sequence[int],
        texts: Sequence[str],
        completion_ids: Sequence[list[int]],
        episode: Sequence[OnPolicyEpisode] | None,
    ) -> list[ScoredAttempt]:
        """Return the completions as the terms of the reward read them: executed, unless that was done turn by turn."""
        prompts = [self.prompts[index] for index in prompt_index]
        if episode is None:
            return self._graded_answers(prompts, texts, completion_ids)
        return [
            self._attempt(
                prompt,
                turns.answer,
                turns.sampled_ids,
                turns.is_truncated,
                turns.grades[-1],
                turns.grades[-2] if len(turns.grades) > 1 else None,
                turns.feedback,
            )
            for prompt, turns in zip(prompts, episode, strict=True)
        ]

    def rewards(self, values: Mapping[str, Sequence[float]]) -> list[float]:
        """Return the rewards from the values of their terms."""
        return [reduce(add, summands) for summands in self.reward.weighted(values)]

    def _graded_answers(
        self, prompts: Sequence[TrainingPrompt], texts: Sequence[str], completion_ids: Sequence[list[int]]
    ) -> list[ScoredAttempt]:
        answers = [prompt.answer(text) for prompt, text in zip(prompts, texts, strict=True)]
        names = [prompt.prompt.prompt_id for prompt in prompts]
        parents: list[Any] = [None] * len(prompts)
        if self.needs_parents:
            refining = [index for index, prompt in enumerate(prompts) if prompt.parent is not None]
            earlier = [Answer(str(prompts[index].parent), prompts[index].subject) for index in refining]
            refined = grades_of(self.domain, earlier, self.executors, [names[index] for index in refining])
            for index, grade in zip(refining, refined, strict=True):
                parents[index] = grade
        grades = grades_of(self.domain, answers, self.executors, names)
        return [
            self._attempt(prompt, answer.text, ids, ids[-1] not in self.ends, grade, parent, prompt.feedback)
            for prompt, answer, ids, grade, parent in zip(
                prompts, answers, completion_ids, grades, parents, strict=True
            )
        ]

    def _attempt(
        self,
        prompt: TrainingPrompt,
        text: str,
        token_ids: Sequence[int],
        is_truncated: bool,
        grade: Any,
        parent: Any,
        feedback: str,
    ) -> ScoredAttempt:
        return ScoredAttempt(
            grade=grade,
            task_id=prompt.task_id,
            completion=text,
            n_tokens=len(token_ids),
            is_truncated=is_truncated,
            repetition=ngram_repetition(token_ids),
            reward=self.program_reward(grade),
            parent_reward=None if parent is None else self.program_reward(parent),
            parent_grade=parent,
            parent_program=None if parent is None else parent.code,
            feedback=feedback,
        )
