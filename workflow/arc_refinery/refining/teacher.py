"""Feedback as a teacher: the model that has read the feedback on an answer teaches the model that wrote it.

The same model reads an answer twice: after its prompt, and after the same prompt with the feedback at its end. The
second reading knows what goes wrong. What it finds likelier than the first is made likelier, token by token (SDPO,
Hübotter et al. 2026, arXiv 2601.20802, with the sampled tokens alone, the current model as the teacher, and without
other completions as demonstrations):

    task | answer                log-probability of a token    -0.1
    task, feedback | answer      of the same token             -2.3    advantage -2.2

The teacher does not read the answer before it is asked for it, or it would copy it; `INTRODUCTION` says so. In a later
turn the prompt ends with feedback on the refined program already. A right answer has no feedback, so nothing is learned
from it. With a placebo, the feedback is that on an answer to another task.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from arc_refinery.models.chat import Message, special_marks, without_marks
from arc_refinery.refining.domain import Domain
from arc_refinery.refining.rollout import TrainingPrompt, can_be_refined
from arc_refinery.refining.scoring import Scorer

INTRODUCTION = "Feedback on an answer that is not shown:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Teacher:
    """Contexts of the teacher, one for each completion of a batch."""

    domain: Domain
    prompts: Sequence[TrainingPrompt]
    scorer: Scorer
    wording: Any
    include_errors: bool
    max_tokens: int  # length of the longest prompt that leaves room for an answer
    is_placebo: bool

    def __call__(self, trainer: Any) -> list[list[int] | None]:
        """Return token ids; None without feedback on the completion, or where it is too long."""
        marks = special_marks(trainer.processing_class.added_tokens_decoder)
        prompts = [self.prompts[row["prompt_index"]] for row in trainer.rows]
        grades = [attempt.grade for attempt in self.scorer.attempted]
        feedbacks = [self._feedback(number, prompts, grades) for number in range(len(prompts))]
        conversations = [
            with_feedback(prompt.conversation, without_marks(feedback, marks))
            for prompt, feedback in zip(prompts, feedbacks, strict=True)
            if feedback is not None
        ]
        tokenized = iter(trainer._tokenize_prompts(conversations)[0] if conversations else ())
        contexts = [None if feedback is None else next(tokenized) for feedback in feedbacks]
        return [ids if ids and len(ids) <= self.max_tokens else None for ids in contexts]

    def _feedback(self, number: int, prompts: Sequence[TrainingPrompt], grades: Sequence[Any]) -> str | None:
        prompt, grade = prompts[number], grades[number]
        if not self._is_wrong(grade):
            return None
        if self.is_placebo:
            after = [*range(number + 1, len(prompts)), *range(number)]
            others = (i for i in after if prompts[i].task_id != prompt.task_id and self._is_wrong(grades[i]))
            other = next(others, None)
            if other is None:
                return None
            prompt, grade = prompts[other], self.domain.other_grade(grade, grades[other])
        return self.domain.feedback(prompt.prompt, grade, self.wording)

    def _is_wrong(self, grade: Any) -> bool:
        return can_be_refined(grade, self.domain, self.include_errors)


def with_feedback(conversation: Sequence[Message], feedback: str) -> list[Message]:
    """Return a conversation whose last message ends with the feedback."""
    *earlier, last = conversation
    return [*earlier, {**last, "content": f"{last['content']}\n\n{INTRODUCTION}\n\n{feedback}"}]
