"""`make demo` ends with whether its metrics are those of the sample report."""

from pathlib import Path

import pytest
import sample_report

TABLE = "name,solved,pass_rate\nindependent,{},0.25\n"


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The table of the run's arms; that of the sample has 0.5."""
    monkeypatch.setattr(sample_report, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(sample_report, "SAMPLES", tmp_path / "samples")
    for root in ("results", "samples"):
        (tmp_path / root / "x/report").mkdir(parents=True)
    (tmp_path / "samples/x/report/heldout-arms.csv").write_text(TABLE.format(0.5))
    return tmp_path / "results/x/report/heldout-arms.csv"


@pytest.mark.parametrize(
    "solved, expected",
    [("0.5", "Same as"), ("0.504", "Same as"), ("0.51", "NOT the same"), ("0.5,1", "Not the exp"), ("", "Not the exp")],
)
def test_metrics_are_compared_with_those_of_the_sample(mine: Path, solved: str, expected: str):
    mine.write_text(TABLE.format(solved).replace("rate", "rate,more", solved.count(",")))
    line = sample_report.comparison("x")
    assert line.startswith(expected)
    assert "\n" not in line and "samples/x.md" in line


def test_every_table_is_compared(mine: Path):
    mine.write_text(TABLE.format(0.5))
    assert sample_report.comparison("x").endswith("is equal, and so is every figure of its 1 tables.")
    for root, text in (("results", "a"), ("samples", "b")):
        (mine.parents[3] / root / "x/report/heldout-turns.csv").write_text(text)
    assert sample_report.comparison("x").endswith("is equal, but not heldout-turns.csv.")


def test_a_run_or_a_sample_without_tables_is_not_the_same(mine: Path):
    assert sample_report.comparison("x").startswith("Not the experiment")
    assert sample_report.comparison("y").startswith("Not the experiment")
