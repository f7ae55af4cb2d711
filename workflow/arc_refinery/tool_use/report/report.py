"""Report of a tool-use experiment: one Markdown file, and the pictures and tables that it links to.

It depends only on the settings and the records, so equal settings give equal bytes.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

import pandas as pd

from arc_refinery.evaluation.intervals import Estimate, estimate, estimate_difference
from arc_refinery.evaluation.sides import both_sides, run_means
from arc_refinery.reporting import provenance, registration, training
from arc_refinery.reporting.markdown import (
    TOO_FEW,
    estimate_text,
    folded,
    folded_section,
    interval_phrase,
    markdown_table,
    percent,
    points,
    points_text,
    runs_text,
    write_csv,
)
from arc_refinery.reporting.publish import Attachments, publish
from arc_refinery.tool_use.config import ToolArm, ToolUse
from arc_refinery.tool_use.grading.evaluated import EvaluatedQuestions, load_questions
from arc_refinery.tool_use.report import metrics
from arc_refinery.tool_use.report.transcripts import (
    ENDING_TITLES,
    arm_to_show,
    first_repetitions,
    mask_section,
    transcripts,
)

Differences = Mapping[tuple[str, str], Estimate]  # pass@1, first minus second, by pair of arms
MAX_UNFOLDED = 40  # lines
PATTERNS = (
    "The generator's questions follow a few patterns, and one text in eight is held out, so no held-out pattern is "
    "new to the model."
)


def write_report(experiment: ToolUse, folder: Path, report: Path) -> None:
    """Write the Markdown file `report` and replace `folder`/report by its pictures and tables."""
    publish(report, folder, partial(compose, experiment, folder))


def compose(experiment: ToolUse, folder: Path, files: Attachments) -> list[str]:
    """Return the report as Markdown blocks; its pictures and tables are added to `files`."""
    arms = [arm.name for arm in experiment.arms]
    training_seeds = experiment.training.seeds if experiment.training else ()
    seeds = {"experiment": (experiment.seed,), "training": training_seeds}
    limits = [*registration.limits(experiment, folder), _scope_of_intervals(experiment)]
    if any(questions.source == "generator" for questions in experiment.data.heldout):
        limits.append(PATTERNS)
    pairs = [(first.name, second.name) for first, second in pairs_to_compare(first_repetitions(experiment))]
    evaluated = [load_questions(experiment, folder, questions, arms) for questions in experiment.data.heldout]
    differences = [{pair: _difference(experiment, results, *pair) for pair in pairs} for results in evaluated]
    return [
        f"# Experiment {experiment.experiment}: tool use",
        *_headline(experiment, evaluated, differences),
        _setup(experiment),
        *_shortened(transcripts(experiment, evaluated[0])[0]),
        "## Limitations",
        "\n".join(f"- {item}" for item in limits),
        *(
            block
            for results, by_pair in zip(evaluated, differences, strict=True)
            for block in folded_section(
                "Results, differences, calls, votes, turns, lengths, transcripts",
                _set_section(experiment, results, by_pair, int(results is evaluated[0]), files),
            )
        ),
        *folded_section("Tokens of one episode", mask_section(experiment, folder, evaluated, files)),
        *training.section(experiment, folder, files),
        *folded_section("Questions that were not used", left_out(experiment, folder)),
        *folded_section("Keys of the configuration", ["## Settings", *provenance.settings(experiment)]),
        *folded_section("Command, code, packages", provenance.section(experiment, folder, seeds)),
    ]


def _shortened(transcript: Sequence[str]) -> list[str]:
    """Fold the episodes on a question if they would fill the first screen."""
    question, *episodes = transcript
    is_short = "\n".join(episodes).count("\n") < MAX_UNFOLDED
    return [question, *(episodes if is_short else [folded("Episodes on this question", *episodes)])]


def _setup(experiment: ToolUse) -> str:
    trained = "Nothing was trained."
    if experiment.training:
        names = ", ".join(f"`{questions.name}`" for questions in experiment.data.train)
        trained = f"Trained on {names} by {', then '.join(method.upper() for method in experiment.training.methods)}."
        if len(experiment.trained) > 1:
            trained += f" Trainings: {', '.join(f'`{name}`' for name in experiment.trained)}."
    verbs = "thinks, calls tools" if experiment.generation.enable_thinking else "calls tools"
    return (
        f"`{experiment.model.path}` {verbs}, reads their results, and answers. {trained} Reward below, whatever it was "
        "in training: 1 for a correct answer, else 0."
    )


def _headline(
    experiment: ToolUse, evaluated: Sequence[EvaluatedQuestions], differences: Sequence[Differences]
) -> list[str]:
    """Return the change in right answers from the first arm to the trained one, by set; a table of all arms."""
    first, last = first_repetitions(experiment)[0], arm_to_show(experiment)
    rates = [
        {
            name: estimate([results.pass_at(arm.name, 1) for arm in arms])
            for name, arms in experiment.repetitions.items()
        }
        for results in evaluated
    ]
    is_training = first.adapter == "none" and last.adapter != "none" and first.tools == last.tools
    before, after = ("before training", "after") if is_training else (f"with `{first.name}`", f"with `{last.name}`")
    sentences = [
        f"**Right answers on `{results.settings.name}`: {percent(of_set[first.name].mean)} {before}, "
        f"{percent(of_set[last.name].mean)} {after}: {points_text(difference)}.** {_evidence(difference)}"
        for results, of_set, by_pair in zip(evaluated, rates, differences, strict=True)
        if first.name != last.name
        for difference in [by_pair[last.name, first.name]]
    ]
    header = [f"`{results.settings.name}`: {len(results.questions)} questions" for results in evaluated]
    rows = [
        [f"`{name}`{_n_repetitions(arms)}", *(estimate_text(of_set[name]) for of_set in rates)]
        for name, arms in experiment.repetitions.items()
    ]
    return [
        *sentences,
        markdown_table(["right answers", *header], rows),
        "Rows are *arms*: the model with one adapter (the weights that a training adds), with or without tools. Cells: "
        f"share of episodes, {experiment.evaluation.n_predictions} per question, that end in a right answer; brackets: "
        "95 % interval.",
    ]


def _n_repetitions(arms: Sequence[ToolArm]) -> str:
    return f", mean of {len(arms)}" if len(arms) > 1 else ""


def _evidence(difference: Estimate) -> str:
    runs = f" ({runs_text(difference)})" if len(difference.runs) > 1 else ""
    return f"The evidence {'supports' if difference.supports_difference else 'does not support'} a difference{runs}."


def _difference(experiment: ToolUse, results: EvaluatedQuestions, first: str, second: str) -> Estimate:
    """Compare pass@1 of two arms, paired by question and, if trainings are repeated, by training."""
    a, b = (
        run_means([[results.pass_at(arm.name, 1) for arm in run] for run in side])
        for side in both_sides(experiment.paired_runs(first, second))
    )
    return estimate_difference(a, b)


def _set_section(
    experiment: ToolUse, results: EvaluatedQuestions, differences: Differences, n_shown: int, files: Attachments
) -> list[str]:
    """Return blocks on one set; `n_shown`: its questions whose transcripts are shown above."""
    name = results.settings.name
    is_repeated = any(len(arms) > 1 for arms in experiment.repetitions.values())
    table = files.add(f"{name}-questions.csv", partial(write_csv, per_question(experiment, results)))
    return [
        f"## Set `{name}` ({len(results.questions)} questions, {experiment.evaluation.n_predictions} episodes each)",
        markdown_table(*_results(experiment, results)),
        "pass@k: probability that at least one of k episodes is correct; brackets: 95 % interval over questions"
        f"{', for means of several trainings over trainings, too' if is_repeated else ''}. "
        f"[Table of questions as CSV]({table}).",
        "### Differences",
        "\n".join(
            f"- `{first}` − `{second}`: pass@1 {_difference_text(difference)}"
            for (first, second), difference in differences.items()
        )
        or "There is one arm, so nothing is compared.",
        "### Calls and episode endings",
        markdown_table(*_calls(experiment, results)),
        *metrics.section(experiment, results, files),
        "### Transcripts",
        *(block for blocks in transcripts(experiment, results)[n_shown:] for block in blocks),
    ]


def per_question(experiment: ToolUse, results: EvaluatedQuestions) -> pd.DataFrame:
    """Return one row per question and arm."""
    rows = []
    for arm in experiment.arms:
        for question_id, episodes in results.episodes[arm.name].items():
            rows.append(
                {
                    "arm": arm.name,
                    "question_id": question_id,
                    "episodes": len(episodes),
                    "right": sum(episode.reward == 1.0 for episode in episodes),
                    "calling": sum(bool(episode.calls) for episode in episodes),
                    "calls": sum(len(episode.calls) for episode in episodes),
                    "faulty_calls": sum(bool(call.fault) for episode in episodes for call in episode.calls),
                    "tokens": sum(episode.n_tokens for episode in episodes),
                }
            )
    return pd.DataFrame(rows)


def _results(experiment: ToolUse, results: EvaluatedQuestions) -> tuple[list[str], list[list[str]]]:
    ks = sorted({1, experiment.evaluation.n_predictions})
    rows = []
    for name, arms in experiment.repetitions.items():
        if len(arms) > 1:
            rows.append(_result(results, f"`{name}`{_n_repetitions(arms)}", "–", arms, ks))
        rows += [_result(results, f"`{arm.name}`", arm.adapter, [arm], ks) for arm in arms]
    header = ["arm", "adapter", "tools", *(f"pass@{k}" for k in ks)]
    return [*header, "episodes that call", "calls per episode", "generated tokens per episode"], rows


def _result(
    results: EvaluatedQuestions, title: str, adapter: str, arms: Sequence[ToolArm], ks: Sequence[int]
) -> list[str]:
    """Return a row of the results: of one arm, or of the repetitions of one together."""
    episodes = [episode for arm in arms for episode in results.episodes_of_arm(arm.name)]
    return [
        title,
        adapter,
        "yes" if arms[0].tools else "no",
        *(estimate_text(estimate([results.pass_at(arm.name, k) for arm in arms])) for k in ks),
        percent(_mean(bool(episode.calls) for episode in episodes)),
        f"{_mean(len(episode.calls) for episode in episodes):.2f}",
        f"{_mean(episode.n_tokens for episode in episodes):.1f}",
    ]


def pairs_to_compare(arms: Sequence[ToolArm]) -> list[tuple[ToolArm, ToolArm]]:
    """Pair each arm with the first one, and arms that differ only in adapter or only in tools with each other."""
    with_baseline = [(arm, arms[0]) for arm in arms[1:]]
    others = [
        (later, earlier)
        for index, earlier in enumerate(arms)
        for later in arms[index + 1 :]
        if (earlier.adapter == later.adapter) != (earlier.tools == later.tools)
    ]
    flipped = [(b, a) if b.tools and not a.tools else (a, b) for a, b in others]  # with tools minus without
    seen = {frozenset((a.name, b.name)) for a, b in with_baseline}
    return with_baseline + [(a, b) for a, b in flipped if frozenset((a.name, b.name)) not in seen]


def _difference_text(difference: Estimate) -> str:
    text = f"{points(difference.mean)} points, {interval_phrase(difference)}"
    return f"{f'**{text}**' if difference.supports_difference else text}. {_evidence(difference)}"


def _calls(experiment: ToolUse, results: EvaluatedQuestions) -> tuple[list[str], list[list[str]]]:
    """Count calls by fault and episodes by ending, per arm."""
    by_arm = {arm.name: results.episodes_of_arm(arm.name) for arm in experiment.arms}
    faults = {
        name: Counter(call.fault for episode in episodes for call in episode.calls) for name, episodes in by_arm.items()
    }
    endings = {name: Counter(episode.ending for episode in episodes) for name, episodes in by_arm.items()}
    rows = [["calls", *(str(sum(counts.values())) for counts in faults.values())]]
    for fault in sorted({fault for counts in faults.values() for fault in counts if fault}):
        rows.append([f"… {fault.replace('_', ' ')}", *(str(counts[fault]) for counts in faults.values())])
    rows.append(["episodes", *(str(len(episodes)) for episodes in by_arm.values())])
    for ending, words in ENDING_TITLES.items():
        if any(counts[ending] for counts in endings.values()):
            rows.append([f"… {words}", *(str(counts[ending]) for counts in endings.values())])
    return ["", *(f"`{name}`" for name in by_arm)], rows


def left_out(experiment: ToolUse, folder: Path) -> list[str]:
    """Return Markdown blocks on questions that were not used."""
    rows = []
    for name in experiment.sets:
        notes = provenance.notes_of(folder / f"questions/{name}.parquet")
        reasons = {**notes.get("held_out", {}), "their programs fail": len(notes.get("failing", {}))}
        rows += provenance.rows_of(f"questions of `{name}`", reasons)
        unchecked = {"some cannot be checked": len(notes.get("unchecked", {}))}
        rows += provenance.rows_of(f"asserts of questions of `{name}`", unchecked)
    return provenance.left_out(rows, "All questions were used.")


def _scope_of_intervals(experiment: ToolUse) -> str:
    n_runs = len(experiment.training.seeds) if experiment.training else 0
    if n_runs == 2:
        return f"{TOO_FEW} Other intervals cover the choice of questions only."
    if n_runs > 2:
        return (
            f"Intervals of arms with repeated trainings cover the choice of questions and other training runs, "
            f"estimated from {n_runs} of them. All runs trained on the same questions, whose choice the intervals "
            "do not cover. Other intervals cover the choice of questions only."
        )
    return (
        "Intervals cover the choice of questions, not the variation between training runs or between samples of the "
        "same model."
    )


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return sum(listed) / len(listed)
