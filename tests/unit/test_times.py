"""Machine time by stage, from benchmark files in the form in which Snakemake writes them."""

from pathlib import Path

import pytest
from checkout import ROOT
from snakemake.benchmark import BenchmarkRecord

from arc_refinery.config import load_experiment
from arc_refinery.errors import InputError
from arc_refinery.reporting import times
from arc_refinery.reporting.times import stages_table
from arc_refinery.runs.screen import stage


def benchmark(path: Path, seconds: float, cpu: float | None, memory: float | None) -> None:
    """As Snakemake writes it; a job without measurements was over too soon."""
    record = BenchmarkRecord(running_time=seconds, max_rss=memory, cpu_time=cpu)
    record.data_collected, record.process_gone = cpu is not None, cpu is None
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\t".join(record.get_header()) + "\n" + record.to_tsv(False) + "\n")


@pytest.fixture
def benchmarks(tmp_path: Path) -> Path:
    benchmark(tmp_path / "tasks.tsv", 0.25, None, None)
    benchmark(tmp_path / "heldout/turn1/sample-000.tsv", 60.0, 50.0, 500.0)
    benchmark(tmp_path / "heldout/refine-base-turn2/sample-001.tsv", 90.5, 70.25, 700.0)
    benchmark(tmp_path / "part1/turn1/grade-000.tsv", 10.0, 12.0, 100.0)
    benchmark(tmp_path / "part1/turn1/grade-001.tsv", 0.5, None, None)
    benchmark(tmp_path / "adapters/sft.tsv", 200.0, 150.0, 1500.0)
    benchmark(tmp_path / "adapters/trained.tsv", 1000.0, 900.0, 2800.0)
    benchmark(tmp_path / "report.tsv", 12.0, 11.0, 330.0)
    return tmp_path


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("tasks.tsv", "tasks"),
        ("heldout/tasks.tsv", "tasks"),
        ("part1/turn1/prompts.tsv", "prompts"),
        ("part1/training/prompts.tsv", "prompts"),
        ("part1/training/demonstrations.tsv", "demonstrations"),
        ("heldout/turn1-learning-rate-1e-9/sample-012.tsv", "sample"),
        ("part10/turn1/grade-1234.tsv", "grade"),
        ("adapters/sft.tsv", "sft"),
        ("adapters/sft-seed-0.tsv", "sft"),
        ("adapters/trained.tsv", "train"),
        ("adapters/learning-rate-0.001.tsv", "train"),
        ("adapters/learning-rate-0.001.curves.tsv", "curves"),
        ("report.tsv", "report"),
    ],
)
def test_a_file_name_says_the_stage(path: str, expected: str):
    assert stage(Path(path)) == expected


def test_stages_are_sums_over_their_jobs_in_running_order(benchmarks: Path):
    stages = stages_table(benchmarks)
    assert stages.index.tolist() == ["tasks", "sample", "grade", "sft", "train", "report"]
    assert stages.loc["sample"].tolist() == [2, 150.5, 120.25, 700.0]
    assert stages.loc["grade"].tolist() == [2, 10.5, 12.0, 100.0]  # what was not measured adds nothing


def test_the_page_has_a_total_and_says_what_was_not_measured(benchmarks: Path):
    lines = times.times_page(benchmarks).splitlines()
    assert "| tasks | 1 | 0.2 | – | – |" in lines
    assert "| sample | 2 | 150 | 120 | 700 |" in lines
    assert lines[-1] == "| all | 8 | 1373 | 1193 | 2800 |"


def test_what_is_no_folder_of_benchmarks_is_refused(tmp_path: Path):
    with pytest.raises(InputError, match=r"holds no \*\.tsv file; expected the logs/<experiment>/benchmarks"):
        stages_table(tmp_path)
    (tmp_path / "notes.tsv").write_text("a\tb\n1\t2\n")
    with pytest.raises(InputError, match=r"notes\.tsv: has no column s"):
        stages_table(tmp_path)


REPORTED = {path.parent.name: path for path in ROOT.glob("docs/sample-report/logs/*/machine-time.md")}


@pytest.mark.parametrize("name", sorted(REPORTED))
def test_the_shipped_experiments_request_more_memory_than_their_jobs_used(name: str):
    needs = load_experiment(ROOT / "config" / f"{'config' if name == 'demo' else name}.yaml").resources
    kinds = {"sample": needs.sample, "episodes": needs.sample, "sft": needs.train, "train": needs.train}
    rows = [line.strip("| ").split(" | ") for line in REPORTED[name].read_text().splitlines() if line.startswith("| ")]
    used = {row[0]: float(row[-1].replace(",", "")) for row in rows[2:-1]}
    assert used.keys() & {"train", "sample"}
    assert not {stage for stage, megabytes in used.items() if megabytes > kinds.get(stage, needs.cpu).mem_mb}
