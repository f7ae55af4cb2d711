"""The table of all attempts: which arm owns which, and that figures of the report can be counted from it."""

import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest
from checkout import ROOT
from handmade import finished, settings

from arc_refinery import cli
from arc_refinery.errors import InputError
from arc_refinery.evaluation.attempts import COLUMNS, NAMES
from arc_refinery.records import RecordError
from arc_refinery.reporting.kind import reported

ARMS = {
    "independent": [{"n_predictions": 4}],
    "refine": [{"n_predictions": 2}, {"n_predictions": 2}, {"n_predictions": 1}],
}
ANSWERS = {
    "turn1": {"a": "wwSw", "b": "wTet", "c": "nwww"},
    "refine-turn2": {"a": "ww", "b": "wS"},
    "refine-turn3": {"a": "S"},
}


def written(results: Path, n_shards: int = 1) -> Path:
    experiment, folder = finished(results, settings(ARMS), ANSWERS, "abc", n_shards)
    reported(experiment, folder).write_attempts()
    return folder / "attempts.parquet"


def test_the_documents_name_every_column_with_its_type():
    page = (ROOT / "docs/internals.md").read_text()
    for column in COLUMNS:
        kind = str(column.type).replace("double", "float64")
        assert f"| `{column.name}` | {kind} | {column.meaning} |" in page


def test_the_example_draws_a_curve(tmp_path: Path):
    table, picture = written(tmp_path), tmp_path / "curve.png"
    words = [sys.executable, str(ROOT / "examples/attempts.py"), str(table), str(picture)]
    printed = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert re.search(r"(?m)^0 +25\.0$", printed)  # one of four attempts of turn 2 is right
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.fixture
def attempts(tmp_path: Path) -> pd.DataFrame:
    return pd.read_parquet(written(tmp_path))


def test_a_row_is_an_attempt_of_an_arm(attempts: pd.DataFrame):
    counts = attempts.groupby(["arm", "turn"]).size().to_dict()
    assert counts == {("independent", 1): 12, ("refine", 1): 6, ("refine", 2): 4, ("refine", 3): 1}
    assert attempts.columns.tolist() == [
        *NAMES,
        *("train_pixel_score", "train_correct_grids", "test_pixel_score", "test_correct_grids"),
        *("has_closed_code", "train_is_correct", "test_is_correct"),
    ]
    assert attempts["set"].unique() == ["small"]


def test_a_report_may_replace_the_table_of_the_one_before(tmp_path: Path):
    folder = written(tmp_path).parent
    words = f"report --configfile {folder}/settings.json --results {folder} --output {tmp_path}/tiny.md"
    cli.parse(words.split()).check_outputs()
    (folder / "attempts.parquet").unlink()
    pd.DataFrame({"mine": [1]}).to_parquet(folder / "attempts.parquet")
    with pytest.raises(InputError, match=r"attempts\.parquet exists and is not a table with the columns set, arm"):
        cli.parse(words.split()).check_outputs()


def test_arms_share_the_first_attempts_of_a_task(attempts: pd.DataFrame):
    first_turn = attempts[(attempts["task_id"] == "a") & (attempts["turn"] == 1)]
    ids = {arm: rows["attempt_id"].tolist() for arm, rows in first_turn.groupby("arm")}
    assert ids["refine"] == ids["independent"][:2] == ["a/turn1-000/000", "a/turn1-000/001"]


def test_slots_of_a_turn_begin_where_the_budgets_before_it_end(attempts: pd.DataFrame):
    refine = attempts[attempts["arm"] == "refine"]
    slots = {task: rows["slot"].tolist() for task, rows in refine.groupby("task_id")}
    assert slots == {"a": [0, 1, 2, 3, 4], "b": [0, 1, 2, 3], "c": [0, 1]}
    assert refine[refine["turn"] == 3]["branch"].tolist() == ["refine-turn3"]


def test_what_an_attempt_gave(attempts: pd.DataFrame):
    by_id = attempts.drop_duplicates("attempt_id").set_index("attempt_id")
    failed, train_only, none = (by_id.loc[name] for name in ("b/turn1-001/000", "b/turn1-000/001", "c/turn1-000/000"))
    assert (failed["status"], failed["error_type"], failed["fingerprint"]) == ("error", "TypeError", "")
    assert (train_only["train_is_correct"], train_only["test_is_correct"]) == (True, False)
    assert (train_only["test_pixel_score"], train_only["test_correct_grids"]) == (0.75, 0.0)
    assert (none["status"], none["error_type"], none["finish_reason"]) == ("no_code", "", "length")
    refined = by_id.loc["b/refine-turn2-000/001"]
    assert (refined["parent_id"], refined["n_prompt_tokens"], refined["n_tokens"]) == ("b/turn1-000/001", 40, 11)
    assert refined["logprob"] == -2.0
    assert by_id["adapter"].unique() == ["none"]


def test_solved_tasks_can_be_counted_from_it(attempts: pd.DataFrame):
    solved = attempts.groupby(["arm", "task_id"])["solved"].any()
    # `independent` has one attempt at b that is right on train pairs, and another that is right on test pairs
    assert solved[solved].index.tolist() == [("independent", "a"), ("refine", "a"), ("refine", "b")]


def test_the_number_of_shards_changes_no_byte(tmp_path: Path):
    # in two shards, the tasks a and c come before b
    assert written(tmp_path / "one").read_bytes() == written(tmp_path / "two", n_shards=2).read_bytes()


def test_texts_are_stored_as_dictionaries(tmp_path: Path):
    group = pq.ParquetFile(written(tmp_path)).metadata.row_group(0)
    columns = {group.column(i).path_in_schema: group.column(i) for i in range(group.num_columns)}
    assert all("RLE_DICTIONARY" in columns[name].encodings for name in ("arm", "task_id", "status", "model"))


def test_verdicts_of_other_attempts_are_refused(tmp_path: Path):
    experiment, folder = finished(tmp_path, settings(ARMS), ANSWERS, "abc")
    (folder / "attempts.parquet").unlink()
    branch = folder / "small/refine-turn2"
    (branch / "verdicts/000.parquet").write_bytes((folder / "small/turn1/verdicts/000.parquet").read_bytes())
    with pytest.raises(
        RecordError,
        match=r"verdicts/000\.parquet: row 1 is a/turn1-000/000, expected a/refine-turn2-000/000; 12 rows, expected 4",
    ):
        reported(experiment, folder).write_attempts()
    assert not (folder / "attempts.parquet").exists()


def test_a_turn_without_attempts_has_no_rows(tmp_path: Path):
    answers = {**ANSWERS, "refine-turn2": {}, "refine-turn3": {}}
    experiment, folder = finished(tmp_path, settings(ARMS), answers, "abc")
    reported(experiment, folder).write_attempts()
    assert pd.read_parquet(folder / "attempts.parquet")["turn"].unique() == [1]
