"""Grade answers of ARC: extract the program, execute it on grids, compare. Shards and rewards use the same code.

answer   "```python\\ndef transform(grid):\\n    return np.fliplr(grid)\\n```" on the inputs [[1, 0]] and [[2, 0]],
         whose outputs are [[0, 1]] and [[5, 2]]
grade    status "ok", outputs [[0, 1]] and [[0, 2]], correct grids 0.5, pixel score 0.75
"""

from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass

from arc_refinery.arc.grids import Grid
from arc_refinery.domains.arc.config.rewards import Grade
from arc_refinery.domains.arc.records import Prompt, Verdict
from arc_refinery.domains.domain import Answer
from arc_refinery.domains.prompts import extract_code
from arc_refinery.records.refining import NO_CODE
from arc_refinery.sandbox import Executor, Program


@dataclass(frozen=True, slots=True)
class Subject:
    """Pairs to execute a program on, in the form shown to the model; `n_shown` of them are train pairs.

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


def outputs_seen(prompt: Prompt, verdict: Verdict) -> tuple[Grid, ...]:
    """Return the outputs for the train pairs, in the form in which the prompt showed these."""
    shown, outputs = prompt.detail, verdict.detail.train_outputs
    return tuple(shown.augmentation.apply(outputs[index]) for index in shown.train_order)
