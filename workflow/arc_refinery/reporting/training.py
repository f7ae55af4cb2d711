"""The report's section about training: how it went, whether it collapsed, which checkpoint became the adapter."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from arc_refinery.config import Experiment
from arc_refinery.evaluation.statistics import percent
from arc_refinery.records import RecordError
from arc_refinery.reporting import plots, training_log
from arc_refinery.reporting.markdown import markdown_table
from arc_refinery.reporting.publish import Attachments
from arc_refinery.reporting.training_log import Log
from arc_refinery.reporting.training_plot import training_plot
from arc_refinery.training.log import Decision

REWARDS = (
    "Mean reward over the first and the last tenth of the logged steps. These are rewards on training prompts, with "
    "the sampling of training; whether a gain carries over to other tasks is what the sets above say."
)
# Figures of a step that the report shows, of which any may be missing, and what they are called there
FIGURES = {
    "reward": "mean reward",
    "reward/max": "best reward of a step",
    "loss": "loss (nats/token)",  # of SFT; that of GRPO says nothing
    "mean_token_accuracy": "token accuracy",
    "share/solved": "share of completions that solve their task",
    "share/zero_variance": "share of groups with equal rewards",
    "share/calling": "share of episodes that call a tool",
    "share/faulty_calls": "share of calls that go wrong",
    "calls": "calls in an episode",
    "share/improved": "share of second turns that earn more than the first",
    "kl": "KL from the start (nats/token)",
    "entropy": "entropy (nats/token)",
    "completions/mean_length": "completion length (tokens)",
    "share/truncated": "share of completions cut",
    "reward/truncated": "mean reward of those",
    "unique_tokens/finished": "unique tokens / tokens, completions not cut",
    "repetition": "share of repeated 4-grams",
    "share/no_code": "share of completions without a program",
    "share/error": "share that fail with an error",
    "share/invalid_output": "share with invalid outputs",
    "share/timeout": "share that time out",
    "share/memory": "share that run out of memory",
    "sampling/sampling_logp_difference/mean": "log-probability gap, trainer to sampler",
    "grad_norm": "gradient norm before clipping",
}
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
        training_plot(read, output)


def section(experiment: Experiment, folder: Path, files: Attachments) -> list[str]:
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
        blocks += [REWARDS, _runs_table(rewarded)]
    for name, log in logs.items():
        plot = files.add(f"training-{name}.png", partial(training_plot, log))
        blocks += [
            *([f"### `{name}`"] if len(logs) > 1 else []),
            _adapter(name, log),
            *([_checks_table(log)] if log.checks or log.abandoned_checks else []),
            training_table(log),
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


def _runs_table(logs: Mapping[str, Log]) -> str:
    """Mean reward of each GRPO training at its start and at its end, and of its adapter on held-out prompts."""
    rows = []
    for run, log in logs.items():
        first, last = log.first_and_last("reward")
        n_steps = int(log.steps["step"].max())
        heldout = "–" if log.chosen is None or log.chosen.heldout_reward is None else f"{log.chosen.heldout_reward:.2f}"
        step = log.chosen.step if log.chosen else n_steps
        rows.append([f"`{run}`", n_steps, f"{first:.2f}", f"{last:.2f}", f"{last - first:+.2f}", step, heldout])
    header = ["training", "steps", "first tenth", "last tenth", "change", "adapter of step", "its held-out reward"]
    return markdown_table(header, rows)


def training_table(log: Log) -> str:
    """Means over the first and the last tenth of the logged steps, of the figures that were logged."""
    rows = [
        [title, *(f"{mean:.3f}" for mean in log.first_and_last(name))]
        for name, title in FIGURES.items()
        if name in log.steps and log.steps[name].notna().any() and (name != "loss" or not log.is_grpo)
    ]
    steps = "step" if log.window == 1 else f"{log.window} steps"
    return markdown_table(["", f"first {steps}", f"last {steps}"], rows).replace(" nan ", " – ")


def _checks_table(log: Log) -> str:
    """What each checkpoint earned on the held-out prompts."""
    rows = []
    for check in sorted(log.checks + log.abandoned_checks, key=lambda check: check.step):
        is_kept = check in log.checks
        note = "the adapter" if is_kept and log.chosen and check.step == log.chosen.step else ""
        solved = "–" if check.solved is None else percent(check.solved)
        rows.append([check.step, f"{check.reward:.2f}", solved, note if is_kept else "abandoned by a rollback"])
    return markdown_table(["held out: step", "mean reward", "completions that solve", ""], rows)
