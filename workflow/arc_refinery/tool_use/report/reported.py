"""What reports, comparisons and exports ask a tool-use experiment: a question is a task, an episode an attempt."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from arc_refinery import records
from arc_refinery.evaluation.attempts import Results
from arc_refinery.evaluation.metrics import OUTPUTS, Metric
from arc_refinery.models.chat import Message
from arc_refinery.records.tool_use import Episode
from arc_refinery.reporting import kind, provenance
from arc_refinery.reporting.kind import PerTask, Texts
from arc_refinery.reporting.markdown import folded, folded_section
from arc_refinery.reporting.publish import Attachments
from arc_refinery.tool_use.config import ToolArm, ToolUse
from arc_refinery.tool_use.grading.domains import ask
from arc_refinery.tool_use.report import calls, rows
from arc_refinery.tool_use.report.transcripts import mask_section, read_episode, transcript, transcripts
from arc_refinery.tool_use.tools.toolbox import Toolbox

MAX_UNFOLDED = 40  # lines


class Reported(kind.Reported):
    """The results of a tool-use experiment."""

    experiment: ToolUse
    metrics = (*OUTPUTS, Metric("episodes that call", "is_calling", is_of_turns=True))
    metrics_explained = (
        "- **valid outputs**: episodes that end in an answer; **unique outputs**: distinct answers / episodes; "
        "**episodes that call**: those with a call of a tool.\n- **pass rate**: share of a question's episodes that "
        "end in a right answer; **solved**: questions of which one episode does."
    )
    checks, shown = "checks", "question"
    outcomes = "*correct*: ends in a right answer; *wrong*: in another one; the others by what ended them."

    def __init__(self, experiment: ToolUse, folder: Path) -> None:
        super().__init__(experiment, folder)
        self._others: dict[str, list[list[str]]] = {}  # transcripts of a set after the first one, which is shown

    def write_attempts(self) -> None:
        rows.write_attempts(self.experiment, self.folder)

    @property
    def arm_to_show(self) -> str:
        return self.experiment.arm_to_show

    def show(self, name: str, arm: ToolArm, row: "pd.Series[Any]") -> Iterator[str]:
        question = rows.read_questions(self.folder, name)[row["task_id"]]
        yield f"\n--- question ---\n{question.text}"
        yield f"\n--- correct ---\n{ask(question, 'correct')}"
        yield f"\n--- episode {row['sample']}, {row['n_tokens']} tokens of the model ---"
        yield transcript(read_episode(self.experiment, self.folder, name, arm.name, row["attempt_id"]))

    def texts(self, name: str, arm: ToolArm, turn: int) -> Iterator[tuple[str, Texts]]:
        experiment = self.experiment
        system = experiment.generation.system
        before = [Message(role="system", content=system)] if system else []
        questions = rows.read_questions(self.folder, name)
        tools = Toolbox(experiment.tools_of(name)).schemas if arm.tools else []
        for path in rows.episode_files(experiment, self.folder, name, arm.name):
            for episode in records.read(path, Episode):
                asked = Message(role="user", content=questions[episode.question_id].text)
                turns = [Message(role=message.role, content=message.content) for message in episode.messages]
                more = {"answer": episode.answer, "tools": tools}
                is_right = episode.reward == 1.0
                yield episode.episode_id, Texts([*before, asked], turns, episode.n_tokens, is_right, more)

    def terms(self) -> str:
        experiment, trained = self.experiment, "Nothing was trained."
        if experiment.training:
            names = ", ".join(f"`{questions.name}`" for questions in experiment.data.train)
            methods = ", then ".join(method.upper() for method in experiment.training.methods)
            trained = f"Trained on {names} by {methods}."
            if len(experiment.trained) > 1:
                trained += f" Trainings: {', '.join(f'`{name}`' for name in experiment.trained)}."
        is_thinking = experiment.generation.enable_thinking and not experiment.model.is_served  # a server may do either
        verbs = "thinks, calls tools" if is_thinking else "calls tools"
        return (
            f"`{experiment.model.path}` {verbs}, reads their results, and answers. {trained} Rows are *arms*: the "
            "model with one adapter (the weights that a training adds), with or without tools. A task is a question, "
            f"an attempt an episode, of which there are {experiment.evaluation.n_predictions} per question; it is "
            "*right* if it ends in a right answer, and a task is *solved* if one attempt is right. Brackets: 95 % "
            "intervals; differences in percentage points."
        )

    def example(self, results: Results, metrics: PerTask, files: Attachments) -> list[str]:
        """Return the episodes on the first question of the gallery, folded if they would fill the first screen."""
        (question, *episodes), *self._others[results.name] = transcripts(self.experiment, self.folder, results)
        is_short = "\n".join(episodes).count("\n") < MAX_UNFOLDED
        return [question, *(episodes if is_short else [folded("Episodes on this question", *episodes)])]

    def gallery(self, results: Results, metrics: PerTask, files: Attachments) -> list[str]:
        others = self._others.get(results.name)
        wanted = transcripts(self.experiment, self.folder, results) if others is None else others
        return [block for blocks in wanted for block in blocks]

    def set_sections(self, results: Results, files: Attachments) -> list[str]:
        return calls.section(self.experiment, results, files)

    def left_out(self) -> list[str]:
        lines = []
        for name in self.experiment.sets:
            notes = provenance.notes_of(self.folder / f"questions/{name}.parquet")
            reasons = notes.get("held_out", {}) | notes.get("left_out", {})
            lines += provenance.rows_of(f"questions of `{name}`", reasons)
        return provenance.left_out(lines, "All questions were used.")

    def sections(self, metrics: Mapping[tuple[str, str], pd.DataFrame], files: Attachments) -> list[str]:
        if self.experiment.model.is_served:
            return []  # it gives no tokens
        evaluated = (self.results(name) for name in self.experiment.set_names)
        return folded_section("Tokens of one episode", mask_section(self.experiment, self.folder, files, evaluated))
