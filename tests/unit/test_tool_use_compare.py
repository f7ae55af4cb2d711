"""Two tool-use experiments or arms against each other, paired by question, and what is refused."""

import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hall import wider_ends
from handmade import finished, settings
from handmade_episodes import QUESTIONS, SETTINGS, experiment
from messages import Wording, line_with

from arc_refinery import records
from arc_refinery.errors import InputError
from arc_refinery.evaluation.sides import read_sides, side
from arc_refinery.records.tool_use import Question
from arc_refinery.reporting.compare import comparison

# pass@1 of ANSWERS by question
UNTRAINED, TRAINED = [0.5, 0.0, 1.0, 0.25], [1.0, 0.75, 1.0, 0.75]


@pytest.fixture
def demo(tmp_path: Path) -> Path:
    experiment(tmp_path)
    return tmp_path / "by-hand"


def another(results: Path, questions: Sequence[Question] = QUESTIONS[:3], **changes: Any) -> Path:
    """Another experiment, with one arm, on some of the questions in another order."""
    arms = {"arms": [{"name": "untrained"}]}
    content = SETTINGS | {"experiment": "other", "evaluation": SETTINGS["evaluation"] | arms} | changes
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


def test_repeated_trainings_are_paired_by_seed(tmp_path: Path):
    folders = []
    for name, flipped in (("one", False), ("two", True)):
        content = SETTINGS | {
            "experiment": name,
            "training": {"grpo": {"learning_rate": 1e-3}, "seeds": [1, 2]},
            "evaluation": SETTINGS["evaluation"] | {"arms": [{"name": "trained", "adapter": "trained"}]},
        }
        letters = [("RRRR", "RRww"), ("wwww", "RRww")]
        answers = {f"trained-seed-{seed}": letters[seed - 1] for seed in (1, 2)}
        if flipped:
            answers = {"trained-seed-1": ("RRRw", "RRww"), "trained-seed-2": ("wwww", "wwww")}
        experiment(tmp_path, settings=content, questions=QUESTIONS[:2], every_answer=answers)
        folders.append(tmp_path / name)
    ((title, *rows),) = cells(compared(*folders))
    # seed 1: 3/4 less 5/8; seed 2: 1/4 less 0
    assert title.endswith("(per training +12.5, +25.0)")
    assert rows == ["50.0 %", "31.2 %", "+18.8", "–", "–", "no"]  # two trainings have no interval


def test_no_set_in_common_or_another_question_of_the_same_id_is_refused(demo: Path, tmp_path: Path, wording: Wording):
    changed = [QUESTIONS[0], replace(QUESTIONS[1], reference="5"), QUESTIONS[2]]
    with pytest.raises(InputError, match=r" sums/1 of sums ") as raised:
        compared(demo, another(tmp_path / "changed", changed))
    wording(raised.value)
    data = SETTINGS["data"] | {"heldout": [SETTINGS["data"]["heldout"][0] | {"name": "products"}]}
    path = tmp_path / "named" / "other/questions/products.parquet"
    records.write(path, Question, QUESTIONS[:3], 0, {})
    with pytest.raises(InputError, match=r"by-hand and \S*other .* set .*\(sums; products\)") as raised:
        compared(demo, another(tmp_path / "named", data=data))
    wording(raised.value)


def test_an_arm_that_is_not_there_is_refused_with_those_that_are(demo: Path, wording: Wording):
    with pytest.raises(InputError, match=r" best; .* untrained, trained, without-tools") as raised:
        side(f"{demo}:best")
    wording(raised.value)


@pytest.mark.slow
def test_two_kinds_are_refused(demo: Path, tmp_path: Path, wording: Wording):
    arms = {"independent": [{"n_predictions": 1}]}
    _, refining = finished(tmp_path, settings(arms, "refined"), {"turn1": {"a": "w"}}, "a")
    expected = rf"{demo} .*tool-use, {refining} .*refining"
    with pytest.raises(InputError, match=expected) as raised:
        read_sides([str(demo), str(refining)])
    wording(raised.value)
    code = "from arc_refinery.cli import main; main()"
    words = [sys.executable, "-c", code, "compare", str(demo), str(refining)]
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert re.search(f"arc-refinery: {expected}", ended.stderr)


def test_experiments_are_set_side_by_side(demo: Path, tmp_path: Path):
    other = another(tmp_path / "elsewhere", seed=3)
    lines = compared(other, demo).splitlines()
    rows = [line for line in lines if line.startswith(f"| `{demo}` | `trained`")]
    assert rows[0].startswith(f"| `{demo}` | `trained` | 4 | 4/4 = 100.0 % [51.0, 100.0] | 87.5 % [")
    ((title, *cell_rows),) = cells("\n".join(lines))
    assert re.fullmatch(r"`\S*other:untrained` − `\S*by-hand:untrained`", title)
    # questions 0, 1, 2: 1, 1, 0 less 1/2, 0, 1
    assert cell_rows[:3] == ["66.7 %", "50.0 %", "+16.7"]
    assert "| `seed` | 3 | 0 |" in lines
    assert any(line.startswith(f"| `{demo}` | `trained` | GRPO | 3 |") for line in lines)


def test_no_question_in_common_is_said(demo: Path, tmp_path: Path, wording: Wording):
    strangers = [replace(question, question_id=f"{question.question_id}0") for question in QUESTIONS[:3]]
    wording(line_with(compared(demo, another(tmp_path / "strangers", strangers)), "no task in common"))
    seeded = compared(demo, another(tmp_path / "seeded", strangers, seed=3))
    assert "`seed` is 0 and 3" in line_with(seeded, "no task in common")
