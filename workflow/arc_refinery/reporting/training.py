"""The report's section about training: how it went, whether it collapsed, which checkpoint became the adapter."""

from functools import partial
from pathlib import Path

from arc_refinery.config import Experiment, ToolUse
from arc_refinery.records import RecordError
from arc_refinery.reporting import plots, tables, training_log
from arc_refinery.reporting.publish import Attachments
from arc_refinery.reporting.training_log import Log
from arc_refinery.training.log import Decision

REWARDS = (
    "Mean reward over the first and the last tenth of the logged steps. These are rewards on training prompts, with "
    "the sampling of training; whether a gain carries over to other tasks is what the sets above say."
)
# What is looked at, by the guard's criteria
CRITERIA = {
    "truncated": "the share of completions cut",
    "repetition": "the share of repeated 4-grams",
    "zero_variance": "the share of groups whose completions all earn the same",
    "reward": "the mean reward",
    "kl": "the KL from the start",
}


def draw_curves(log: Path, output: Path) -> None:
    """The curves of one training.jsonl as PNG and SVG files; raises `RecordError` where it holds no steps."""
    read = training_log.read(log)
    if read.steps.empty:
        raise RecordError(f"{log}: holds no step with a reward or a loss, so there is nothing to draw. Train again")
    with plots.style():
        plots.training_plot(read, output)


def section(experiment: Experiment | ToolUse, folder: Path, files: Attachments) -> list[str]:
    """Markdown blocks; a picture of each training is added to `files`."""
    if experiment.training is None:
        return ["## Training", "Nothing was trained."]
    logs = {name: training_log.read(folder / "adapters" / name / "training.jsonl") for name in experiment.adapters}
    silent = [name for name, log in logs.items() if log.steps.empty]
    window = experiment.training.guard.window
    collapses = [collapse(name, one, window) for name, log in logs.items() for one in log.decisions]
    blocks = [
        "## Training",
        *collapses,
        *(f"The log of the training `{name}` holds no step with a reward or a loss." for name in silent),
    ]
    logs = {name: log for name, log in logs.items() if name not in silent}
    rewarded = {name: log for name, log in logs.items() if log.is_grpo}
    if rewarded:
        blocks += [REWARDS, tables.runs_table(rewarded)]
    for name, log in logs.items():
        plot = files.add(f"training-{name}.png", partial(plots.training_plot, log))
        blocks += [
            *([f"### `{name}`"] if len(logs) > 1 else []),
            _adapter(name, log),
            *([tables.checks_table(log)] if log.checks or log.abandoned_checks else []),
            tables.training_table(log),
            f"![Training curves of {name}]({plot})",
        ]
    return blocks


def collapse(name: str, decision: Decision, window: int) -> str:
    """What went wrong, by which measure, and what was done: a warning."""
    if decision.value is None:  # only a loss can be
        symptom = "the loss was no number"
    else:
        figure = CRITERIA.get(decision.criterion, decision.criterion)
        symptom = f"{figure}, mean of {window} steps, was {decision.value:.3g}, past the limit of {decision.limit:.3g}"
    rate = "" if decision.learning_rate is None else f" with the learning rate {decision.learning_rate:g}"
    match decision.action:
        case "rollback":
            done = f"It went back to the checkpoint of step {decision.to_step} and on{rate}"
        case "stop":
            done = "It was stopped there"
        case _:
            done = "Nothing was done: the guard was told only to say so, and what follows is what came of it"
    return f"**Warning: the training `{name}` collapsed at step {decision.step}: {symptom}.** {done}."


def _adapter(name: str, log: Log) -> str:
    method = "GRPO" if log.is_grpo else "SFT"
    took = f"`{name}`: {method}, {int(log.steps['step'].max())} optimizer steps"
    n_abandoned = sum(len(part) for part in log.abandoned)
    abandoned = f", and {n_abandoned} that rollbacks abandoned" if n_abandoned else ""
    if log.chosen is None:
        return f"{took}{abandoned}. The adapter is that of the last step."
    what = f"that of step {log.chosen.step}" if log.chosen.step else "what the training started from (step 0)"
    return f"{took}{abandoned}. The adapter is {what}: {log.chosen.why}."
