"""Demonstrations for supervised fine-tuning: second turns answered with a correct program.

The program is the task's own source, which solves the task only without augmentation, or a sampled correct attempt on
the same prompt. In hindsight, every program that ran is correct, for the task that its own outputs make:

    task        12 -> 21, 30 -> 03     test 12 -> 21
    program     returns the grid itself
    hindsight   12 -> 12, 30 -> 30     test 12, answered by this program; others are wrong
"""

import logging
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, islice

import numpy as np

from arc_refinery.arc.augment import IDENTITY
from arc_refinery.arc.metrics import mean_pixel_score
from arc_refinery.arc.tasks import Pair, Task
from arc_refinery.barc.generator import has_held_out_text
from arc_refinery.records import Demonstration, Prompt
from arc_refinery.refining.config import Demonstrations
from arc_refinery.refining.graded import GradedAttempt
from arc_refinery.refining.next_turn import best_incorrect, outputs_seen, refining_conversation
from arc_refinery.refining.prompts import (
    Renderer,
    Template,
    body_of,
    completed_answer,
    extract_code,
    first_turn,
    split_prefix,
    transform_program,
)
from arc_refinery.sandbox import Executor, Program, Status
from arc_refinery.seeding import stream

SOURCE = "source"

logger = logging.getLogger(__name__)


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


def is_generated(task: Task) -> bool:
    return task.origin.startswith("generated")


def source_answers(tasks: Iterable[Task], template: Template, executor: Executor) -> dict[str, Target]:
    """Return answers with the tasks' own programs, by task id, if the program gives every train and test output."""
    executed: deque[tuple[Task, Target]] = deque()
    counts: Counter[str] = Counter()

    def programs() -> Iterator[Program]:
        for task in tasks:
            counts["tasks"] += 1
            bare = is_generated(task)  # in pretraining, such programs had no comment on their concepts
            program = transform_program(task.source, bare)
            text = program and completed_answer(program, template.assistant_prefix)
            if text:
                executed.append((task, Target(SOURCE, text)))
                inputs = tuple(pair.input for pair in task.pairs)
                yield Program(task.task_id, str(extract_code(text)), inputs)

    answers: dict[str, Target] = {}
    for outcome in executor.run(programs()):
        task, answer = executed.popleft()
        if outcome.status == Status.ok and all(
            np.array_equal(output, pair.output) for output, pair in zip(outcome.outputs, task.pairs, strict=True)
        ):
            answers[task.task_id] = answer
    n_tasks = counts["tasks"]
    logger.info(
        "%d of %d tasks left out: their source does not reproduce their outputs", n_tasks - len(answers), n_tasks
    )
    return answers


def make_demonstrations(
    graded: Iterable[GradedAttempt],
    sources: Mapping[str, Target],
    plan: DemonstrationPlan,
    template: Template,
    renderer: Renderer,
    counts: Counter[str],
    generated: Collection[str] = (),
) -> Iterator[Demonstration]:
    """Yield the demonstrations of each task; in `graded`, the first-turn attempts of a task are consecutive.

    About `first_turn_share` of the rows are first turns instead of refinements. `generated` are the tasks of the
    built-in generator. `counts` gets `n_tasks`, `n_too_easy` (above `max_pass_rate`), `n_tasks_without_target` (no
    correct program to learn, though an attempt was incorrect) and `n_too_long`.
    """
    for task_id, group in groupby(graded, key=lambda graded_attempt: graded_attempt.attempt.task_id):
        attempts = list(islice(group, plan.n_considered))
        counts["n_tasks"] += 1
        if sum(map(_is_correct, attempts)) > plan.settings.max_pass_rate * len(attempts):
            counts["n_too_easy"] += 1
            continue
        if plan.settings.targets == "hindsight":
            pairs = list(islice(_in_hindsight(attempts, template, task_id in generated), plan.settings.n_parents))
            has_target = bool(pairs)
        else:
            targets = _targets(attempts, sources, plan.settings, task_id in generated)
            incorrect = best_incorrect(attempts, plan.include_errors)
            pairs = [(parent, targets[name]) for parent in incorrect if (name := parent.prompt.prompt_id) in targets]
            has_target = bool(pairs) or not incorrect
        counts["n_tasks_without_target"] += not has_target
        for number, (parent, target) in enumerate(pairs[: plan.settings.n_parents]):
            row = _demonstration(f"{task_id}/sft-{number:03d}", parent, target, plan, template, renderer)
            n_completion = renderer.count(row.completion) + 1
            if row.n_tokens <= plan.max_seq_length and n_completion <= plan.max_completion_length:
                yield row
            else:
                counts["n_too_long"] += 1


def _targets(
    attempts: Sequence[GradedAttempt],
    sources: Mapping[str, Target],
    settings: Demonstrations,
    is_generated: bool,
) -> dict[str, Target]:
    """Return the answer to learn for each prompt of a task that has a correct one."""
    if settings.targets == "source":
        return {
            graded.prompt.prompt_id: sources[graded.attempt.task_id]
            for graded in attempts
            if graded.prompt.augmentation == IDENTITY and graded.attempt.task_id in sources
        }
    correct = [graded for graded in attempts if _is_correct(graded) and _can_be_learned(graded, is_generated)]
    frequency = Counter((graded.prompt.prompt_id, graded.attempt.completion) for graded in correct)

    def rank(graded: GradedAttempt) -> tuple[int, int]:
        return frequency[graded.prompt.prompt_id, graded.attempt.completion], -graded.attempt.n_tokens

    best: dict[str, GradedAttempt] = {}
    for graded in correct:
        if rank(graded) > rank(best.setdefault(graded.prompt.prompt_id, graded)):
            best[graded.prompt.prompt_id] = graded
    return {name: Target(graded.attempt.attempt_id, graded.attempt.completion) for name, graded in best.items()}


def _in_hindsight(
    attempts: Sequence[GradedAttempt], template: Template, is_generated: bool
) -> Iterator[tuple[GradedAttempt, Target]]:
    """Yield an attempt to refine and the answer to learn, for each program with train grids of its own.

    The attempt, on the same prompt, is the one whose grids are nearest; without one, it is the answer itself.
    """
    ran = [graded for graded in attempts if graded.verdict.status == Status.ok]
    seen: set[bytes] = set()
    for answer in ran:
        grids = _train_grids(answer)
        if grids in seen or not _can_be_learned(answer, is_generated):
            continue
        seen.add(grids)
        on_prompt = (other for other in ran if other.prompt.prompt_id == answer.prompt.prompt_id)
        others = [other for other in on_prompt if _train_grids(other) != grids]
        wanted = answer.verdict.train_outputs
        nearest = max(others, key=lambda other: mean_pixel_score(other.verdict.train_outputs, wanted), default=answer)
        yield (
            replace(nearest, prompt=_hindsight_prompt(answer, template)),
            Target(answer.attempt.attempt_id, answer.attempt.completion),
        )


def _train_grids(graded: GradedAttempt) -> bytes:
    return b"".join(bytes(grid.shape) + grid.tobytes() for grid in graded.verdict.train_outputs)


def _hindsight_prompt(graded: GradedAttempt, template: Template) -> Prompt:
    """Return an attempt's prompt with its program's grids as the outputs of the train pairs."""
    outputs = zip(graded.prompt.train, outputs_seen(graded), strict=True)
    train = tuple(Pair(pair.input, output) for pair, output in outputs)
    messages = first_turn(Task(graded.prompt.task_id, train, graded.prompt.test, ""), template)
    return replace(graded.prompt, train=train, messages=tuple(messages))


def _can_be_learned(graded: GradedAttempt, is_generated: bool) -> bool:
    """Programs of the generator's evaluation sets are never learned, even if sampling finds one."""
    is_held_out = is_generated and has_held_out_text(body_of(graded.attempt.completion))
    return graded.attempt.finish_reason == "stop" and not is_held_out


def _is_correct(graded: GradedAttempt) -> bool:
    return graded.verdict.train_is_correct and graded.verdict.test_is_correct


def _demonstration(
    name: str, parent: GradedAttempt, target: Target, plan: DemonstrationPlan, template: Template, renderer: Renderer
) -> Demonstration:
    can_refine = parent.attempt.attempt_id != target.origin
    is_first_turn = not can_refine or stream(plan.seed, "first turns", name).random() < plan.settings.first_turn_share
    messages = list(parent.prompt.messages) if is_first_turn else refining_conversation(parent, template)
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
