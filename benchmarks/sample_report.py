"""Compare an experiment's metrics with its report in docs/sample-report, as `make demo` does at its end.

A processor of another type adds floats in another order. Then an adapter differs in its last bits, and now and then the
model draws another token where two were equally likely: of thousands of attempts, a few differ.
"""

import argparse
from pathlib import Path

import pandas as pd

SAMPLES = Path(__file__).parents[1] / "docs/sample-report/results"
TOLERANCE = 0.005  # half a percentage point of any metric of an arm


def largest_difference(report: Path, sample: Path) -> float:
    """Return the largest difference of any metric of any arm (shares); infinite where sets, arms or metrics differ."""
    largest = 0.0
    for path in sorted(sample.glob("*-arms.csv")):
        tables = [pd.read_csv(folder / path.name, index_col="name") for folder in (report, sample)]
        if not (tables[0].index.equals(tables[1].index) and tables[0].columns.equals(tables[1].columns)):
            return float("inf")
        largest = max(largest, float((tables[0] - tables[1]).abs().max(axis=None)))
    return largest


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("experiment", help="its name, e.g. demo")
    name = parser.parse_args().experiment
    points = 100 * largest_difference(Path("results") / name / "report", SAMPLES / name / "report")
    are = "are" if points <= 100 * TOLERANCE else "are NOT"
    print(f"Its figures {are} those of the sample report: they differ by {points:.2f} percentage points at most.")
