"""Single episodes as text, and a picture of tokens that carry loss."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from arc_refinery import records
from arc_refinery.evaluation.attempts import Results
from arc_refinery.models.hub import fetched_folder
from arc_refinery.records import RecordError
from arc_refinery.records.tool_use import Episode
from arc_refinery.reporting.publish import Attachments, save
from arc_refinery.tool_use.config import ToolUse
from arc_refinery.tool_use.grading.domains import ask, domain_of
from arc_refinery.tool_use.report.rows import episode_files, read_questions

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


def read_episode(experiment: ToolUse, folder: Path, name: str, arm: str, episode_id: str) -> Episode:
    """Read an episode of a set with its messages and token ids."""
    for path in episode_files(experiment, folder, name, arm):
        rows = np.isin(records.texts(path, Episode, "episode_id"), [episode_id])
        if rows.any():
            return next(records.read(path, Episode, rows))
    raise RecordError(f"{folder / name / arm}: has no episode {episode_id}; run the experiment again")


def transcripts(experiment: ToolUse, folder: Path, results: Results) -> list[list[str]]:
    """Return blocks on each of the questions on which the arm to show gained most over the first arm.

    Typical is an episode that has the most common reward.
    """
    first, gaining = experiment.arms[0], experiment.arms_called(experiment.arm_to_show)[0]
    groups = {arm.name: results.attempts_of_arm(arm).groupby("task_id") for arm in (first, gaining)}
    rewards = {arm: rows["score"].sum() for arm, rows in groups.items()}
    gains = (rewards[gaining.name] - rewards[first.name]).loc[list(results.task_ids)]
    questions = read_questions(folder, results.name)
    blocks = []
    for question_id in gains.sort_values(ascending=False, kind="stable").index[:MAX_TRANSCRIPTS]:
        question = questions[question_id]
        if domain_of(question.domain).answers_are_programs:
            on_question = [f"**Task `{question_id}`**", _indented(question.text)]
        else:
            correct = ask(question, "correct")
            on_question = [f"**{_escape(question.text)}** (correct answer: {_escape(correct)})"]
        for arm, rows_of_arm in groups.items():
            rows = rows_of_arm.get_group(question_id)
            most_common, _ = Counter(rows["score"]).most_common(1)[0]
            typical = rows.loc[rows["score"] == most_common, "attempt_id"].iloc[0]  # the first one
            episode = transcript(read_episode(experiment, folder, results.name, arm, typical))
            on_question += [
                f"`{arm}`, {rows['solved'].sum()} of {len(rows)} correct; a typical episode:",
                _indented(episode),
            ]
        blocks.append(on_question)
    return blocks


def transcript(episode: Episode) -> str:
    lines = [f"[{message.role}]\n{message.content.rstrip()}" for message in episode.messages]
    lines.append(f"[{ENDING_TITLES.get(episode.ending, episode.ending)}; reward {episode.reward:g}]")
    return "\n".join(lines)


def _indented(text: str) -> str:
    """Return text as an indented code block, which nothing in it can end."""
    return "\n".join(f"    {line}" for line in text.splitlines())


def _escape(text: str) -> str:
    """Return text on one line, with Markdown and math characters escaped."""
    return re.sub(r"[\\`*_\[\]<&|~$]", r"\\\g<0>", " ".join(text.split()))


def mask_section(experiment: ToolUse, folder: Path, files: Attachments, evaluated: Iterable[Results]) -> list[str]:
    """Return blocks with a picture of one episode's tokens that shows which carry loss."""
    from arc_refinery.models.tokenizers import load_tokenizer  # imports transformers

    arm = experiment.arms_called(experiment.arm_to_show)[0]
    rows = pd.concat([results.attempts_of_arm(arm) for results in evaluated], ignore_index=True)
    calling = rows[rows["is_calling"] & rows["solved"]]
    row = (calling if len(calling) else rows).iloc[0]
    episode = read_episode(experiment, folder, row["set"], arm.name, row["attempt_id"])
    download = experiment.model.download
    tokenizer = load_tokenizer(str(fetched_folder(folder, download)) if download else experiment.model.path)
    tokens = [tokenizer.decode([token]) for token in episode.completion_ids]
    picture = files.add("mask.png", partial(mask_picture, tokens, episode.mask))
    return [
        "## Which tokens carry loss",
        f"All tokens of the episode `{episode.episode_id}` of `{arm.name}` after its prompt. Those with a dark "
        "background were sampled and carry loss in training; the others were inserted by the chat template and the "
        "tools.",
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
