"""The gallery: tasks chosen by fixed rules, what the model was told, pictures that say what is wrong without colour."""

from collections.abc import Mapping
from itertools import combinations
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import pandas as pd
import pytest
from factories import ARC, make_attempt, make_grid, make_prompt, make_task, make_verdict
from handmade import results_of, settings
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from arc_refinery import config
from arc_refinery.arc.augment import Augmentation
from arc_refinery.arc.grids import UNKNOWN, Grid
from arc_refinery.arc.tasks import Pair, Task
from arc_refinery.domains.arc.config import ArcExperiment
from arc_refinery.domains.arc.records import Verdict
from arc_refinery.domains.arc.report import pictures
from arc_refinery.domains.domain import GradedAttempt
from arc_refinery.refining.report import gallery
from arc_refinery.refining.report.gallery import NOBODY, ONLY_BY_BASELINE, ONLY_BY_REFINING


def experiment(*arms: Mapping[str, Any]) -> ArcExperiment:
    content = settings({arm["name"]: arm["turns"] for arm in arms})
    return config.validate_experiment(content, "test", ArcExperiment)


def arm(name: str, *budgets: int, feedback: str = "real") -> dict[str, Any]:
    first, *others = ({"n_predictions": n} for n in budgets)
    return {"name": name, "turns": [first, *({**turn, "feedback": feedback} for turn in others)]}


# ---- which tasks ----


def refined(turn: int, answers: Mapping[str, str]) -> pd.DataFrame:
    """Attempts of a turn, each named after its task, turn and place: S solves it."""
    rows = [
        [task, f"{task}{turn}{index}", f"{task}{turn - 1}x", f"{task}-prompt{turn}", index, letter == "S"]
        for task, letters in answers.items()
        for index, letter in enumerate(letters)
    ]
    columns = ["task_id", "attempt_id", "parent_id", "prompt_id", "sample", "solved"]
    return pd.DataFrame(rows, columns=columns)


def chosen(
    second: Mapping[str, str], third: Mapping[str, str], solved: Mapping[str, str]
) -> dict[str, tuple[int, list[tuple[str, str]]]]:
    """Of an arm of three turns: attempts that are shown, by class. `solved`: tasks by arm, of which there are five."""
    of = experiment(arm("independent", 8), arm("refine", 4, 2, 2), arm("other", 4, 4))
    branches = {"refine-turn2": refined(2, second), "refine-turn3": refined(3, third)}
    results = results_of([of.arms[1]], branches, "abcde")
    table = pd.DataFrame({arm.name: [task in solved[arm.name] for task in "abcde"] for arm in of.arms}, list("abcde"))
    classes = gallery.choose(results, of.arms[1], of.arms[0], table)
    return {title: (n, [(pair.first_id, pair.second_id) for pair in rows]) for title, (n, rows) in classes.items()}


def test_the_attempt_that_solves_is_shown_with_its_parent_whatever_its_turn():
    classes = chosen({"a": "wS", "b": "wT"}, {"b": "SS"}, {"independent": "", "refine": "ab", "other": "ab"})
    assert classes[ONLY_BY_REFINING] == (2, [("a1x", "a21"), ("b2x", "b30")])


def test_of_what_refining_broke_the_first_refinement_is_shown():
    classes = chosen({"a": "ww", "c": "Tw"}, {"a": "ww"}, {"independent": "ac", "refine": "", "other": ""})
    assert classes[ONLY_BY_BASELINE] == (2, [("a1x", "a20"), ("c1x", "c20")])
    assert classes[NOBODY] == (3, [])  # b, d and e have nothing to refine


def test_what_another_arm_solves_is_not_solved_by_nobody():
    classes = chosen({"a": "w", "b": "w", "c": "w"}, {}, {"independent": "", "refine": "", "other": "b"})
    assert classes[NOBODY] == (4, [("a1x", "a20"), ("c1x", "c20")])


def test_a_few_tasks_are_shown_in_the_order_of_the_set():
    classes = chosen(dict.fromkeys("edcba", "S"), {}, {"independent": "", "refine": "abcde", "other": ""})
    assert classes[ONLY_BY_REFINING] == (5, [("a1x", "a20"), ("b1x", "b20")])


@pytest.mark.parametrize(
    ("arms", "expected"),
    [
        ([arm("independent", 4)], None),
        ([arm("independent", 4), arm("refine", 2, 2)], ("refine", "independent")),
        ([arm("independent", 4), arm("refine", 2, 2), arm("blind", 2, 2, feedback="none")], ("refine", "independent")),
        ([arm("independent", 4), arm("blind", 2, 2, feedback="none")], ("blind", "independent")),
        ([arm("refine", 2, 2)], ("refine", "refine")),
    ],
)
def test_a_control_is_shown_only_where_nothing_else_refines(arms: list[dict[str, Any]], expected: Any):
    pair = gallery.pair_to_show(experiment(*arms))
    assert expected == (pair and tuple(arm.name for arm in pair))


@pytest.mark.parametrize(("first", "shown"), [("refine", "refine"), ("later", "later"), ("blind", "later")])
def test_the_arm_that_the_primary_comparison_asks_about_is_shown(first: str, shown: str):
    arms = (arm("independent", 4), arm("refine", 2, 2), arm("later", 2, 2), arm("blind", 2, 2, feedback="none"))
    content = settings({arm["name"]: arm["turns"] for arm in arms})
    content["evaluation"]["primary"] = {"set": content["evaluation"]["sets"][0]["name"], "arms": [first, "independent"]}
    asked = config.validate_experiment(content, "test", ArcExperiment)
    pair = gallery.pair_to_show(asked)
    assert pair and pair[0].name == shown


# ---- what is said ----


def graded(turn: int, program: str, feedback: str, **view: Any) -> GradedAttempt:
    roles = ("system", "user", "assistant", "user", "assistant")  # the last one: the beginning of the answer
    messages = tuple(
        {"role": role, "content": feedback if number == 3 else f"{role} {number}"} for number, role in enumerate(roles)
    )
    prompt = make_prompt(turn=turn, messages=messages, **view)
    attempt = make_attempt(prompt, completion=f"As follows.\n```python\n{program}\n```")
    return GradedAttempt(prompt, attempt, make_verdict(attempt))


def block(program: str = "x = 1", feedback: str = "pair 1 wrong", **view: Any) -> str:
    return gallery.programs_block(ARC, graded(2, program, "earlier feedback"), graded(3, "x = 2", feedback, **view))


def test_what_the_model_was_told_is_the_last_thing_that_was_said_to_it():
    text = block(feedback="feedback on this program")
    assert "feedback on this program" in text
    assert all(other not in text for other in ("system 0", "user 1", "assistant 2", "assistant 4", "earlier feedback"))


def test_programs_and_feedback_are_folded_in_order():
    text = block()
    assert text.startswith("<details><summary>")
    assert text.endswith("\n\n</details>")
    assert "The model saw the task as in the picture." in text
    parts = ["First program (turn 2):", "x = 1", "pair 1 wrong", "Refined program (turn 3):", "x = 2"]
    assert [text.index(part) for part in parts] == sorted(text.index(part) for part in parts)


def test_how_the_model_saw_the_task_is_said():
    text = block(augmentation=Augmentation(3, True, (0, 2, 1, 3, 4, 5, 6, 7, 8, 9)), train_order=(1, 0))
    assert "train pairs in the order 2, 1, then grids transposed" in text
    assert "rotated by 270° counterclockwise, then colours renamed (1 as 2, 2 as 1)." in text


def test_fences_in_a_text_do_not_end_its_block():
    text = block(feedback="before\n```\nafter")
    assert "````text\nbefore\n```\nafter\n````" in text


def test_long_texts_are_cut_and_the_cut_is_said():
    text = block("\n".join(f"x{number} = 0" for number in range(100)))
    assert "x59 = 0\n... (40 more lines)\n```" in text
    assert "x60" not in text


# ---- pictures ----

RIGHT = make_grid("12", "34")
WRONG = make_grid("12", "35")
WIDE = make_grid("123")


def gave(*outputs: Grid, problem: str = "") -> Verdict:
    return make_verdict(train_outputs=outputs, error=problem, status="error" if problem else "ok")


def drawn(task: Task, monkeypatch: pytest.MonkeyPatch, *outputs: Grid, problem: str = "") -> Figure:
    figures: list[Figure] = []
    monkeypatch.setattr(pictures, "save_png", lambda figure, path, dpi: figures.append(figure))
    pictures.draw(task, {"first": gave(*outputs, problem=problem)}, Path("unused.png"))
    return figures[0]


def words(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.axes[0].texts]


def crosses(figure: Figure) -> int:
    """White strokes, two to a cross."""
    lines = [collection for collection in figure.axes[0].collections if isinstance(collection, LineCollection)]
    return sum(len(line.get_segments()) for line in lines if np.allclose(np.asarray(line.get_colors()), 1.0)) // 2


def task(n_train: int, n_test: int, truth: Grid = RIGHT) -> Task:
    return make_task(train=(Pair(RIGHT, truth),) * n_train, test=(Pair(RIGHT, truth),) * n_test)


def test_each_output_says_how_far_it_is_right(monkeypatch: pytest.MonkeyPatch):
    figure = drawn(task(2, 1), monkeypatch, RIGHT, WRONG, WIDE)
    said = words(figure)
    for text in ("correct", "wrong, 75.0 % match", "wrong shape: 1×3,\nexpected 2×2", "train 2", "test 1"):
        assert said.count(text) == 1
    assert crosses(figure) == 1  # one cell of WRONG; none where shapes differ


def test_outputs_of_tests_that_nobody_has_published_are_neither_right_nor_wrong(monkeypatch: pytest.MonkeyPatch):
    figure = drawn(task(0, 1, truth=UNKNOWN), monkeypatch, RIGHT)
    assert {"unknown", "cannot be checked"} <= set(words(figure))
    assert crosses(figure) == 0


def test_a_program_without_outputs_shows_its_error(monkeypatch: pytest.MonkeyPatch):
    said = words(drawn(task(1, 1), monkeypatch, problem="IndexError: $oops$ (line 7)"))
    assert said.count("IndexError: $oops$\n(line 7)") == 2
    assert said.count("no output") == 2


def test_some_pairs_are_drawn_and_the_others_counted(monkeypatch: pytest.MonkeyPatch):
    said = words(drawn(task(5, 3), monkeypatch, *[RIGHT] * 8))
    assert "t\n(2 more pairs not drawn)" in said
    assert [text for text in said if text.startswith(("train", "test"))] == [
        *(f"train {number}" for number in (1, 2, 3, 4)),
        *(f"test {number}" for number in (1, 2)),
    ]


def test_labels_of_low_rows_do_not_overlap(monkeypatch: pytest.MonkeyPatch):
    figures: list[Figure] = []
    monkeypatch.setattr(pictures, "save_png", lambda figure, path, dpi: figures.append(figure))
    low = np.ones((1, 12), np.uint8)
    task = make_task(train=(Pair(low, low),) * 2, test=(Pair(low, low),))
    outputs = {name: gave(low, low + 1, low) for name in ("first program", "refined program")}
    pictures.draw(task, outputs, Path("unused.png"))
    pictures.draw_repair(task, outputs, [0, 2], Path("unused.png"))
    for figure in figures:
        figure.canvas.draw()
        boxes = {text: text.get_window_extent() for text in figure.axes[0].texts if text.get_text()}
        overlapping = [(a, b) for a, b in combinations(boxes, 2) if boxes[a].overlaps(boxes[b])]
        assert overlapping == []


def test_a_small_picture_has_a_row_per_pair(monkeypatch: pytest.MonkeyPatch):
    figures: list[Figure] = []
    monkeypatch.setattr(pictures, "save_png", lambda figure, path, dpi: figures.append(figure))
    executions = {"first program": gave(*[WRONG] * 3), "refined program": gave(*[RIGHT] * 3)}
    pictures.draw_repair(task(2, 1), executions, [1, 2], Path("unused.png"))
    said = [text for text in words(figures[0]) if text and not text.isdigit()]
    assert said[:4] == ["input", "expected", "first program", "refined program"]
    assert said[4::5] == ["train 2", "test 1"]
    assert said.count("correct") == said.count("wrong, 75.0 % match") == 2
    assert figures[0].get_figwidth() < 6  # inches, so that its text can be read on a phone


def test_cells_of_the_largest_grids_are_ten_pixels_wide(tmp_path: Path):
    large = np.zeros((30, 30), np.uint8)
    large[0, 0], large[29, 29] = 1, 4
    task = make_task(train=(Pair(large, large),), test=())
    pictures.draw(task, {"first": gave(large)}, tmp_path / "t.png")
    pixels: np.ndarray = matplotlib.image.imread(tmp_path / "t.png")[:, :, :3]
    blue = np.abs(pixels - np.array([0x00, 0x74, 0xD9]) / 255).max(axis=2) < 0.02
    rows = np.flatnonzero(blue[: len(blue) // 3].any(axis=1))  # the input alone
    assert 8 <= len(rows) <= 11  # less the lines between cells


def test_nothing_is_cut_off_and_equal_tasks_give_equal_bytes(tmp_path: Path):
    some = {"first program": gave(*[WRONG] * 5), "refined program": make_verdict(status="no_code")}
    for name in ("one.png", "two.png"):
        pictures.draw(task(3, 2), some, tmp_path / name)
    assert (tmp_path / "one.png").read_bytes() == (tmp_path / "two.png").read_bytes()
    pixels: np.ndarray = matplotlib.image.imread(tmp_path / "one.png")
    assert all((edge == 1.0).all() for edge in (pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]))
