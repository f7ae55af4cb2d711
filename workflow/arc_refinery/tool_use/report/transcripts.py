"""Single episodes, as text, as chat data and in the report: transcripts, and a picture of tokens that carry loss."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from arc_refinery import records
from arc_refinery.errors import InputError
from arc_refinery.evaluation.sides import Side, find
from arc_refinery.models.chat import Message
from arc_refinery.models.hub import fetched_folder
from arc_refinery.records.tool_use import Episode, Question
from arc_refinery.reporting.export import Exported
from arc_refinery.reporting.publish import Attachments, save
from arc_refinery.tool_use.config import ToolArm, ToolUse
from arc_refinery.tool_use.grading.evaluated import EvaluatedQuestions, load_questions
from arc_refinery.tool_use.tools.toolbox import Toolbox

MAX_TRANSCRIPTS = 3
ENDING_TITLES = {
    "answer": "answered",
    "truncated": "last turn truncated",
    "tokens": "out of tokens",
    "calls": "called a tool with no calls left",
}
MOST_CHARACTERS = 100  # per line
# Control characters are drawn as these
CONTROLS = dict.fromkeys([*range(32), *range(127, 160)], "\N{REPLACEMENT CHARACTER}") | {9: "⇥", 10: "⏎"}
SAMPLED, INSERTED = ("#0072B2", "white"), ("#DDDDDD", "black")  # background, text
CHARACTER_INCHES, LINE_INCHES = 0.078, 0.24
TEXT: dict[str, Any] = {"family": "monospace", "fontsize": 9, "va": "center", "ha": "left", "parse_math": False}


def show(side: Side[ToolUse], set_name: str | None, question_id: str | None, number: int | None) -> str:
    """Return a question and an episode of the arm: without `number`, one that is correct, with a call if there is one.

    Without `question_id`: the first question that has such an episode.
    """
    experiment, folder = side.experiment, side.folder
    arm = experiment.arms_called(side.arm or arm_to_show(experiment).name)[0].name
    files = {name: folder / f"questions/{name}.parquet" for name in experiment.set_names}
    ids = {name: records.texts(path, Question, "question_id") for name, path in files.items()}
    set_name, question_id = find(ids, set_name, question_id, side)
    results = load_questions(experiment, folder, experiment.sets[set_name], [arm])
    by_question = results.episodes[arm]

    def rank(episode: Episode) -> tuple[bool, bool]:
        return episode.reward == 1.0, bool(episode.calls)

    if question_id is None:
        question_id = max(by_question, key=lambda name: max(map(rank, by_question[name])))
    question, episodes = results.questions[question_id], by_question[question_id]
    if number is None:
        number = max(range(len(episodes)), key=lambda index: rank(episodes[index]))
    if number >= len(episodes):
        raise InputError(f"--attempt is {number}, but {arm} has {len(episodes)} episodes per question, numbered from 0")
    right = [str(index) for index, episode in enumerate(episodes) if episode.reward == 1.0]
    count = f"{len(right)} correct{': --attempt ' if right else ''}{', '.join(right)}"
    reference = "\n".join(question.asserts.statements) if question.asserts else question.reference
    return "\n".join(
        [
            f"{folder}: question {question_id} of the set {set_name}, arm {arm}",
            f"{len(episodes)} episodes, {count}",
            f"\n--- question ---\n{question.text}",
            f"\n--- {'tests' if question.asserts else 'correct answer'} ---\n{reference}",
            f"\n--- episode {number}, {episodes[number].n_tokens} tokens of the model ---",
            transcript(results.full_episode(arm, episodes[number].episode_id)),
        ]
    )


def arm_to_show(experiment: ToolUse) -> ToolArm:
    """Return the last arm with tools and an adapter; of repetitions the first one, with the name of all."""
    arms = first_repetitions(experiment)
    with_tools = [arm for arm in arms if arm.tools] or list(arms)
    return next((arm for arm in reversed(with_tools) if arm.adapter != "none"), with_tools[-1])


def first_repetitions(experiment: ToolUse) -> list[ToolArm]:
    """Return one arm of each group of repetitions, with the name of the group."""
    return [arms[0].model_copy(update={"name": name}) for name, arms in experiment.repetitions.items()]


def transcripts(experiment: ToolUse, results: EvaluatedQuestions) -> list[list[str]]:
    """Return blocks on each of the questions on which the arm to show gained most over the first arm."""
    first, gaining = experiment.arms[0], experiment.arms_called(arm_to_show(experiment).name)[0]
    gains: Mapping[str, float] = {
        question_id: sum(e.reward for e in episodes) - sum(e.reward for e in results.episodes[first.name][question_id])
        for question_id, episodes in results.episodes[gaining.name].items()
    }
    best = sorted(gains, key=lambda question_id: -gains[question_id])[:MAX_TRANSCRIPTS]
    return [list(_episodes_of(results, question_id, dict.fromkeys([first.name, gaining.name]))) for question_id in best]


def _episodes_of(results: EvaluatedQuestions, question_id: str, arms: Iterable[str]) -> Iterator[str]:
    """Yield a question and a typical episode of each arm."""
    question = results.questions[question_id]
    answer = "" if question.kind == "code_exec" else f" (correct answer: {_escape(question.reference)})"
    yield f"**{_escape(question.text)}**{answer}"
    for arm in arms:
        episodes = results.episodes[arm][question_id]
        n_right = sum(episode.reward == 1.0 for episode in episodes)
        yield f"`{arm}`, {n_right} of {len(episodes)} correct; a typical episode:"
        most_common, _ = Counter(episode.reward for episode in episodes).most_common(1)[0]
        typical = next(episode for episode in episodes if episode.reward == most_common)
        episode = transcript(results.full_episode(arm, typical.episode_id))
        # an indented code block: no text of the model can end it
        yield "\n".join(f"    {line}" for line in episode.splitlines())


def transcript(episode: Episode) -> str:
    lines = [f"[{message.role}]\n{message.content.rstrip()}" for message in episode.messages]
    lines.append(f"[{ENDING_TITLES.get(episode.ending, episode.ending)}; reward {episode.reward:g}]")
    return "\n".join(lines)


def _escape(text: str) -> str:
    """Return text on one line, with Markdown and math characters escaped."""
    return re.sub(r"[\\`*_\[\]<&|~$]", r"\\\g<0>", " ".join(text.split()))


def mask_section(
    experiment: ToolUse, folder: Path, evaluated: Sequence[EvaluatedQuestions], files: Attachments
) -> list[str]:
    """Return blocks with a picture of one episode's tokens that shows which carry loss."""
    from arc_refinery.models.tokenizers import load_tokenizer  # imports transformers

    arm = experiment.arms_called(arm_to_show(experiment).name)[0].name
    episodes = [episode for results in evaluated for episode in results.episodes_of_arm(arm)]
    episode = next((candidate for candidate in episodes if candidate.calls and candidate.reward == 1.0), episodes[0])
    episode = next(
        results.full_episode(arm, episode.episode_id)
        for results in evaluated
        if episode.question_id in results.questions
    )
    download = experiment.model.download
    tokenizer = load_tokenizer(str(fetched_folder(folder, download)) if download else experiment.model.path)
    tokens = [tokenizer.decode([token]) for token in episode.completion_ids]
    picture = files.add("mask.png", partial(mask_picture, tokens, episode.mask))
    return [
        "## Which tokens carry loss",
        f"All tokens of the episode `{episode.episode_id}` of `{arm}` after its prompt. Those with a dark background "
        "were sampled and carry loss in training; the others were inserted by the chat template and the tools.",
        f"![{len(tokens)} tokens of an episode; {sum(episode.mask)} of them, with a dark background, carry loss]"
        f"({picture})",
    ]


def mask_picture(tokens: Sequence[str], mask: Sequence[int], path: Path) -> None:
    """Draw tokens on a background by mask: 1 for sampled tokens, 0 for inserted ones. Line breaks end a line."""
    placed = list(_place(tokens))
    n_lines = max((line for line, _, _ in placed), default=0) + 1
    width = max((column + len(text) for _, column, text in placed), default=0) + 1
    figure = Figure(figsize=(width * CHARACTER_INCHES, n_lines * LINE_INCHES + 0.1))
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set(xlim=(-0.5, width), ylim=(n_lines, -0.4))
    axes.axis("off")
    for (line, column, text), is_sampled in zip(placed, mask, strict=True):
        background, color = SAMPLED if is_sampled else INSERTED
        axes.add_patch(Rectangle((column - 0.05, line + 0.05), len(text) - 0.1, 0.85, color=background, linewidth=0))
        axes.text(column, line + 0.45, text, color=color, **TEXT)
    save(figure, path)


def _place(tokens: Sequence[str]) -> Iterator[tuple[int, int, str]]:
    """Yield line, column and printed form of each token."""
    line = column = 0
    for token in tokens:
        text = token.translate(CONTROLS) or " "
        if column + len(text) > MOST_CHARACTERS:
            line, column = line + 1, 0
        yield line, column, text
        column += len(text)
        if "\n" in token:
            line, column = line + 1, 0


def exported(side: Side[ToolUse], set_name: str) -> Iterator[Exported]:
    """Yield the episodes of a side's arms on a set; calls are in the texts, in the model's own format."""
    experiment, folder = side.experiment, side.folder
    settings = experiment.sets[set_name]
    system = experiment.generation.system
    before = [Message(role="system", content=system)] if system else []
    questions = {row.question_id: row for row in records.read(folder / f"questions/{set_name}.parquet", Question)}
    offered = Toolbox(experiment.tools_of(set_name)).schemas
    for name in [side.arm] if side.arm else experiment.repetitions:
        for arm in experiment.arms_called(name):
            load_questions(experiment, folder, settings, [arm.name])  # checks the files
            seed = experiment.training_seed(arm)
            for shard in range(settings.shards):
                for episode in records.read(folder / set_name / arm.name / f"{shard:03d}.parquet", Episode):
                    yield Exported(
                        prompt=[*before, Message(role="user", content=questions[episode.question_id].text)],
                        completion=[Message(role=turn.role, content=turn.content) for turn in episode.messages],
                        score=episode.reward,
                        row={
                            "id": episode.episode_id,
                            "task_id": episode.question_id,
                            "set": set_name,
                            "arm": name,
                            "run": str(experiment.seed if seed is None else seed),
                            "repetition": arm.name,
                            "ending": episode.ending,
                            "answer": episode.answer,
                            "n_calls": len(episode.calls),
                            "model": episode.model,
                            "adapter": episode.adapter,
                            "n_tokens": episode.n_tokens,
                            "tools": offered if arm.tools else [],
                        },
                        is_cut=episode.ending in ("truncated", "tokens"),
                        branch=f"{set_name}/{arm.name}",
                    )
