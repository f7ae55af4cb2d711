"""Demonstrations for supervised fine-tuning: second turns answered with a correct program.

The program is the task's own source, where the prompt shows the task itself, or a sampled correct attempt on a prompt
that reads the same.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from typing import Any

from arc_refinery.domains.domain import Domain, GradedAttempt
from arc_refinery.domains.prompts import Renderer, rest_of_answer
from arc_refinery.programs import likeness
from arc_refinery.records import Demonstration
from arc_refinery.refining.config import Demonstrations
from arc_refinery.refining.graded import program_of
from arc_refinery.refining.next_turn import best_incorrect

SOURCE = "source"
N_PARENTS = 8  # incorrect attempts per task to refine, best first

Target = tuple[str, str]  # "source", or the id of the attempt that has the program, and the whole answer with it


@dataclass(frozen=True, slots=True)
class DemonstrationPlan:
    """Settings of the demonstrations to make."""

    settings: Demonstrations
    n_considered: int  # attempts per task that may be used, from the first
    include_errors: bool
    max_seq_length: int  # tokens of prompt, completion and end token; longer rows are left out
    max_completion_length: int  # tokens of completion and end token


def make_demonstrations(
    domain: Domain,
    graded: Iterable[GradedAttempt],
    sources: Mapping[str, str],
    plan: DemonstrationPlan,
    wording: Any,
    renderer: Renderer,
    counts: Counter[str],
    is_learnable: Callable[[GradedAttempt], bool],
) -> Iterator[Demonstration]:
    """Yield the demonstrations of each task; in `graded`, the first-turn attempts of a task are consecutive.

    `sources` are whole answers by task id. `counts` gets `n_tasks`, `n_tasks_without_target` (no correct program to
    learn, though an attempt was incorrect) and `n_too_long`.
    """
    for task_id, group in groupby(graded, key=lambda graded_attempt: graded_attempt.attempt.task_id):
        attempts = list(islice(group, plan.n_considered))
        counts["n_tasks"] += 1
        incorrect = best_incorrect(domain, attempts, plan.include_errors)
        if plan.settings.targets == "source":
            answered: Iterable[tuple[GradedAttempt, Target]] = (
                (parent, (SOURCE, sources[task_id]))
                for parent in incorrect
                if task_id in sources and domain.shows_task_itself(parent.prompt)
            )
        else:
            correct = [
                graded
                for graded in attempts
                if graded.verdict.solved and graded.attempt.finish_reason == "stop" and is_learnable(graded)
            ]
            answered = _correct_attempts(domain, incorrect, correct, by_likeness=plan.settings.targets == "nearest")
        pairs = list(islice(answered, N_PARENTS))
        counts["n_tasks_without_target"] += bool(incorrect) and not pairs
        for number, (parent, target) in enumerate(pairs):
            row = _demonstration(f"{task_id}/sft-{number:03d}", parent, target, domain, wording, renderer)
            n_completion = renderer.count(row.completion) + 1
            if row.n_tokens <= plan.max_seq_length and n_completion <= plan.max_completion_length:
                yield row
            else:
                counts["n_too_long"] += 1


def _correct_attempts(
    domain: Domain, incorrect: Iterable[GradedAttempt], correct: Iterable[GradedAttempt], by_likeness: bool
) -> Iterator[tuple[GradedAttempt, Target]]:
    """Yield the attempts whose prompt has a correct one, with the most frequent of these, or the nearest."""
    of_prompt: defaultdict[str, list[GradedAttempt]] = defaultdict(list)
    for graded in correct:
        of_prompt[graded.prompt.text].append(graded)
    for parent in incorrect:
        if candidates := of_prompt[parent.prompt.text]:
            best = _best(domain, candidates, parent if by_likeness else None)
            yield parent, (best.attempt.attempt_id, best.attempt.completion)


def _best(domain: Domain, candidates: Sequence[GradedAttempt], near: GradedAttempt | None) -> GradedAttempt:
    """Return the attempt nearest to `near`; of equally near ones the most frequent, the shortest, the first."""
    frequency = Counter(graded.attempt.completion for graded in candidates)
    distinct = {graded.attempt.completion: graded for graded in candidates}
    nearness = dict.fromkeys(distinct, 0.0)
    if near:
        program = program_of(domain, near)
        nearness = {text: likeness(program, program_of(domain, graded)) for text, graded in distinct.items()}

    def rank(graded: GradedAttempt) -> tuple[float, int, int]:
        text = graded.attempt.completion
        return nearness[text], frequency[text], -graded.attempt.n_tokens

    return max(candidates, key=rank)


def _demonstration(
    name: str,
    parent: GradedAttempt,
    target: Target,
    domain: Domain,
    wording: Any,
    renderer: Renderer,
) -> Demonstration:
    messages = domain.next_turn(parent, parent, "whole", wording).messages
    text, n_prompt = renderer.render(messages)
    origin, answer = target
    completion = renderer.plain(rest_of_answer(answer, text, messages))
    return Demonstration(
        demonstration_id=name,
        task_id=parent.attempt.task_id,
        turn=parent.prompt.turn + 1,
        parent_id=parent.attempt.attempt_id,
        text=text,
        completion=completion,
        target=origin,
        n_tokens=n_prompt + renderer.count(completion) + 1,
    )
