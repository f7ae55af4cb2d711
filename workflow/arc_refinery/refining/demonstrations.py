"""Demonstrations for supervised fine-tuning: second turns answered with a correct program.

The program is the task's own source, where the prompt shows the task itself, or a sampled correct attempt on the same
prompt. In hindsight, which ARC has, every program that ran is correct, for the task that its own outputs make.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from typing import Any

from arc_refinery.records import Demonstration
from arc_refinery.refining.config import Demonstrations
from arc_refinery.refining.domain import Domain, GradedAttempt
from arc_refinery.refining.next_turn import best_incorrect
from arc_refinery.refining.prompts import Renderer, split_prefix
from arc_refinery.seeding import stream

SOURCE = "source"

Learnable = Callable[[GradedAttempt], bool]


@dataclass(frozen=True, slots=True)
class Target:
    """A whole answer with a correct program."""

    origin: str  # "source", or the id of the attempt that has the program
    text: str


@dataclass(frozen=True, slots=True)
class DemonstrationPlan:
    """Settings of the demonstrations to make."""

    settings: Demonstrations
    n_considered: int  # attempts per task that may be used, from the first
    include_errors: bool
    max_seq_length: int  # tokens of prompt, completion and end token; longer rows are left out
    max_completion_length: int  # tokens of completion and end token
    seed: int


def make_demonstrations(
    domain: Domain,
    graded: Iterable[GradedAttempt],
    sources: Mapping[str, str],
    plan: DemonstrationPlan,
    wording: Any,
    renderer: Renderer,
    counts: Counter[str],
    is_learnable: Learnable = lambda graded: True,
) -> Iterator[Demonstration]:
    """Yield the demonstrations of each task; in `graded`, the first-turn attempts of a task are consecutive.

    About `first_turn_share` of the rows are first turns instead of refinements. `sources` are whole answers by task
    id. `counts` gets `n_tasks`, `n_too_easy` (above `max_pass_rate`), `n_tasks_without_target` (no correct program to
    learn, though an attempt was incorrect) and `n_too_long`.
    """

    def may_be_learned(graded: GradedAttempt) -> bool:
        return graded.attempt.finish_reason == "stop" and is_learnable(graded)

    for task_id, group in groupby(graded, key=lambda graded_attempt: graded_attempt.attempt.task_id):
        attempts = list(islice(group, plan.n_considered))
        counts["n_tasks"] += 1
        n_correct = sum(graded.verdict.solved for graded in attempts)
        if n_correct > plan.settings.max_pass_rate * len(attempts):
            counts["n_too_easy"] += 1
            continue
        if plan.settings.targets == "hindsight":
            found = islice(domain.hindsight(attempts, wording, may_be_learned), plan.settings.n_parents)
            pairs = [(parent, Target(answer.attempt_id, answer.completion)) for parent, answer in found]
            has_target = bool(pairs)
        else:
            targets = _targets(domain, attempts, sources, plan.settings, may_be_learned)
            incorrect = best_incorrect(domain, attempts, plan.include_errors)
            pairs = [(parent, targets[name]) for parent in incorrect if (name := parent.prompt.prompt_id) in targets]
            has_target = bool(pairs) or not incorrect
        counts["n_tasks_without_target"] += not has_target
        for number, (parent, target) in enumerate(pairs[: plan.settings.n_parents]):
            row = _demonstration(f"{task_id}/sft-{number:03d}", parent, target, plan, domain, wording, renderer)
            n_completion = renderer.count(row.completion) + 1
            if row.n_tokens <= plan.max_seq_length and n_completion <= plan.max_completion_length:
                yield row
            else:
                counts["n_too_long"] += 1


def _targets(
    domain: Domain,
    attempts: Sequence[GradedAttempt],
    sources: Mapping[str, str],
    settings: Demonstrations,
    may_be_learned: Learnable,
) -> dict[str, Target]:
    """Return the answer to learn for each prompt of a task that has a correct one."""
    if settings.targets == "source":
        return {
            graded.prompt.prompt_id: Target(SOURCE, sources[graded.attempt.task_id])
            for graded in attempts
            if domain.shows_task_itself(graded.prompt) and graded.attempt.task_id in sources
        }
    correct = [graded for graded in attempts if graded.verdict.solved and may_be_learned(graded)]
    frequency = Counter((graded.prompt.prompt_id, graded.attempt.completion) for graded in correct)

    def rank(graded: GradedAttempt) -> tuple[int, int]:
        return frequency[graded.prompt.prompt_id, graded.attempt.completion], -graded.attempt.n_tokens

    best: dict[str, GradedAttempt] = {}
    for graded in correct:
        if rank(graded) > rank(best.setdefault(graded.prompt.prompt_id, graded)):
            best[graded.prompt.prompt_id] = graded
    return {name: Target(graded.attempt.attempt_id, graded.attempt.completion) for name, graded in best.items()}


def _demonstration(
    name: str,
    parent: GradedAttempt,
    target: Target,
    plan: DemonstrationPlan,
    domain: Domain,
    wording: Any,
    renderer: Renderer,
) -> Demonstration:
    can_refine = parent.attempt.attempt_id != target.origin
    is_first_turn = not can_refine or stream(plan.seed, "first turns", name).random() < plan.settings.first_turn_share
    messages = list(parent.prompt.messages)
    if not is_first_turn:
        messages = domain.next_turn(parent, parent, "whole", wording).messages
    text, n_prompt = renderer.render(messages)
    completion = renderer.plain(target.text.removeprefix(split_prefix(messages)[1]))
    return Demonstration(
        demonstration_id=name,
        task_id=parent.attempt.task_id,
        turn=parent.prompt.turn + (not is_first_turn),
        parent_id="" if is_first_turn else parent.attempt.attempt_id,
        text=text,
        completion=completion,
        target=target.origin,
        n_tokens=n_prompt + renderer.count(completion) + 1,
    )
