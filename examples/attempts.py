"""Ten lines of pandas on a table of attempts: the pass rate along the attempts of turn 2, or of the only turn.

    python examples/attempts.py results/demo/attempts.parquet attempts.png

Attempts of a second turn refine the best wrong ones first. A report shows the mean of a turn, not this curve.
"""

import sys

import pandas as pd
from matplotlib.figure import Figure

attempts = pd.read_parquet(sys.argv[1])
n_tasks = {name: len(tasks) for name, tasks in attempts.attrs["tasks"].items()}  # with or without attempts
later = attempts[attempts["turn"] == min(2, attempts["turn"].max())].assign(eighth=lambda rows: rows["sample"] // 8 * 8)
rates = later.groupby(["set", "arm", "eighth"])["solved"].mean().mul(100).unstack("eighth").T
axes = Figure(figsize=(10, 4.5), layout="constrained").subplots()
rates.plot(ax=axes, marker="o", xlabel="attempt of the turn, from", ylabel="right (%)")
axes.legend([f"{name} ({n_tasks[name]} tasks), {arm}" for name, arm in rates], bbox_to_anchor=(1, 1), fontsize=8)
axes.get_figure().savefig(sys.argv[2], dpi=120)
print(rates.round(1).to_string())
