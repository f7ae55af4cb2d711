"""Page on the differences that a comparison can show, before it is made."""

from dataclasses import replace
from math import isinf

from arc_refinery.evaluation.power import POWER, RATE, SHARED, SPREAD, Plan
from arc_refinery.reporting.markdown import markdown_table, percent

RUNS = (1, 3, 5, 10)
FACTORS = (1, 2, 4, 10)  # numbers of tasks


def power_page(plan: Plan, title: str, difference: float | None) -> str:
    """Return a table of detectable differences, and of the tasks that show one, if it is given."""
    runs = RUNS[1:] if plan.run_spread else RUNS  # one training shows nothing of others
    header = ["tasks", *(f"{n} training{'s' * (n > 1)}" for n in runs)]
    plans = (replace(plan, n_tasks=plan.n_tasks * factor) for factor in FACTORS)
    rows = [[f"{larger.n_tasks:,}", *(_shown(larger.detects(n)) for n in runs)] for larger in plans]
    if plan.n_attempts is None:
        assumed = f"{percent(plan.changed)} of tasks are solved by only one side (`--changed`)"
    else:
        assumed = (
            f"{percent(RATE)} of {plan.n_attempts} attempts per task are right, and the true differences of tasks have "
            f"a standard deviation of {100 * SPREAD:.1f} points"
        )
    blocks = [
        f"# {title}",
        f"Smallest difference, in points, that is detected with {100 * POWER:.0f} % power:",
        markdown_table(header, rows),
    ]
    if difference is not None:
        needed = [(n, plan.tasks_needed(difference, n)) for n in runs]
        text = "; ".join(f"with {n}: {'never' if tasks is None else f'{tasks:,}'}" for n, tasks in needed)
        blocks.append(f"Tasks that show {100 * difference:.1f} points, by the number of trainings: {text}.")
    blocks.append(
        f"Assumed: {assumed}; the true differences of trainings have a standard deviation of "
        f"{100 * plan.run_spread:.1f} points (`--run-spread`)"
        + (f"; {100 * SHARED:.0f} % of what changes is the same in all trainings" if plan.n_attempts is None else "")
        + ". Read it as an order of magnitude (docs/methods.md)."
    )
    return "\n\n".join(blocks)


def _shown(difference: float) -> str:
    return "–" if isinf(difference) else f"{100 * difference:.1f}"
