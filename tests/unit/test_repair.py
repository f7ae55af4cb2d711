"""What a later attempt does with the program that it refines, counted by hand."""

from dataclasses import replace
from pathlib import Path

import pytest
from handmade import finished, settings

from arc_refinery import records
from arc_refinery.domains.arc.records import Attempt
from arc_refinery.programs import likeness
from arc_refinery.reporting import outcomes
from arc_refinery.reporting.kind import reported

ARMS = {
    "independent": [{"n_predictions": 4}],
    "refine": [{"n_predictions": 2}, {"n_predictions": 2}],
}
ANSWERS = {"turn1": {"a": "wwwS", "b": "eewT"}, "refine-turn2": {"a": "wS", "b": "ew"}}
PROGRAMS = {  # the refined ones are the second attempts of turn 1
    "a/turn1-000/000": "x = 9",
    "a/turn1-000/001": "x = 1",
    "a/turn1-001/000": "x = 1",
    "a/turn1-001/001": "z - 3",
    "b/turn1-000/001": "x = 1",
    "a/refine-turn2-000/000": "x  =  1",
    "a/refine-turn2-000/001": "x = 2",
    "b/refine-turn2-000/000": "x = 1",
    "b/refine-turn2-000/001": "y + 2",
}


@pytest.mark.parametrize(
    ("program", "other", "expected"),
    [
        ("x = 1", "x=1", 1.0),
        ("x = 1", "x = 2", 4 / 6),
        ("a b c d", "d c b a", 2 / 8),  # in order
        ("total = total + 1", "total = 1", 6 / 8),
        ("x = 1", "", 0.0),
        ("", "", 1.0),
    ],
)
def test_likeness_counts_words_and_signs_in_common(program: str, other: str, expected: float):
    assert likeness(program, other) == expected


def test_later_attempts_are_compared_with_what_they_refine(tmp_path: Path):
    experiment, folder = finished(tmp_path, settings(ARMS), ANSWERS, ["a", "b"])
    for path in folder.glob("small/*/attempts/*.parquet"):
        attempts = [
            replace(one, completion=f"```python\n{PROGRAMS.get(one.attempt_id, 'other')}\n```")
            for one in records.read(path, Attempt)
        ]
        records.write(path, Attempt, attempts, 0, {})
    of_kind = reported(experiment, folder)
    of_kind.write_attempts()
    *_, table = outcomes.repair_section(of_kind, of_kind.results("small"))
    header, _, refined, first = ([cell.strip() for cell in row.split("|")[1:-1]] for row in table.splitlines())
    means = [cell.partition(" [")[0] for cell in refined]
    # a: (1 + 2/3) / 2, one of two with the outputs; b: (1 + 0) / 2, and one that raised has no outputs
    assert dict(zip(header, means, strict=True)) == {
        header[0]: "turn 2 × 2 of `refine`",
        "n tasks": "2",
        "same program": "50.0 %",
        "same outputs": "25.0 %",
        "likeness": "66.7 %",
    }
    # the other answer to the same prompt. a: "x = 9", with the outputs; b: "other"
    means = [cell.partition(" [")[0] for cell in first]
    assert means[1:] == ["2", "0.0 %", "50.0 %", "33.3 %"]


def test_there_is_nothing_to_say_where_no_arm_refines(tmp_path: Path):
    arms = {"independent": ARMS["independent"]}
    experiment, folder = finished(tmp_path, settings(arms), {"turn1": ANSWERS["turn1"]}, ["a", "b"])
    of_kind = reported(experiment, folder)
    assert outcomes.repair_section(of_kind, of_kind.results("small")) == []
