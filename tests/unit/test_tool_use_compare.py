"""Two tool-use experiments or arms against each other, paired by question, and what is refused."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from factories import make_question
from hall import wider_ends
from handmade import finished, settings
from handmade_episodes import QUESTIONS, SETTINGS, experiment
from messages import Wording

from arc_refinery.errors import InputError
from arc_refinery.evaluation.sides import read_sides
from arc_refinery.records.tool_use import Question
from arc_refinery.reporting import plots
from arc_refinery.reporting.compare import comparison

# pass@1 of ANSWERS by question
UNTRAINED, TRAINED = [0.5, 0.0, 1.0, 0.25], [1.0, 0.75, 1.0, 0.75]


@pytest.fixture
def demo(tmp_path: Path) -> Path:
    experiment(tmp_path)
    return tmp_path / "by-hand"


def another(results: Path, questions: Sequence[Question]) -> Path:
    """Another experiment, with one arm, on some of the questions in another order."""
    arms = {"arms": [{"name": "untrained"}]}
    content = SETTINGS | {"experiment": "other", "evaluation": SETTINGS["evaluation"] | arms}
    experiment(results, settings=content, questions=questions, every_answer={"untrained": ("RRRR", "RRRR", "wwww")})
    return results / "other"


def compared(*sides: object) -> str:
    return comparison(read_sides(list(map(str, sides))), ())


def cells(text: str) -> list[list[str]]:
    """Cells of the table of pass rates, without its header and the numbers of questions."""
    rows = [line.removeprefix("| turn 1: ").split("|")[:-1] for line in text.splitlines() if " turn 1: " in line]
    return [[cell.strip() for cell in (title, *cells)] for title, _, *cells in rows]


def test_arms_of_one_experiment_are_paired_by_question(demo: Path, wording: Wording):
    text = compared(f"{demo}:trained", f"{demo}:untrained")
    ((title, *rows),) = cells(text)
    assert title == f"`{demo}:trained` − `{demo}:untrained`"
    low, high = (100 * end for end in wider_ends(np.subtract(TRAINED, UNTRAINED)))
    assert rows[:3] == ["87.5 %", "43.8 %", "+43.8"]
    shown = [float(end.replace("−", "-")) for end in rows[3].strip("[]").split(", ")]
    assert shown == pytest.approx([low, high], abs=0.051)
    assert rows[4:] == ["–", "no"]  # four questions cannot show a difference
    assert " on 4 tasks, paired:" in text
    wording(text.partition("## Columns\n\n")[2])


def test_two_experiments_share_their_common_questions_whatever_their_order(
    demo: Path, tmp_path: Path, wording: Wording
):
    questions = [QUESTIONS[3], QUESTIONS[0], replace(QUESTIONS[1], question_id="sums/9")]
    other = another(tmp_path / "elsewhere", questions)
    text = compared(demo, other)
    ((title, *rows),) = cells(text)  # `untrained` is the only arm in both
    assert re.fullmatch(r"`\S*by-hand:untrained` − `\S*other:untrained`", title)
    # questions 0 and 3: 0.5 and 0.25 against 1 and 1
    assert rows[:3] == ["37.5 %", "100.0 %", "−62.5"]
    assert " on 2 tasks, paired:" in text
    left_out = [line for line in text.splitlines() if line.startswith("Left out")]
    named = [re.findall("`(.*?)`", line) for line in left_out]
    assert named == [[str(demo), "sums/1", "sums/2"], [str(other), "sums/9"]]
    for line in left_out:
        wording(line)


def test_another_question_of_the_same_id_is_refused(demo: Path, tmp_path: Path, wording: Wording):
    changed = [QUESTIONS[0], make_question(QUESTIONS[1].question_id, QUESTIONS[1].text, "5"), QUESTIONS[2]]
    other = another(tmp_path / "changed", changed)
    with pytest.raises(InputError, match=r" sums/1 of sums ") as raised:
        comparison(read_sides([str(demo), str(other)]), (), tmp_path / "page.png")
    wording(raised.value)
    assert not (tmp_path / "page.png").exists()


def test_two_kinds_have_to_share_a_set(demo: Path, tmp_path: Path, wording: Wording):
    arms = {"independent": [{"n_predictions": 1}]}
    _, refining = finished(tmp_path, settings(arms, "refined"), {"turn1": {"a": "w"}}, "a")
    with pytest.raises(InputError, match=rf"{demo} and {refining} have no set in common") as raised:
        compared(demo, refining)
    wording(raised.value)


def test_two_kinds_are_compared_at_equal_generated_tokens_too(demo: Path, tmp_path: Path):
    content = settings({"independent": [{"n_predictions": 2}]}, "refined")
    content["evaluation"]["sets"][0]["name"] = "sums"
    letters = {"0": "wS", "1": "ww", "2": "ww", "3": "ww"}
    _, refined = finished(tmp_path, content, {"turn1": letters}, "0123")
    text = compared(f"{demo}:untrained", f"{refined}:independent")
    # 10 + 11 tokens of refining at each task; of tool use RR, ww, RR and C are within them: 3 tasks solved against 1
    assert "  - At equal generated tokens: +50.0 [" in text
    assert " points. Unlimited, they generate 60 and 21 per task.\n" in text
    assert "At equal generated tokens" not in compared(f"{demo}:untrained", f"{demo}:trained")


def test_a_picture_has_the_curve_of_each_arm_of_two_kinds(demo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    content = settings({"independent": [{"n_predictions": 2}]}, "refined")
    content["evaluation"]["sets"][0]["name"] = "sums"
    _, refined = finished(tmp_path, content, {"turn1": {"0": "wS", "1": "ww", "9": "SS"}}, "019")
    drawn: list[Any] = []
    monkeypatch.setattr(plots, "save", lambda figure, path: drawn.append((figure, path)))
    sides = read_sides([f"{refined}:independent", f"{demo}:untrained", f"{demo}:trained"])
    page = comparison(sides, (), tmp_path / "page.png")
    ((figure, path),) = drawn
    (axes,) = figure.axes
    assert path == tmp_path / "page.png" and "](page.png)" in page
    assert "(n = 2)" in axes.get_title(loc="left")  # 0 and 1 are the tasks that all sides have
    names = ["refined: independent", "by-hand: untrained", "by-hand: trained"]
    assert sorted(text.get_text().split("\n")[0] for text in axes.texts) == sorted(names)
    first, untrained, trained = (line.get_ydata() for line in axes.lines[::2])
    assert list(first) == [25.0, 50.0]  # one of two attempts at task 0 is right
    assert (untrained[-1], trained[-1]) == (50.0, 100.0)
