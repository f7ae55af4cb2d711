"""Report of a tool-use experiment: one Markdown file, and the pictures and tables that it links to.

It depends only on the settings and the records, so equal settings give equal bytes.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path

import pandas as pd

from arc_refinery import records
from arc_refinery.config import Questions, ToolArm, ToolUse
from arc_refinery.evaluation.intervals import Estimate, estimate_difference
from arc_refinery.evaluation.statistics import interval_text, pass_at_k, percent, points, share_text
from arc_refinery.hub import fetched_folder
from arc_refinery.records import RecordError
from arc_refinery.records.questions import Question
from arc_refinery.records.transcripts import Episode
from arc_refinery.reporting import left_out, provenance, training
from arc_refinery.reporting.markdown import markdown_table, write_csv
from arc_refinery.reporting.publish import Attachments, publish
from arc_refinery.reporting.tool_use.mask import mask_picture

MAX_TRANSCRIPTS = 3
ENDING_TITLES = {
    "answer": "answered",
    "truncated": "last turn truncated",
    "tokens": "out of tokens",
    "calls": "called a tool with no calls left",
}


@dataclass(frozen=True, slots=True)
class EvaluatedQuestions:
    """One held-out set: its questions, and the episodes of each arm by question, in the questions' order.

    Episodes are kept without messages and token ids: those of all arms would not fit in memory.
    """

    settings: Questions
    questions: dict[str, Question]
    episodes: dict[str, dict[str, list[Episode]]]
    folder: Path  # of its episodes, one folder per arm

    def full_episode(self, arm: str, episode_id: str) -> Episode:
        """Read an episode with its messages and token ids."""
        files = sorted((self.folder / arm).glob("*.parquet"))
        return next(one for path in files for one in records.read_episodes(path) if one.episode_id == episode_id)

    def of_arm(self, arm: str) -> list[Episode]:
        return [episode for one in self.episodes[arm].values() for episode in one]

    def pass_at(self, arm: str, k: int) -> list[float]:
        """Return pass@k of each question."""
        return [
            pass_at_k(len(one), sum(episode.reward == 1.0 for episode in one), k) for one in self.episodes[arm].values()
        ]


def write_report(experiment: ToolUse, folder: Path, report: Path) -> None:
    """Write the Markdown file `report` and replace `folder`/report by its pictures and tables."""
    publish(report, folder, partial(compose, experiment, folder))


def compose(experiment: ToolUse, folder: Path, files: Attachments) -> list[str]:
    """Return the report as Markdown blocks; its pictures and tables are added to `files`."""
    evaluated = [_load_set(experiment, folder, one) for one in experiment.data.heldout]
    return [
        f"# Experiment {experiment.experiment}: tool use",
        *_setup(experiment),
        *_headline(experiment, evaluated),
        *(block for one in evaluated for block in _set_section(experiment, one, files)),
        *_mask_section(experiment, folder, evaluated, files),
        *training.section(experiment, folder, files),
        *left_out.of_questions(experiment, folder),
        *provenance.section(experiment, folder, {"experiment": (experiment.seed,)}),
        *_limits(experiment),
    ]


def _load_set(experiment: ToolUse, folder: Path, settings: Questions) -> EvaluatedQuestions:
    source, evaluation = folder / f"questions/{settings.name}.parquet", experiment.evaluation
    questions = {one.question_id: one for one in records.read_questions(source)}
    if not questions:
        raise RecordError(f"{source}: has no questions, so nothing can be compared")
    episodes = {}
    for arm in evaluation.arms:
        by_question: dict[str, list[Episode]] = {question_id: [] for question_id in questions}
        for shard in range(settings.shards):
            path = folder / settings.name / arm.name / f"{shard:03d}.parquet"
            batches = records.batches_of_shard([*questions], evaluation.questions_per_batch, shard, settings.shards)
            records.check_episodes(path, source, [*chain.from_iterable(batches)], evaluation.n_predictions)
            for episode in records.read_episodes(path):
                by_question[episode.question_id].append(replace(episode, messages=(), completion_ids=(), mask=()))
        episodes[arm.name] = by_question
    return EvaluatedQuestions(settings, questions, episodes, folder / settings.name)


def _setup(experiment: ToolUse) -> list[str]:
    generation, sets = experiment.generation, experiment.data.train
    trained = "Nothing was trained."
    if experiment.training:
        names = ", ".join(f"`{one.name}`" for one in sets)
        trained = f"Trained on {names} by {', then '.join(method.upper() for method in experiment.training.methods)}."
    verbs = "thinks, calls tools" if generation.enable_thinking else "calls tools"
    return [
        f"`{experiment.model.path}` {verbs} ({', '.join(f'`{name}`' for name in experiment.tools)}), reads their "
        f"results, and answers. {trained} Reward: 1 for a correct answer, else 0. Limits: "
        f"{generation.max_calls} calls and {generation.max_episode_tokens} tokens per episode, "
        f"{generation.max_turn_tokens} tokens per turn.",
    ]


def _headline(experiment: ToolUse, evaluated: Sequence[EvaluatedQuestions]) -> list[str]:
    """Return the change in correct answers from the first arm to the trained one, by set."""
    first, last = experiment.evaluation.arms[0], _arm_to_show(experiment)
    if first.name == last.name:
        return []
    lines = []
    for one in evaluated:
        before, after = (one.pass_at(arm.name, 1) for arm in (first, last))
        change = _difference_text(estimate_difference([after], [before]))
        values = f"{percent(_mean(before))} with `{first.name}`, {percent(_mean(after))} with `{last.name}`"
        lines.append(f"- `{one.settings.name}`: {values}: {change}")
    return ["Correct answers on held-out questions:", "\n".join(lines)]


def _set_section(experiment: ToolUse, one: EvaluatedQuestions, files: Attachments) -> list[str]:
    name = one.settings.name
    table = files.add(f"{name}-questions.csv", partial(write_csv, per_question(experiment, one)))
    return [
        f"## Set `{name}` ({len(one.questions)} questions, {experiment.evaluation.n_predictions} episodes each)",
        markdown_table(*_results(experiment, one)),
        "pass@k: probability that at least one of k episodes is correct; brackets: 95 % interval over questions. "
        f"[Table of questions as CSV]({table}).",
        "### Differences",
        _differences(experiment, one),
        "### Calls and episode endings",
        markdown_table(*_calls(experiment, one)),
        "### Transcripts",
        *_transcripts(experiment, one),
    ]


def per_question(experiment: ToolUse, one: EvaluatedQuestions) -> pd.DataFrame:
    """Return one row per question and arm."""
    rows = []
    for arm in experiment.evaluation.arms:
        for question_id, episodes in one.episodes[arm.name].items():
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


def _results(experiment: ToolUse, one: EvaluatedQuestions) -> tuple[list[str], list[list[str]]]:
    ks = sorted({1, experiment.evaluation.n_predictions})
    rows = []
    for arm in experiment.evaluation.arms:
        episodes = one.of_arm(arm.name)
        rows.append(
            [
                f"`{arm.name}`",
                arm.adapter,
                "yes" if arm.tools else "no",
                *(share_text(one.pass_at(arm.name, k)) for k in ks),
                percent(_mean(bool(episode.calls) for episode in episodes)),
                f"{_mean(len(episode.calls) for episode in episodes):.2f}",
                f"{_mean(episode.n_tokens for episode in episodes):.1f}",
            ]
        )
    header = ["arm", "adapter", "tools", *(f"pass@{k}" for k in ks)]
    return [*header, "episodes that call", "calls per episode", "generated tokens per episode"], rows


def _differences(experiment: ToolUse, one: EvaluatedQuestions) -> str:
    lines = []
    for first, second in pairs_to_compare(experiment.evaluation.arms):
        found = estimate_difference([one.pass_at(first.name, 1)], [one.pass_at(second.name, 1)])
        lines.append(f"- `{first.name}` − `{second.name}`: pass@1 {_difference_text(found)}")
    return "\n".join(lines) or "There is one arm, so nothing is compared."


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


def _difference_text(found: Estimate) -> str:
    text = f"{points(found.mean)} points, 95 % interval {interval_text(found)}"
    if found.excludes_zero:
        return f"**{text}**"
    return f"{text}. The evidence does not support a difference."


def _calls(experiment: ToolUse, one: EvaluatedQuestions) -> tuple[list[str], list[list[str]]]:
    """Count calls by fault and episodes by ending, per arm."""
    by_arm = {arm.name: one.of_arm(arm.name) for arm in experiment.evaluation.arms}
    faults = {name: Counter(call.fault for one in played for call in one.calls) for name, played in by_arm.items()}
    endings = {name: Counter(episode.ending for episode in played) for name, played in by_arm.items()}
    rows = [["calls", *(str(sum(counts.values())) for counts in faults.values())]]
    for fault in sorted({fault for counts in faults.values() for fault in counts if fault}):
        rows.append([f"… {fault.replace('_', ' ')}", *(str(counts[fault]) for counts in faults.values())])
    rows.append(["episodes", *(str(len(played)) for played in by_arm.values())])
    for ending, words in ENDING_TITLES.items():
        if any(counts[ending] for counts in endings.values()):
            rows.append([f"… {words}", *(str(counts[ending]) for counts in endings.values())])
    return ["", *(f"`{name}`" for name in by_arm)], rows


def _transcripts(experiment: ToolUse, one: EvaluatedQuestions) -> Iterator[str]:
    """Yield transcripts of the questions on which the last arm with tools and an adapter gained most over the first."""
    shown = _arm_to_show(experiment)
    first = experiment.evaluation.arms[0]
    gains: Mapping[str, float] = {
        question_id: sum(e.reward for e in episodes) - sum(e.reward for e in one.episodes[first.name][question_id])
        for question_id, episodes in one.episodes[shown.name].items()
    }
    best = sorted(gains, key=lambda question_id: -gains[question_id])[:MAX_TRANSCRIPTS]
    for question_id in best:
        question = one.questions[question_id]
        answer = "" if question.kind == "code_exec" else f" (correct answer: {_escape(question.reference)})"
        yield f"**{_escape(question.text)}**{answer}"
        for arm in dict.fromkeys([first.name, shown.name]):
            episodes = one.episodes[arm][question_id]
            n_right = sum(episode.reward == 1.0 for episode in episodes)
            yield f"`{arm}`, {n_right} of {len(episodes)} correct; a typical episode:"
            yield _transcript(one.full_episode(arm, _typical(episodes).episode_id))


def _arm_to_show(experiment: ToolUse) -> ToolArm:
    arms = experiment.evaluation.arms
    with_tools = [arm for arm in arms if arm.tools] or list(arms)
    return next((arm for arm in reversed(with_tools) if arm.adapter != "none"), with_tools[-1])


def _typical(episodes: Sequence[Episode]) -> Episode:
    """Return the first episode with the most common reward."""
    most = Counter(episode.reward for episode in episodes).most_common(1)[0][0]
    return next(episode for episode in episodes if episode.reward == most)


def _transcript(episode: Episode) -> str:
    """Return an episode as an indented code block, which no text of the model can end."""
    lines = [f"[{message.role}]\n{message.content.rstrip()}" for message in episode.messages]
    lines.append(f"[{ENDING_TITLES.get(episode.ending, episode.ending)}; reward {episode.reward:g}]")
    return "\n".join(f"    {line}" for text in lines for line in text.splitlines())


def _escape(text: str) -> str:
    """Return text on one line, with Markdown and math characters escaped."""
    return re.sub(r"[\\`*_\[\]<&|~$]", r"\\\g<0>", " ".join(text.split()))


def _mask_section(
    experiment: ToolUse, folder: Path, evaluated: Sequence[EvaluatedQuestions], files: Attachments
) -> list[str]:
    """Return blocks with a picture of one episode's tokens that shows which carry loss."""
    from arc_refinery.tokenizers import load_tokenizer  # imports transformers

    shown = _arm_to_show(experiment).name
    episodes = [episode for one in evaluated for episode in one.of_arm(shown)]
    chosen = next((one for one in episodes if one.calls and one.reward == 1.0), episodes[0])
    chosen = next(
        one.full_episode(shown, chosen.episode_id) for one in evaluated if chosen.question_id in one.questions
    )
    download = experiment.model.download
    tokenizer = load_tokenizer(str(fetched_folder(folder, download)) if download else experiment.model.path)
    tokens = [tokenizer.decode([token]) for token in chosen.completion_ids]
    picture = files.add("mask.png", partial(mask_picture, tokens, chosen.mask))
    return [
        "## Which tokens carry loss",
        f"All tokens of the episode `{chosen.episode_id}` of `{shown}` after its prompt. Those with a dark background "
        "were sampled and carry loss in training; the others were inserted by the chat template and the tools.",
        f"![Tokens of an episode; those that carry loss have a dark background]({picture})",
    ]


def _limits(experiment: ToolUse) -> list[str]:
    items = [
        "Intervals cover the choice of questions, not the variation between training runs or between samples of the "
        "same model.",
        "The generator's questions follow a few patterns, and one text in eight is held out, so no held-out pattern is "
        "new to the model."
        if any(one.source == "generator" for one in experiment.data.heldout)
        else "",
    ]
    return ["## Limitations", "\n".join(f"- {item}" for item in items if item)]


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return sum(listed) / len(listed)
