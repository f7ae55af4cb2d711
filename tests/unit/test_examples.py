"""Examples in docstrings: those after `>>>` are run; others, at the top of central modules, are what the code gives."""

import doctest
import re
from importlib import import_module
from pathlib import Path
from statistics import mean, stdev
from typing import Annotated, Any

import pytest
from checkout import ROOT, TINY
from factories import ARC, make_grid, make_task

from arc_refinery.arc.augment import IDENTITY
from arc_refinery.arc.grids import Grid
from arc_refinery.arc.tasks import Pair
from arc_refinery.config import Guard, Lora
from arc_refinery.domains import prompts
from arc_refinery.domains.arc import grading
from arc_refinery.domains.arc.domain import first_turn_in
from arc_refinery.domains.arc.prompts import COMPACT, execution_feedback, load_template, template
from arc_refinery.domains.domain import Answer
from arc_refinery.domains.first_turn import rendered
from arc_refinery.domains.prompts import Renderer
from arc_refinery.refining import next_turn
from arc_refinery.sandbox import Executor

PACKAGE = ROOT / "workflow/arc_refinery"
WITH_EXAMPLES = [path for path in sorted(PACKAGE.rglob("*.py")) if ">>> " in path.read_text()]
MIRROR = make_task("mirror", train=(Pair(make_grid("10"), make_grid("01")),))
COPIES = "```python\nfrom common import *\n\ndef transform(grid):\n    return grid\n```"


def module_of(path: Path) -> Any:
    return import_module(".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts))


@pytest.mark.parametrize("path", WITH_EXAMPLES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_examples_after_a_prompt_are_true(path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(ROOT)
    names = {"Annotated": Annotated, "Path": Path, "Lora": Lora, "Guard": Guard}
    failures, n_examples = doctest.testmod(module_of(path), extraglobs=names)
    assert failures == 0 < n_examples


def indented(text: str) -> str:
    return "".join(f"    {line}".rstrip() + "\n" for line in text.splitlines())


def second_turn(renderer: Renderer) -> tuple[Any, str]:
    """The prompt of a first turn, and the feedback on a program that returns its input."""
    shown = first_turn_in(MIRROR, IDENTITY, (0,), COMPACT)
    prompt = rendered(ARC.prompt_class, shown, "mirror/turn1-000", "mirror", 1, renderer)
    return prompt, execution_feedback(MIRROR, (make_grid("10"),), COMPACT)


def test_the_second_turn_at_the_top_of_next_turn(renderer: Renderer):
    prompt, feedback = second_turn(renderer)
    text, _ = renderer.render(prompts.next_turn(list(prompt.messages), COPIES, feedback))
    assert indented(text) in str(next_turn.__doc__)


@pytest.mark.slow
def test_the_mask_at_the_top_of_rollout(renderer: Renderer):
    from arc_refinery.models.tokenizers import end_tokens, load_tokenizer
    from arc_refinery.refining import rollout

    tokenizer = load_tokenizer(TINY)
    prompt, feedback = second_turn(renderer)
    answers = [f"{COPIES}<|end|>", f"{COPIES}<|end|>".replace("return grid", "return np.fliplr(grid)")]
    first, second = (tokenizer(answer, add_special_tokens=False)["input_ids"] for answer in answers)
    continuation = rollout.Continuation(tokenizer, end_tokens(TINY, tokenizer))
    between = continuation.ids(rollout.TrainingPrompt.of(ARC, prompt), first, feedback)
    rows = re.findall(r"^ {4}([01]) +(\d+)  (.+(?:\n {14}.+)*)", str(rollout.__doc__), re.MULTILINE)
    expected = [(mask, int(n), re.sub(r"\n +", "", text).replace("\\n", "\n")) for mask, n, text in rows]
    assert expected == [
        ("1", len(first), answers[0]),
        ("0", len(between), tokenizer.decode(between)),
        ("1", len(second), answers[1]),
    ]


def test_the_feedback_at_the_top_of_template():
    task = make_task(train=(MIRROR.train[0], Pair(make_grid("12"), make_grid("10"))))
    outputs = (make_grid("01"), make_grid("30"))
    doc = str(template.__doc__)
    pairs, residual = (
        execution_feedback(task, outputs, load_template("compact", form=form)) for form in ("given", "residual")
    )
    assert indented(pairs) in doc
    assert indented("\n".join(residual.splitlines()[5:-1])) in doc


def test_the_grade_at_the_top_of_grading(executor: Executor):
    doc = str(grading.__doc__)
    answer = doc.split('"')[1].replace("\\n", "\n")
    inputs: tuple[Grid, ...] = (make_grid("10"), make_grid("20"))
    subject = grading.Subject(inputs, (make_grid("01"), make_grid("52")), 2)
    (grade,) = grading.grade_answers([Answer(answer, subject)], executor)
    grids = " and ".join(str(output.tolist()) for output in grade.outputs)
    text = f'status "{grade.status}", outputs {grids}, correct grids {grade.correct_grids}, pixel score'
    assert f"{text} {grade.pixel_score}" in doc


def test_the_advantages_at_the_top_of_grpo():
    doc = (PACKAGE / "training/grpo.py").read_text()
    rewards, advantages = (
        [float(number) for number in re.findall(rf"{name} +\[(.+)\]", doc)[0].split(", ")]
        for name in ("rewards", "advantages")
    )
    assert advantages == [round((reward - mean(rewards)) / stdev(rewards), 2) for reward in rewards]
