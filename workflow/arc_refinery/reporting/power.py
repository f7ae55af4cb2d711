"""Page on the differences that a comparison can show, before it is made."""

from dataclasses import replace
from math import isinf

from arc_refinery.errors import InputError
from arc_refinery.evaluation.power import POWER, SHARED, Plan
from arc_refinery.reporting.markdown import markdown_table, percent

RUNS = (1, 3, 5, 10)
FACTORS = (1, 2, 4, 10)  # numbers of tasks


def power_page(plan: Plan, title: str, difference: float | None) -> str:
    """Return a table of detectable differences, and of the tasks that show one, if it is given.

    Raises `InputError` if not even one training can detect a difference, or the one that is given.
    """
    flag = "--rate" if plan.n_attempts else "--changed"
    if difference is not None and difference > plan.largest:
        raise InputError(
            f"--difference {difference:g}: at most {100 * plan.largest:.1f} points can change ({flag}), whatever the "
            f"number of tasks; change {flag}, or ask for a smaller difference"
        )
    if isinf(plan.detects()):
        needed = plan.tasks_needed(plan.largest, 1)
        share = "" if plan.n_attempts else f" if only {percent(plan.changed)} of them change (--changed)"
        more = "" if needed is None else f"; give {needed:,} or more"
        raise InputError(f"--tasks {plan.n_tasks}: no difference can be detected on so few tasks{share}{more}")
    header = ["tasks", *(f"{n} training{'s' * (n > 1)}" for n in RUNS)]
    plans = (replace(plan, n_tasks=plan.n_tasks * factor) for factor in FACTORS)
    rows = [[f"{larger.n_tasks:,}", *(_shown(larger.detects(n)) for n in RUNS)] for larger in plans]
    table = markdown_table(header, rows)
    none = f" –: none, because at most {100 * plan.largest:.1f} points can change ({flag})." if "–" in table else ""
    if plan.n_attempts is None:
        assumed = (
            f"{percent(plan.changed)} of tasks are solved by only one side (`--changed`), and {100 * SHARED:.0f} % of "
            "what changes is the same in all trainings"
        )
    else:
        assumed = (
            f"{percent(plan.rate)} of {plan.n_attempts} attempts per task are right (`--rate`), and the true "
            f"differences of tasks have a standard deviation of {100 * plan.task_spread:.1f} points"
        )
    blocks = [
        f"# {title}",
        f"Smallest difference, in points, that is detected with {100 * POWER:.0f} % power:",
        table,
        "One training shows nothing about others: its column is about that one adapter, or about untrained models."
        f"{none}",
    ]
    if difference is not None:
        numbers = [(n, plan.tasks_needed(difference, n)) for n in RUNS]
        text = "; ".join(f"with {n}: {'never' if tasks is None else f'{tasks:,}'}" for n, tasks in numbers)
        blocks.append(f"Tasks that show {100 * difference:.1f} points, by the number of trainings: {text}.")
    blocks.append(
        f"Assumed: {assumed}; the true differences of trainings have a standard deviation of "
        f"{100 * plan.run_spread:.1f} points (`--spread`). Read it as an order of magnitude (docs/methods.md)."
    )
    return "\n\n".join(blocks)


def _shown(difference: float) -> str:
    return "–" if isinf(difference) else f"{100 * difference:.1f}"
