"""Time and memory of each stage's jobs, from the files that Snakemake's `benchmark:` writes.

Measurements differ from run to run, so the table belongs in `logs/`, never in `results/`.
"""

from pathlib import Path

import pandas as pd

from arc_refinery.errors import InputError
from arc_refinery.files import check_regular
from arc_refinery.reporting.markdown import markdown_table
from arc_refinery.runs.screen import stage

# Other stages follow these
ORDER = ["fetch", "tasks", "wording", "prompts", "sample", "grade", "demonstrations", "sft", "train"]
COLUMNS = ["s", "cpu_time", "max_rss"]
_CAPTION = """\
Each job counts with the run that finished it; earlier runs that were killed are not included. Wall seconds are summed
over jobs, including jobs that ran at the same time. CPU time and memory are sampled over the job's live processes,
twice a second at first, later twice a minute, so they are lower bounds. A dash: the job ended before the first
sample."""


def times_page(benchmarks: Path) -> str:
    """Return the table of a folder of benchmarks as a Markdown page."""
    stages = stages_table(benchmarks)
    total = [stages["jobs"].sum(), stages["s"].sum(), stages["cpu_time"].sum(), stages["max_rss"].max()]
    rows = [[name, *line] for name, *line in stages.itertuples()]
    table = markdown_table(
        ["stage", "jobs", "wall s", "CPU s", "peak memory, MB"],
        [[name, int(jobs), *map(_number, measured)] for name, jobs, *measured in [*rows, ["all", *total]]],
    )
    return f"# Machine time\n\n{_CAPTION}\n\n{table}\n"


def stages_table(benchmarks: Path) -> pd.DataFrame:
    """Return one row per stage: `jobs`, `s` (wall seconds, sum), `cpu_time` (seconds, sum), `max_rss` (MB, maximum)."""
    paths = sorted(benchmarks.rglob("*.tsv"))
    if not paths:
        raise InputError(f"{benchmarks}: holds no *.tsv file; expected the logs/<experiment>/benchmarks of a run")
    jobs = pd.concat([read_benchmark(path).assign(stage=stage(path.relative_to(benchmarks))) for path in paths])
    groups = jobs.groupby("stage")
    sums = groups[["s", "cpu_time"]].sum(min_count=1)
    table = pd.DataFrame({"jobs": groups.size(), **sums, "max_rss": groups["max_rss"].max()})
    return table.loc[sorted(table.index, key=lambda name: (ORDER.index(name) if name in ORDER else len(ORDER), name))]


def read_benchmark(path: Path) -> pd.DataFrame:
    """Return the columns `COLUMNS` of a job's file, whose row is one run of it."""
    expected = "expected a file of Snakemake's `benchmark:`; remove it"
    check_regular(path)
    try:
        table = pd.read_csv(path, sep="\t", na_values=["-"])
        if missing := [column for column in COLUMNS if column not in table]:
            raise InputError(f"{path}: has no column {missing[0]}; {expected}")
        if table.empty or table["s"].isna().any():
            raise InputError(f"{path}: has no row with the seconds of a job; {expected}")
        return table[COLUMNS].astype(float)
    except InputError:
        raise
    except (OSError, ValueError) as error:  # ValueError: also pandas' own errors, and not UTF-8
        raise InputError(f"{path}: cannot be read ({error}); {expected}") from None


def _number(value: float) -> str:
    return "–" if pd.isna(value) else f"{value:.0f}" if value >= 100 else f"{value:.1f}"
