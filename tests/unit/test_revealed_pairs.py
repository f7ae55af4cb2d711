"""Train pairs that only feedback reveals, and pairs of tasks that only such a pair tells apart."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from checkout import ROOT, TINY
from experiments import put
from factories import ARC, first_turns, make_attempt, make_grid, make_prompt, make_task, make_verdict
from messages import Wording
from pydantic import ValidationError

from arc_refinery import records
from arc_refinery.arc.grids import Grid
from arc_refinery.arc.tasks import Pair, Task
from arc_refinery.barc import generator
from arc_refinery.barc.generator import has_held_out_text
from arc_refinery.config import ConfigError, validate_experiment
from arc_refinery.domains.arc.config import ArcExperiment, Grade, Showing, TaskSet
from arc_refinery.domains.arc.prompts import COMPACT, WORDS, first_turn
from arc_refinery.domains.arc.records import Prompt
from arc_refinery.domains.arc.sources import tasks_of_set
from arc_refinery.domains.domain import GradedAttempt
from arc_refinery.domains.prompts import Renderer
from arc_refinery.errors import InputError
from arc_refinery.refining.config import Sampling

# The rule mirrors a row. The program that is refined is right on the first two pairs.
TASK = make_task(
    train=tuple(
        Pair(make_grid(given), make_grid(expected)) for given, expected in [("11", "11"), ("22", "22"), ("10", "01")]
    )
)
OUTPUTS = make_grid("11"), make_grid("22"), make_grid("30")
PROMPT = make_prompt(TASK, n_revealable=2)


def grade(*outputs: Grid) -> Grade:
    return Grade("ok", "", "a program", outputs, tuple(pair.output for pair in TASK.train), 3)


def graded(**changes: Any) -> GradedAttempt:
    attempt = make_attempt(PROMPT)
    return GradedAttempt(PROMPT, attempt, make_verdict(attempt, **{"train_outputs": OUTPUTS} | changes))


@pytest.fixture(scope="module")
def renderer() -> Renderer:
    return Renderer(str(TINY))


def prompts(task: Task, renderer: Renderer, n: int = 1, **showing: Any) -> list[Prompt]:
    shown = Showing(**{"use_data_augmentation": False} | showing)
    return list(first_turns([task], n, Sampling(batch_size=1, max_output_tokens=8), COMPACT, renderer, shown=shown))


def test_the_first_prompt_shows_the_first_pairs(renderer: Renderer, tmp_path: Path):
    (prompt,) = prompts(TASK, renderer, n_shown_pairs=1)
    assert prompt.messages == ({"role": "user", "content": "\ninput 1x2\n1 11\noutput 1x2\n1 11"},)
    assert (prompt.detail.n_shown, prompt.detail.n_revealable, len(prompt.detail.train)) == (1, 2, 3)
    records.write(tmp_path / "prompts", Prompt, [prompt], 0, {})
    (read,) = records.read(tmp_path / "prompts", Prompt)
    assert read.detail.n_revealable == 2


def test_a_task_with_no_more_pairs_than_are_shown_reveals_none(renderer: Renderer):
    some, default = prompts(TASK, renderer, n_shown_pairs=4), prompts(TASK, renderer)
    assert some[0].text == default[0].text
    assert some[0].detail.n_revealable == 0


def test_no_first_prompt_shows_a_revealable_pair(renderer: Renderer):
    train = tuple(Pair(make_grid(f"{n}{n}"), make_grid(f"{n}", f"{n}")) for n in range(1, 5))
    augmented = prompts(make_task(train=train), renderer, 40, n_shown_pairs=2, use_data_augmentation=True)
    assert {prompt.detail.train_order[:2] for prompt in augmented} > {(0, 1), (3, 2)}  # any two, in any order
    for prompt in augmented:
        for index, pair in enumerate(prompt.detail.train):
            assert (COMPACT.notation.write(pair.input) in prompt.text) == (index < 2)


def test_feedback_reveals_the_first_pair_that_is_wrong():
    assert ARC.feedback(PROMPT, grade(*OUTPUTS), COMPACT) == (
        "Executing your program gave:"
        "\npair 1 correct"
        "\ninput 1x2\n1 10\noutput 1x2\n1 01"
        "\npair 2 wrong, pixel similarity 0%, given 1x2\n1 30"
        "\nWrite a corrected program."
    )
    assert ARC.feedback(PROMPT, grade(*OUTPUTS), WORDS) == (
        "Executing your program gave:"
        "\npair 1 correct"
        "\nPair 2 is new. Its input:\nBlue Black\nIts output:\nBlack Blue"
        "\npair 2 wrong, pixel similarity 0%, given 1x2:\nGreen Black"
        "\nWrite a corrected program, without examples or tests."
    )
    two_wrong = ARC.feedback(PROMPT, grade(OUTPUTS[0], make_grid("4"), OUTPUTS[2]), COMPACT)
    assert (
        "\ninput 1x2\n1 22\noutput 1x2\n1 22\npair 2 wrong, pixel similarity 0%, expected shape 1x2, given 1x1"
        in two_wrong
    )
    assert "10" not in two_wrong  # the third pair


def test_the_form_residual_shows_the_pair_and_what_is_missing():
    assert ARC.feedback(PROMPT, grade(*OUTPUTS), replace(COMPACT, form="residual")) == (
        "Executing your program gave:"
        "\ninput 1x2\n1 11\noutput 1x2\n1 11"
        "\ninput 1x2\n1 10\noutput 1x2\n1 01"  # the pair
        "\ninput 1x2\n1 30\noutput 1x2\n1 01"
        "\nWrite a corrected program."
    )


def test_feedback_on_a_program_that_is_right_on_all_revealable_pairs_reveals_none():
    right = grade(make_grid("00"), *(pair.output for pair in TASK.train[1:]))
    assert ARC.feedback(PROMPT, right, COMPACT) == (
        "Executing your program gave:\npair 1 wrong, pixel similarity 0%, given 1x2\n1 00\nWrite a corrected program."
    )


def test_stale_feedback_reveals_a_pair_that_is_right():
    stale = ARC.stale(PROMPT, grade(*OUTPUTS))
    assert stale
    assert ARC.feedback(PROMPT, stale, COMPACT) == (
        "Executing your program gave:"
        "\npair 1 correct"
        "\ninput 1x2\n1 22\noutput 1x2\n1 22"
        "\npair 2 correct"
        "\nWrite a corrected program."
    )
    assert ARC.stale(PROMPT, grade(OUTPUTS[0], OUTPUTS[2], OUTPUTS[2])) is None
    assert ARC.stale(PROMPT, Grade("error", "ValueError: no")) is None


def test_a_fresh_turn_shows_the_pair_that_feedback_reveals():
    question = ARC.fresh(graded(), COMPACT)
    assert question.messages == [
        {"role": "user", "content": "\ninput 1x2\n1 11\noutput 1x2\n1 11\ninput 1x2\n1 10\noutput 1x2\n1 01"}
    ]
    shown = question.detail
    assert (shown.train_order, shown.n_shown, shown.n_revealable) == ((0, 2, 1), 2, 1)
    assert [pair.input.tolist() for pair in shown.train] == [[[1, 1]], [[1, 0]], [[2, 2]]]
    # its answers are graded on the task's own pairs
    attempt = make_attempt(make_prompt(TASK, train_order=shown.train_order))
    outputs = (*(pair.output for pair in shown.train), make_grid("12", "34"))
    assert ARC.result(replace(grade(), outputs=outputs), attempt, TASK).solved


def test_a_fresh_turn_after_an_error_is_the_first_turn_again():
    failed = graded(status="error", error="ValueError: no", train_outputs=())
    question = ARC.fresh(failed, COMPACT)
    assert (question.messages, question.detail) == (
        first_turn(replace(TASK, train=TASK.train[:1]), COMPACT),
        PROMPT.detail,
    )


def two_rules(n_shown: int, **changes: Any) -> list[Task]:
    settings = {"n_tasks": 8, "two_rules": n_shown, "compositions": 1.0, "max_side": 4, "seed": 3} | changes
    return list(tasks_of_set(TaskSet(name="two", source="generator", **settings), Counter()))


@pytest.mark.parametrize("n_shown", [1, 2])
def test_two_rules_agree_on_the_shown_pairs_alone(n_shown: int, renderer: Renderer):
    tasks = two_rules(n_shown, n_hidden=1)
    assert len(tasks) == 8
    for a, b in zip(tasks[::2], tasks[1::2], strict=True):
        assert (a.task_id[-2:], b.task_id) == ("-a", f"{a.task_id[:-2]}-b")
        assert len(a.train) == n_shown + 2
        assert all(np.array_equal(one.input, other.input) for one, other in zip(a.pairs, b.pairs, strict=True))
        same = [np.array_equal(one.output, other.output) for one, other in zip(a.pairs, b.pairs, strict=True)]
        assert same[:-1] == [True] * n_shown + [False] * 3  # train, then test; the hidden one may be either
        assert len({prompts(task, renderer, n_shown_pairs=n_shown)[0].text for task in (a, b)}) == 1


def test_both_rules_are_held_out_and_give_their_outputs():
    tasks = two_rules(1)
    for task in tasks:
        body = task.source.partition("def main(grid):\n")[2].partition("\n    return grid\n")[0]
        assert has_held_out_text(body)
        namespace: dict[str, Any] = {}
        exec(task.source.replace("from common", "from arc_refinery.barc.common"), namespace)
        for pair in task.pairs:
            assert np.array_equal(namespace["main"](pair.input.astype(int)), pair.output)
    assert [task.source for task in two_rules(1, n_tasks=2)] == [task.source for task in tasks[:2]]


def experiment(**changes: Any) -> ArcExperiment:
    content = yaml.safe_load((ROOT / "tests/refining.yaml").read_text())
    usual = {"arc.n_shown_pairs": 2, "arc.use_data_augmentation": False, "problems.two_rules": True}
    for place, value in (usual | {key.replace("__", "."): value for key, value in changes.items()}).items():
        put(content, place, value)
    return validate_experiment(content, "test", ArcExperiment)


def test_two_rules_agree_on_as_many_pairs_as_are_shown():
    made = experiment().problems
    assert made and made.two_rules == 2


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"arc__n_shown_pairs": None}, "problems.two_rules"),
        ({"problems__two_rules": 3}, "problems.two_rules"),
        ({"arc__augment_parts": True}, "arc.use_data_augmentation"),
        ({"arc__test_inputs": "one"}, "arc.test_inputs"),
    ],
)
def test_keys_that_do_not_go_together_are_refused(changes: dict[str, Any], key: str, wording: Wording):
    with pytest.raises(ConfigError) as caught:
        experiment(**changes)
    assert key in str(caught.value)
    wording(caught.value)


def test_a_set_of_pairs_has_an_even_number_of_tasks(wording: Wording):
    with pytest.raises(ValidationError, match="n_tasks is 3") as caught:
        TaskSet(name="two", source="generator", n_tasks=3, two_rules=1)
    wording(caught.value.errors()[0]["msg"])


def test_a_generator_without_two_such_programs_says_so(monkeypatch: pytest.MonkeyPatch, wording: Wording):
    monkeypatch.setattr(generator, "_MAX_FIRST_PROGRAMS", 2)
    with pytest.raises(InputError) as caught:
        two_rules(9)
    assert "agree on 9 examples" in str(caught.value)
    wording(caught.value)
