"""Compare an experiment's metrics with its report in docs/sample-report, as `make demo` does at its end.

A processor of another type adds floats in another order. Then an adapter differs in its last bits, and now and then the
model draws another token where two were equally likely: of thousands of attempts, a few differ.
"""

import argparse
from pathlib import Path

import pandas as pd

RESULTS = Path("results")
SAMPLES = Path(__file__).parents[1] / "docs/sample-report/results"
TOLERANCE = 0.005  # half a percentage point of any metric of an arm


def largest_difference(report: Path, sample: Path) -> float | None:
    """Return the largest difference of any metric of any arm (shares); None where sets, arms or metrics differ."""
    differences = []
    for path in sorted(sample.glob("*-arms.csv")):
        if not (report / path.name).exists():
            return None
        tables = [pd.read_csv(folder / path.name, index_col="name") for folder in (report, sample)]
        if not (tables[0].index.equals(tables[1].index) and tables[0].columns.equals(tables[1].columns)):
            return None
        if not tables[0].isna().equals(tables[1].isna()):  # a metric without values
            return None
        differences.append(float((tables[0] - tables[1]).abs().max(axis=None)))
    return max(differences, default=None)


def comparison(name: str) -> str:
    """Whether an experiment has the metrics of its sample report, in one line."""
    sample = SAMPLES / name
    difference = largest_difference(RESULTS / name / "report", sample / "report")
    if difference is None:
        return f"Not the experiment of the sample report ({sample}.md): it has other sets, arms or metrics."
    if difference == 0:
        tables = {path.name: path.read_bytes() for path in (sample / "report").glob("*.csv")}
        ours = {path.name: path.read_bytes() for path in (RESULTS / name / "report").glob("*.csv")}
        others = [table for table in sorted(tables) if ours.get(table) != tables[table]]
        equal = f"but not {', '.join(others)}" if others else f"and so is every figure of its {len(tables)} tables"
        return f"Same as the sample report ({sample}.md): every metric of every arm is equal, {equal}."
    same = "Same as" if difference <= TOLERANCE else "NOT the same as"
    return f"{same} the sample report ({sample}.md): metrics differ by up to {100 * difference:.2f} percentage points."


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("experiment", help="its name, e.g. demo")
    print(comparison(parser.parse_args().experiment))
