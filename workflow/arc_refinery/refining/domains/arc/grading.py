"""Grade answers of ARC: extract the program, execute it on grids, compare. Shards and rewards use the same code.

answer   "```python\\ndef transform(grid):\\n    return np.fliplr(grid)\\n```" on the inputs [[1, 0]] and [[2, 0]],
         whose outputs are [[0, 1]] and [[5, 2]]
grade    status "ok", outputs [[0, 1]] and [[0, 2]], correct grids 0.5, pixel score 0.75
"""

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from arc_refinery import records
from arc_refinery.arc.grids import Grid, fingerprint
from arc_refinery.arc.metrics import correct_grids, mean_pixel_score
from arc_refinery.arc.tasks import Task
from arc_refinery.records import RecordError
from arc_refinery.records.refining import NO_CODE
from arc_refinery.refining.domain import Answer, Result
from arc_refinery.refining.domains.arc.config.rewards import Grade
from arc_refinery.refining.domains.arc.records import Attempt, Outputs, Prompt, Verdict
from arc_refinery.refining.prompts import extract_code
from arc_refinery.sandbox import Executor, Program


@dataclass(frozen=True, slots=True)
class Subject:
    """Pairs to execute a program on, in the form shown to the model; `n_shown` of them are in its prompt with outputs.

    In evaluation, `truths` are empty: outputs are compared on the original task.
    """

    inputs: tuple[Grid, ...]
    truths: tuple[Grid, ...]
    n_shown: int

    @classmethod
    def of(cls, prompt: Prompt) -> "Subject":
        """Return the pairs of a prompt whose outputs are known; Kaggle's test outputs may be unknown."""
        shown = prompt.detail
        train, others = (
            tuple(pair for pair in pairs if pair.output.size) for pairs in (shown.train, shown.test + shown.hidden)
        )
        inputs, truths = zip(*((pair.input, pair.output) for pair in train + others), strict=True)
        return cls(inputs, truths, len(train))


def grade_answers(answers: Sequence[Answer], executor: Executor) -> Generator[Grade, None, None]:
    """Yield grades in order. A failing program is a grade; a failing sandbox raises.

    Consecutive equal programs on equal inputs are executed once.
    """
    codes = [extract_code(answer.text) for answer in answers]
    programs = (
        Program(str(index), code, answer.subject.inputs)
        for index, (code, answer) in enumerate(zip(codes, answers, strict=True))
        if code is not None
    )
    with closing(executor.run(programs)) as outcomes:
        for code, answer in zip(codes, answers, strict=True):
            if code is None:
                yield Grade(NO_CODE)
                continue
            outcome = next(outcomes)
            subject = answer.subject
            yield Grade(str(outcome.status), outcome.error, code, outcome.outputs, subject.truths, subject.n_shown)


def subjects(attempts: Iterable[Attempt], tasks: Mapping[str, Task]) -> Iterator[Subject]:
    """Yield the subjects of attempts. Consecutive ones that run on the same grids share them."""
    seen_as, subject = None, Subject((), (), 0)
    for attempt in attempts:
        view = (attempt.task_id, attempt.detail)
        if view != seen_as:
            seen_as = view
            task = tasks[attempt.task_id]
            order = _order_seen(attempt, task)
            inputs = tuple(attempt.detail.augmentation.apply(task.pairs[index].input) for index in order)
            subject = Subject(inputs, (), len(task.train))
        yield subject


def result(grade: Grade, attempt: Attempt, task: Task) -> Result:
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


def _order_seen(attempt: Attempt, task: Task) -> list[int]:
    """Return the task's pairs, train, test and hidden, by index in the order of the attempt's prompt."""
    return [*attempt.detail.train_order, *range(len(task.train), len(task.pairs))]


def outputs_seen(prompt: Prompt, verdict: Verdict) -> tuple[Grid, ...]:
    """Return the outputs for the train pairs, in the form in which the prompt showed these."""
    shown, outputs = prompt.detail, verdict.detail.train_outputs
    return tuple(shown.augmentation.apply(outputs[index]) for index in shown.train_order)


def check_views(paths: Iterable[Path], tasks_path: Path, tasks: Mapping[str, Task]) -> None:
    """Raise `RecordError` unless attempts were shown all train pairs."""
    for path in paths:
        columns = records.columns(path, Attempt, ["attempt_id", "task_id", "detail"])
        for name, task_id, view in zip(*(column.to_pylist() for column in columns), strict=True):
            task = tasks[task_id]
            if sorted(view["train_order"]) != list(range(len(task.train))):
                raise RecordError(
                    f"{path}: the task {task_id} of the attempt {name} has other train pairs in {tasks_path}; give the "
                    "tasks that the attempts answer"
                )
