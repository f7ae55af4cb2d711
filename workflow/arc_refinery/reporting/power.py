"""Page on the differences that a comparison can show, before it is made."""

from dataclasses import replace
from math import isinf

from arc_refinery.errors import InputError
from arc_refinery.evaluation.power import FEWEST_CHANGED, POWER, SHARED, Plan
from arc_refinery.reporting.markdown import markdown_table, percent

RUNS = (1, 3, 5, 10)
FACTORS = (1, 2, 4, 10)  # numbers of tasks


def power_page(plan: Plan, title: str, difference: float | None) -> str:
    """Return a table of detectable differences, and of the tasks that show one, if it is given.

    Raises `InputError` if not even one training can detect a difference, or the one that is given.
    """
    if isinf(plan.detects()):
        needed = plan.tasks_needed(plan.changed, 1) if not plan.n_attempts else FEWEST_CHANGED
        share = "" if plan.n_attempts else f" if only {percent(plan.changed)} of them change (--changed)"
        more = "" if needed is None else f"; give {needed:,} or more"
        raise InputError(f"--tasks {plan.n_tasks}: no difference can be detected on so few tasks{share}{more}")
    if difference is not None and not plan.n_attempts and difference > plan.changed:
        raise InputError(
            f"--difference {difference:g}: is more than the tasks that change (--changed {plan.changed:g}); raise "
            "--changed, or ask for a smaller difference"
        )
    header = ["tasks", *(f"{n} training{'s' * (n > 1)}" for n in RUNS)]
    plans = (replace(plan, n_tasks=plan.n_tasks * factor) for factor in FACTORS)
    rows = [[f"{larger.n_tasks:,}", *(_shown(larger.detects(n)) for n in RUNS)] for larger in plans]
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
        markdown_table(header, rows),
        "One training shows nothing about others: its column is about that one adapter, or about untrained models.",
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
