"""The report of an experiment in tool use: one Markdown file, and the pictures and tables that it links to.

Everything in it follows from the settings and the records, so equal settings give equal bytes.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pandas as pd

from arc_refinery import records
from arc_refinery.config import Questions, ToolArm, ToolUse
from arc_refinery.evaluation.bootstrap import Bootstrap
from arc_refinery.evaluation.statistics import Difference, pass_at_k, percent, points
from arc_refinery.hub import fetched_folder
from arc_refinery.records import RecordError
from arc_refinery.records.questions import Question
from arc_refinery.records.transcripts import Episode
from arc_refinery.reporting import left_out, provenance, training
from arc_refinery.reporting.markdown import markdown_table, write_csv
from arc_refinery.reporting.publish import Attachments, publish
from arc_refinery.reporting.tool_use.mask import mask_picture

MAX_TRANSCRIPTS = 3
ENDINGS = {
    "answer": "answered",
    "truncated": "last turn cut",
    "tokens": "out of tokens",
    "calls": "called on without calls left",
}


@dataclass(frozen=True, slots=True)
class Evaluated:
    """One held-out set: its questions, and the episodes of each arm by question, in the questions' order.

    Of the episodes only figures are held, neither what was said nor ids: those of all arms would not fit in memory.
    """

    settings: Questions
    questions: dict[str, Question]
    episodes: dict[str, dict[str, list[Episode]]]
    bootstrap: Bootstrap
    folder: Path  # of its episodes, one folder an arm

    def whole(self, arm: str, episode_id: str) -> Episode:
        """An episode with what was said in it."""
        files = sorted((self.folder / arm).glob("*.parquet"))
        return next(one for path in files for one in records.read_episodes(path) if one.episode_id == episode_id)

    def of_arm(self, arm: str) -> list[Episode]:
        return [episode for one in self.episodes[arm].values() for episode in one]

    def pass_at(self, arm: str, k: int) -> list[float]:
        """pass@k of each question."""
        return [
            pass_at_k(len(one), sum(episode.reward == 1.0 for episode in one), k) for one in self.episodes[arm].values()
        ]


def write_report(experiment: ToolUse, folder: Path, report: Path) -> None:
    """Write the Markdown file `report`, and its pictures and tables to `folder`/report, which is replaced whole."""
    publish(report, folder, partial(compose, experiment, folder))


def compose(experiment: ToolUse, folder: Path, files: Attachments) -> list[str]:
    """The report as Markdown blocks; its pictures and tables are added to `files`."""
    evaluated = [_evaluated(experiment, folder, one) for one in experiment.data.heldout]
    return [
        f"# Experiment {experiment.experiment}: tool use",
        *_described(experiment),
        *_headline(experiment, evaluated),
        *(block for one in evaluated for block in _set_section(experiment, one, files)),
        *_mask_section(experiment, folder, evaluated, files),
        *training.section(experiment, folder, files),
        *left_out.of_questions(experiment, folder),
        *provenance.section(experiment, folder, {"experiment": (experiment.seed,)}),
        *_limits(experiment),
    ]


def _evaluated(experiment: ToolUse, folder: Path, settings: Questions) -> Evaluated:
    questions = {one.question_id: one for one in records.read_questions(folder / f"questions/{settings.name}.parquet")}
    if not questions:
        raise RecordError(f"{folder}/questions/{settings.name}.parquet: holds no questions; nothing can be compared")
    episodes = {}
    for arm in experiment.evaluation.arms:
        played: dict[str, list[Episode]] = {question_id: [] for question_id in questions}
        for shard in range(settings.shards):
            for episode in records.read_episodes(folder / settings.name / arm.name / f"{shard:03d}.parquet"):
                played[episode.question_id].append(replace(episode, messages=(), completion_ids=(), mask=()))
        episodes[arm.name] = played
    bootstrap = Bootstrap.of(experiment, settings.name)
    return Evaluated(settings, questions, episodes, bootstrap, folder / settings.name)


def _described(experiment: ToolUse) -> list[str]:
    generation, sets = experiment.generation, experiment.data.train
    trained = "Nothing was trained."
    if experiment.training:
        names = ", ".join(f"`{one.name}`" for one in sets)
        trained = f"Trained on {names} by {', then '.join(method.upper() for method in experiment.training.methods)}."
    thinks = "thinks, calls tools" if generation.enable_thinking else "calls tools"
    return [
        f"`{experiment.model.path}` {thinks} ({', '.join(f'`{name}`' for name in experiment.tools)}), reads their "
        f"results, and answers. {trained} Reward: 1 for a right answer, else 0. An episode has at most "
        f"{generation.max_calls} calls and {generation.max_episode_tokens} tokens, a turn "
        f"{generation.max_turn_tokens}.",
    ]


def _headline(experiment: ToolUse, evaluated: Sequence[Evaluated]) -> list[str]:
    """What training changed."""
    first, last = experiment.evaluation.arms[0], _arm_to_show(experiment)
    if first.name == last.name:
        return []
    lines = []
    for one in evaluated:
        before, after = (one.pass_at(arm.name, 1) for arm in (first, last))
        difference = _difference(one.bootstrap.difference(after, before))
        values = f"{percent(_mean(before))} with `{first.name}`, {percent(_mean(after))} with `{last.name}`"
        lines.append(f"- `{one.settings.name}`: {values}: {difference}")
    return ["Right answers on held-out questions:", "\n".join(lines)]


def _set_section(experiment: ToolUse, one: Evaluated, files: Attachments) -> list[str]:
    name = one.settings.name
    table = files.add(f"{name}-questions.csv", partial(write_csv, per_question(experiment, one)))
    return [
        f"## Set `{name}` ({len(one.questions)} questions, {experiment.evaluation.n_predictions} episodes each)",
        markdown_table(*_results(experiment, one)),
        f"pass@k: chance that one of k episodes is right; brackets: 95 % interval over questions. [Each question as "
        f"CSV]({table}).",
        "### Differences",
        _differences(experiment, one),
        "### Calls, and how episodes end",
        markdown_table(*_calls(experiment, one)),
        "### Transcripts",
        *_transcripts(experiment, one),
    ]


def per_question(experiment: ToolUse, one: Evaluated) -> pd.DataFrame:
    """One row a question and arm."""
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


def _results(experiment: ToolUse, one: Evaluated) -> tuple[list[str], list[list[str]]]:
    ks = sorted({1, experiment.evaluation.n_predictions})
    rows = []
    for arm in experiment.evaluation.arms:
        episodes = one.of_arm(arm.name)
        rows.append(
            [
                f"`{arm.name}`",
                arm.adapter,
                "yes" if arm.tools else "no",
                *(one.bootstrap.share(one.pass_at(arm.name, k)) for k in ks),
                percent(_mean(bool(episode.calls) for episode in episodes)),
                f"{_mean(len(episode.calls) for episode in episodes):.2f}",
                f"{_mean(episode.n_tokens for episode in episodes):.1f}",
            ]
        )
    header = ["arm", "adapter", "tools", *(f"pass@{k}" for k in ks)]
    return [*header, "episodes that call", "calls/episode", "tokens written"], rows


def _differences(experiment: ToolUse, one: Evaluated) -> str:
    lines = []
    for first, second in compared(experiment.evaluation.arms):
        difference = one.bootstrap.difference(one.pass_at(first.name, 1), one.pass_at(second.name, 1))
        lines.append(f"- `{first.name}` less `{second.name}`: pass@1 {_difference(difference)}")
    return "\n".join(lines) or "There is one arm, so nothing is compared."


def compared(arms: Sequence[ToolArm]) -> list[tuple[ToolArm, ToolArm]]:
    """Each arm with the first one; those that differ in one thing alone, the adapter or the tools, with each other."""
    with_baseline = [(arm, arms[0]) for arm in arms[1:]]
    others = [
        (later, earlier)
        for index, earlier in enumerate(arms)
        for later in arms[index + 1 :]
        if (earlier.adapter == later.adapter) != (earlier.tools == later.tools)
    ]
    flipped = [(b, a) if b.tools and not a.tools else (a, b) for a, b in others]  # with tools less without
    seen = {frozenset((a.name, b.name)) for a, b in with_baseline}
    return with_baseline + [(a, b) for a, b in flipped if frozenset((a.name, b.name)) not in seen]


def _difference(difference: Difference) -> str:
    text = f"{points(difference.mean)} points, 95 % interval [{points(difference.low)}, {points(difference.high)}]"
    if difference.excludes_zero:
        return f"**{text}**"
    return f"{text}. The evidence does not support a difference."


def _calls(experiment: ToolUse, one: Evaluated) -> tuple[list[str], list[list[str]]]:
    """Calls by what was wrong with them, episodes by how they end."""
    by_arm = {arm.name: one.of_arm(arm.name) for arm in experiment.evaluation.arms}
    faults = {name: Counter(call.fault for one in played for call in one.calls) for name, played in by_arm.items()}
    endings = {name: Counter(episode.ending for episode in played) for name, played in by_arm.items()}
    rows = [["calls", *(str(sum(counts.values())) for counts in faults.values())]]
    for fault in sorted({fault for counts in faults.values() for fault in counts if fault}):
        rows.append([f"… {fault.replace('_', ' ')}", *(str(counts[fault]) for counts in faults.values())])
    rows.append(["episodes", *(str(len(played)) for played in by_arm.values())])
    for ending, words in ENDINGS.items():
        if any(counts[ending] for counts in endings.values()):
            rows.append([f"… {words}", *(str(counts[ending]) for counts in endings.values())])
    return ["", *(f"`{name}`" for name in by_arm)], rows


def _transcripts(experiment: ToolUse, one: Evaluated) -> Iterator[str]:
    """Of the questions on which the last arm with tools and a trained adapter gained most over the first arm."""
    shown = _arm_to_show(experiment)
    first = experiment.evaluation.arms[0]
    gains: Mapping[str, float] = {
        question_id: sum(e.reward for e in episodes) - sum(e.reward for e in one.episodes[first.name][question_id])
        for question_id, episodes in one.episodes[shown.name].items()
    }
    best = sorted(gains, key=lambda question_id: -gains[question_id])[:MAX_TRANSCRIPTS]
    for question_id in best:
        question = one.questions[question_id]
        right = "" if question.kind == "code_exec" else f" (right: {_quoted(question.reference)})"
        yield f"**{_quoted(question.text)}**{right}"
        for arm in dict.fromkeys([first.name, shown.name]):
            episodes = one.episodes[arm][question_id]
            n_right = sum(episode.reward == 1.0 for episode in episodes)
            yield f"`{arm}`, {n_right} of {len(episodes)} right; a typical one:"
            yield _transcript(one.whole(arm, _typical(episodes).episode_id))


def _arm_to_show(experiment: ToolUse) -> ToolArm:
    arms = experiment.evaluation.arms
    with_tools = [arm for arm in arms if arm.tools] or list(arms)
    return next((arm for arm in reversed(with_tools) if arm.adapter != "none"), with_tools[-1])


def _typical(episodes: Sequence[Episode]) -> Episode:
    """The first episode that ended as most did."""
    most = Counter(episode.reward for episode in episodes).most_common(1)[0][0]
    return next(episode for episode in episodes if episode.reward == most)


def _transcript(episode: Episode) -> str:
    """As a block of code, whatever the model wrote."""
    lines = [f"[{said.role}]\n{said.content.rstrip()}" for said in episode.messages]
    lines.append(f"[{ENDINGS.get(episode.ending, episode.ending)}; reward {episode.reward:g}]")
    return "\n".join(f"    {line}" for text in lines for line in text.splitlines())


def _quoted(text: str) -> str:
    """In one line, with nothing in it that Markdown, or math in it, would take for its own."""
    return re.sub(r"[\\`*_\[\]<&|~$]", r"\\\g<0>", " ".join(text.split()))


def _mask_section(experiment: ToolUse, folder: Path, evaluated: Sequence[Evaluated], files: Attachments) -> list[str]:
    """One episode with all its tokens: which carry loss."""
    from arc_refinery.tokenizers import load_tokenizer  # imports transformers

    shown = _arm_to_show(experiment).name
    episodes = [episode for one in evaluated for episode in one.of_arm(shown)]
    chosen = next((one for one in episodes if one.calls and one.reward == 1.0), episodes[0])
    chosen = next(one.whole(shown, chosen.episode_id) for one in evaluated if chosen.question_id in one.questions)
    download = experiment.model.download
    tokenizer = load_tokenizer(str(fetched_folder(folder, download)) if download else experiment.model.path)
    tokens = [tokenizer.decode([token]) for token in chosen.completion_ids]
    picture = files.add("mask.png", partial(mask_picture, tokens, chosen.mask))
    return [
        "## Which tokens carry loss",
        f"All tokens of the episode `{chosen.episode_id}` of `{shown}` after its prompt. Those with a dark ground were "
        "sampled and carry loss in training; the others were put there by the chat template and the tools.",
        f"![Tokens of an episode; those that carry loss have a dark ground]({picture})",
    ]


def _limits(experiment: ToolUse) -> list[str]:
    items = [
        "Intervals say how figures vary with the choice of questions, not how they would vary with another training "
        "run or with other samples of the same model.",
        "The generator's questions follow a few patterns, and one text in eight is held out: no pattern is new to the "
        "model."
        if any(one.source == "generator" for one in experiment.data.heldout)
        else "",
    ]
    return ["## What this does not show", "\n".join(f"- {item}" for item in items if item)]


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return sum(listed) / len(listed)
