"""Report section on training: collapses, rewards, held-out checks, the adapter's checkpoint, completions.

`arc-refinery report samples` prints distinct completions of a step, the best or the worst first:

results/demo/adapters/trained: step 40, 128 completions, 61 distinct, mean reward 0.06; the 1 with the highest reward

=== 1a2b/training-000 ===
<|user|>
[...]

--- 1a2b/training-000: reward 1 (solved 1), advantage 2.81, ok, 24 tokens, 5 times ---
from common import *
[...]
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import assert_never

import numpy as np
from numpy.typing import NDArray

from arc_refinery import records
from arc_refinery.config import Experiment
from arc_refinery.errors import InputError
from arc_refinery.records import Prompt, Question, RecordError
from arc_refinery.reporting.markdown import fenced, folded, markdown_table, number, percent
from arc_refinery.reporting.publish import Attachments, plot_style
from arc_refinery.reporting.training_curves import (
    METRIC_TITLES,
    RUNS_METRICS,
    TUNING_METRICS,
    Log,
    read_log,
    runs_plot,
    training_plot,
)
from arc_refinery.training.log import Decision
from arc_refinery.training.rewards import REWARD_TERM
from arc_refinery.training.samples import FILE as SAMPLES
from arc_refinery.training.samples import TrainingSample

REWARDS_EXPLAINED = (
    "Mean reward over the first and the last tenth of the logged steps, and the highest over any tenth. These are "
    "rewards on training prompts, with the sampling of training; the evaluation sets above show whether a gain carries "
    "over to other tasks."
)
N_SHOWN = 3  # completions of the step that the guard noticed
MAX_LINES = 40  # of a completion in a report
# In the results of an experiment: what its trainings answer
PROMPTS = {"*/training/prompts.parquet": (Prompt, "prompt_id"), "questions/*.parquet": (Question, "question_id")}
# Names of the guard's criteria in sentences
CRITERIA = {
    "truncated": "the share of truncated completions",
    "repetition": "the share of repeated 4-grams",
    "zero_variance": "the share of groups with equal rewards",
    "reward": "the mean reward",
    "kl": "the KL from the start",
}


def draw_curves(log: Path, output: Path) -> None:
    """Draw the curves of one training.jsonl as PNG and SVG files; raises `RecordError` if it has no steps."""
    read = read_log(log)
    if read.steps.empty:
        raise RecordError(f"{log}: has no step with a reward or a loss, so there is nothing to draw. Train again")
    with plot_style():
        training_plot(read, output)


def section(experiment: Experiment, folder: Path, files: Attachments) -> list[str]:
    """Return Markdown blocks; a picture of each training is added to `files`."""
    if experiment.training is None:
        return ["## Training", "Nothing was trained."]
    logs = {name: read_log(folder / "adapters" / name / "training.jsonl") for name in experiment.adapters}
    silent = [name for name, log in logs.items() if log.steps.empty]
    window = experiment.training.guard.window
    collapses = [collapse(name, decision, window) for name, log in logs.items() for decision in log.decisions]
    warnings = [
        *collapses,
        *(f"The log of the training `{name}` has no step with a reward or a loss." for name in silent),
    ]
    blocks: list[str] = []
    logs = {name: log for name, log in logs.items() if name not in silent}
    rewarded = {name: log for name, log in logs.items() if log.is_grpo}
    if rewarded:
        blocks += [REWARDS_EXPLAINED, _runs_table(rewarded)]
    tuned = {name: log for name, log in logs.items() if not log.is_grpo}
    for file, alike, metrics in (("trainings", rewarded, RUNS_METRICS), ("trainings-sft", tuned, TUNING_METRICS)):
        if len(alike) < 2:
            continue
        groups: dict[str, dict[str, Log]] = {}
        for name, log in alike.items():
            groups.setdefault(experiment.training.base_of(name), {})[name] = log
        plot = files.add(f"{file}.png", partial(runs_plot, groups, metrics))
        collapsed = f"; collapses: {len(collapses)}" if alike is rewarded else ""
        blocks.append(f"![Training curves of {', '.join(alike)}{collapsed}]({plot})")
        if len(groups) < len(alike):
            blocks.append(
                "Lines: means of trainings that differ in their seed, with the lowest and the highest of them."
            )
    for name, log in logs.items():
        plot = files.add(f"training-{name}.png", partial(training_plot, log))
        metric = "reward" if log.is_grpo else "loss"
        first, last = (number(mean, ".2f") for mean in log.first_and_last(metric))
        change = f"{METRIC_TITLES[metric]} from {first} to {last} in {log.n_steps} steps"
        blocks += [
            *([f"### `{name}`"] if len(logs) > 1 else []),
            f"{_adapter(name, log)}{_staleness(experiment, name)}",
            *([_checks_table(log)] if log.checks else []),
            training_table(log),
            f"![Training curves of {name}: {change}]({plot})",
            *samples_blocks(folder / "adapters" / name, log.decisions),
        ]
    if blocks:
        warnings.append(folded("Rewards, metrics and curves of each training", *blocks))
    return ["## Training", *warnings]


def collapse(name: str, decision: Decision, window: int) -> str:
    """Return a warning with the criterion that a training failed and the action of the guard."""
    if decision.value is None:  # only for the loss
        symptom = "the loss was not a finite number"
    else:
        metric = CRITERIA.get(decision.criterion, decision.criterion)
        symptom = f"{metric}, mean of {window} steps, was {decision.value:.3g}, limit {decision.limit:.3g}"
    match decision.action:
        case "stop":
            outcome = "It was stopped there, and its adapter is a checkpoint from before"
        case "none":
            outcome = "The guard is configured to warn only, so training continued"
        case _:
            assert_never(decision.action)
    return f"**Warning: the training `{name}` collapsed at step {decision.step}: {symptom}.** {outcome}."


def _adapter(name: str, log: Log) -> str:
    method = "GRPO" if log.is_grpo else "SFT"
    length = f"`{name}`: {method}, {int(log.steps['step'].max())} optimizer steps"
    if log.choice is None:
        return f"{length}. The adapter is that of the last step."
    origin = f"that of step {log.choice.step}" if log.choice.step else "the one that training started from (step 0)"
    return f"{length}. The adapter is {origin}: {log.choice.why}."


def _staleness(experiment: Experiment, name: str) -> str:
    run = experiment.runs.get(name)
    if run is None or run.grpo.steps_per_batch == 1:
        return ""
    n = run.grpo.steps_per_batch
    return (
        f" Completions are sampled for {n} steps at once: a step learns from completions of weights that are up to "
        f"{n - 1} steps older than its own, and metrics of completions are those of all {n} steps."
    )


def _runs_table(logs: Mapping[str, Log]) -> str:
    """Tabulate each GRPO training: its mean reward, its collapses, its adapter's reward on held-out prompts."""
    rows = []
    for run, log in logs.items():
        first, last = log.first_and_last("reward")
        heldout = log.choice.heldout_reward if log.choice else None
        step = log.choice.step if log.choice else log.n_steps
        smooth = log.steps.set_index("step")["reward"].rolling(log.window, min_periods=1).mean()
        highest = f"{number(smooth.max(), '.2f')} at {smooth.idxmax()}"
        collapses = ", ".join(f"{decision.step} ({decision.criterion})" for decision in log.decisions)
        rewards = [number(first, ".2f"), number(last, ".2f"), number(last - first, "+.2f"), highest]
        rows.append(
            [
                f"`{run}`",
                log.n_steps,
                *rewards,
                collapses or "–",
                step,
                "–" if heldout is None else number(heldout, ".2f"),
            ]
        )
    header = ["training", "steps", "first tenth", "last tenth", "change", "highest, at step", "collapse at step"]
    header += ["adapter from step", "its held-out reward"]
    return markdown_table(header, rows)


def training_table(log: Log) -> str:
    """Tabulate means of the logged metrics over the first and the last tenth of the steps."""
    terms = {name: f"reward term `{name.removeprefix(REWARD_TERM)}`" for name in log.reward_terms}
    titles = {"reward": METRIC_TITLES["reward"]} | terms | METRIC_TITLES
    rows = [
        [title, *(number(mean, ".3f") for mean in log.first_and_last(name))]
        for name, title in titles.items()
        if name in log.steps and log.steps[name].notna().any() and (name != "loss" or not log.is_grpo)
    ]
    steps = "step" if log.window == 1 else f"{log.window} steps"
    return markdown_table(["", f"first {steps}", f"last {steps}"], rows).replace(" nan ", " – ")


def _checks_table(log: Log) -> str:
    """Tabulate the mean reward of each checkpoint on the held-out prompts."""
    rows = []
    for check in log.checks:
        note = "the adapter" if log.choice and check.step == log.choice.step else ""
        solved = "–" if check.solved is None else percent(check.solved)
        rows.append([check.step, number(check.reward, ".2f"), solved, note])
    return markdown_table(["held-out check at step", "mean reward", "completions that solve", ""], rows)


def show_samples(folder: Path, step: int | None, number: int, worst: bool) -> str:
    """Return distinct completions of a step, by default the last one, below their prompts; raises `InputError`."""
    path = folder / SAMPLES
    if not path.is_file():
        raise InputError(
            f"{path}: no such file. Give the folder of an adapter that GRPO has trained, "
            "results/demo/adapters/trained; of a training in parts (trained@1000), the last part has the samples of all"
        )
    steps_of_rows = _steps_of_rows(path)
    steps = sorted(set(steps_of_rows.tolist()))
    shown_step = steps[-1] if step is None else step
    if shown_step not in steps:
        raise InputError(
            f"--step is {step}, but {path} has completions for {len(steps)} steps: {steps[0]} to {steps[-1]}; where a "
            "batch is for several steps, they belong to the first one"
        )
    samples = _read(path, steps_of_rows, shown_step)
    ranked = _ranked(samples, worst)
    shown: dict[str, list[str]] = {}
    for sample, times in ranked[:number]:
        shown.setdefault(sample.name, []).append(_text(sample, times))
    prompts = _prompts(folder, shown)
    mean = sum(sample.reward for sample in samples) / len(samples)
    which = f"the {min(number, len(ranked))} with the {'lowest' if worst else 'highest'} reward"
    head = (
        f"{folder}: step {shown_step}, {len(samples)} completions, {len(ranked)} distinct, "
        f"mean reward {mean:.3g}; {which}"
    )
    texts = [text for name, below in shown.items() for text in (prompts.get(name, ""), *below) if text]
    return "\n\n".join([head, *texts])


def samples_blocks(folder: Path, decisions: Sequence[Decision]) -> list[str]:
    """Return folded Markdown: the best and the worst completion of the last step, and some of each collapse."""
    path = folder / SAMPLES
    if not path.is_file():
        return []
    steps_of_rows = _steps_of_rows(path)
    steps = sorted(set(steps_of_rows.tolist()))
    last = sorted(_read(path, steps_of_rows, steps[-1]), key=lambda sample: sample.reward)
    parts = [
        f"Of step {steps[-1]}, the completion with the highest and with the lowest reward:",
        *map(_fenced, (last[-1], last[0])),
    ]
    for decision in decisions:
        if collapsed := [step for step in steps if step <= decision.step]:
            parts.append(f"At the collapse, in step {collapsed[-1]}:")
            parts += map(_fenced, _read(path, steps_of_rows, collapsed[-1])[:N_SHOWN])
    return [folded("What it wrote", *parts)]


def _steps_of_rows(path: Path) -> NDArray[np.int64]:
    """Return the step of each row."""
    return np.asarray(records.columns(path, TrainingSample, ["step"])["step"])


def _read(path: Path, steps_of_rows: NDArray[np.int64], step: int) -> list[TrainingSample]:
    return list(records.read(path, TrainingSample, steps_of_rows == step))


def _ranked(samples: Sequence[TrainingSample], worst: bool) -> list[tuple[TrainingSample, int]]:
    """Return distinct completions, the best or the worst first, and how often each occurs.

    Of equal rewards, every prompt has one before any has two.
    """
    equal: dict[tuple[str, str], list[TrainingSample]] = {}
    for sample in samples:
        equal.setdefault((sample.name, _body(sample)), []).append(sample)
    ranks, n_before = [], Counter[tuple[str, float]]()
    for first, *_ in equal.values():
        ranks.append((first.reward if worst else -first.reward, n_before[first.name, first.reward]))
        n_before[first.name, first.reward] += 1
    order = sorted(zip(ranks, equal.values(), strict=True), key=lambda entry: entry[0])
    return [(alike[0], len(alike)) for _, alike in order]


def _prompts(folder: Path, names: Collection[str]) -> dict[str, str]:
    """Return the prompts and questions, by id, that are in the results around an adapter."""
    texts = {}
    for pattern, (cls, column) in PROMPTS.items():
        for path in sorted(folder.resolve().parent.parent.glob(pattern)):
            for row in records.columns(path, cls, [column, "text"], names).to_pylist():
                texts[row[column]] = f"=== {row[column]} ===\n{row['text'].strip()}"
    return texts


def _sample_title(sample: TrainingSample) -> str:
    terms = ", ".join(f"{value.term} {value.value:.3g}" for value in sample.terms)
    facts = [
        f"reward {sample.reward:.3g} ({terms})",
        f"advantage {', '.join(f'{value:.3g}' for value in sample.advantages)}",
    ]
    facts += [sample.status] * bool(sample.status) + ["truncated"] * sample.is_truncated
    facts.append(f"{sum(span.n_tokens for span in sample.spans if span.is_sampled)} tokens")
    return f"{sample.name}: {', '.join(facts)}"


def _body(sample: TrainingSample) -> str:
    """Return the turns of the model, and what came between them as `[...]`."""
    return "\n".join(span.text if span.is_sampled else f"[{span.text}]" for span in sample.spans)


def _text(sample: TrainingSample, times: int) -> str:
    return f"--- {_sample_title(sample)}{f', {times} times' if times > 1 else ''} ---\n{_body(sample)}"


def _fenced(sample: TrainingSample) -> str:
    return f"{_sample_title(sample)}\n\n{fenced(_body(sample), 'text', MAX_LINES)}"
