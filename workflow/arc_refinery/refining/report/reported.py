"""What reports, comparisons and exports ask a refining experiment."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from arc_refinery.branch_files import BranchFiles
from arc_refinery.domains.domain import Domain, GradedAttempt, load_domain
from arc_refinery.domains.prompts import split_prefix
from arc_refinery.evaluation.attempts import Results
from arc_refinery.evaluation.metrics import PROGRAMS
from arc_refinery.models.chat import Message
from arc_refinery.refining.config import Arm, Refining
from arc_refinery.refining.graded import read_attempts, read_graded
from arc_refinery.refining.report import gallery, lengths, rows, tasks
from arc_refinery.reporting import kind
from arc_refinery.reporting.kind import PerTask, Texts
from arc_refinery.reporting.markdown import folded_section
from arc_refinery.reporting.publish import Attachments

METRICS_EXPLAINED = """\
- **valid code**: attempts with a closed Python block; **any code**: attempts with a program, even one cut off; **valid outputs**: attempts whose program ran to its end and gave outputs of the right form; **unique outputs**: distinct outputs / attempts.
"""  # noqa: E501


def save_wording(experiment: Refining, folder: Path) -> None:
    """Write the texts of prompts as a folder that `model.template` can name, if the domain has such."""
    domain = load_domain(experiment.domain)
    if domain.wording_files:
        domain.save_wording(domain.wording(form="", **experiment.wording), folder)


class Reported(kind.Reported):
    """The results of a refining experiment."""

    experiment: Refining

    def __init__(self, experiment: Refining, folder: Path) -> None:
        super().__init__(experiment, folder)
        self.domain = domain = load_domain(experiment.domain)
        self.metrics = (*PROGRAMS, *domain.metrics)
        self.metrics_explained = METRICS_EXPLAINED + domain.metrics_explained
        self.checks, self.shown = domain.checks, domain.shown
        self.outcomes, self.limits, self.has_guesses = domain.outcomes, domain.limits, domain.has_guesses

    def write_attempts(self) -> None:
        rows.write_attempts(self.experiment, self.folder)

    def files(self, name: str, branch: str) -> BranchFiles:
        return self.experiment.files(self.folder, name, branch)

    @property
    def arm_to_show(self) -> str:
        arms = self.experiment.arms
        return ([arm for arm in arms if not arm.is_control] or arms)[-1].name

    def show(self, name: str, arm: Arm, row: "pd.Series[Any]") -> Iterator[str]:
        chain: list[GradedAttempt] = []
        attempt_id = row["attempt_id"]
        for branch in reversed(arm.branches[: row["turn"]]):
            chain.insert(0, read_attempts(self.domain, self.files(name, branch), [attempt_id])[attempt_id])
            attempt_id = chain[0].attempt.parent_id
        return _blocks(self.domain, chain)

    def texts(self, name: str, arm: Arm, turn: int) -> Iterator[tuple[str, Texts]]:
        for prompt, attempt, verdict in read_graded(self.domain, self.files(name, arm.branch(turn))):
            asked = list(prompt.messages) or [Message(role="user", content=prompt.text)]
            messages, prefix = split_prefix(asked)
            answer = Message(role="assistant", content=f"{prefix}{attempt.completion}")
            yield attempt.attempt_id, Texts(messages, [answer], attempt.n_tokens, verdict.solved, {})

    def programs(self, name: str, branch: str, attempt_ids: Collection[str]) -> dict[str, str]:
        return rows.programs(self.domain, self.files(name, branch), attempt_ids)

    def terms(self) -> str:
        refining = next((arm for arm in self.experiment.arms if len(arm.turns) > 1), None)
        example = ""
        if refining:
            first, second = (turn.n_predictions for turn in refining.turns[:2])
            example = (
                f": {first} + {second} is {first} first attempts, then {second} second attempts, which refine wrong "
                "first ones after seeing what these gave"
            )
        checks = " and ".join(filter(None, [self.shown, self.domain.hidden]))
        return (
            f"Rows are *arms*, ways to spend attempts on a task{example}. A task is *solved* if one attempt is right "
            f"on all its {checks}. Brackets: 95 % intervals; differences in percentage points."
        )

    def notes(self, results: Results) -> list[str]:
        return lengths.missing_attempts_notes(self.experiment, self.folder, results)

    def trained_on(self, sizes: Mapping[str, int]) -> dict[str, list[str]]:
        return tasks.trained_on(self.experiment, self.folder, sizes)

    def example(self, results: Results, metrics: PerTask, files: Attachments) -> list[str]:
        return gallery.repaired(self.experiment, self.folder, results, metrics, files)

    def gallery(self, results: Results, metrics: PerTask, files: Attachments) -> list[str]:
        return gallery.section(self.experiment, self.folder, results, metrics, files)

    def left_out(self) -> list[str]:
        return tasks.left_out(self.experiment, self.folder)

    def sections(self, metrics: Mapping[tuple[str, str], pd.DataFrame], files: Attachments) -> list[str]:
        experiment, window = self.experiment, self.experiment.model.window
        training_prompts = [f"{name}/training" for name in experiment.training_tasks]
        # training prompts are included if their files still exist
        names = [name for name in training_prompts if (self.folder / name / "prompts.parquet").exists()]
        names += [f"{name}/{branch}" for name in experiment.set_names for branch in experiment.branches]
        paths = [self.folder / name / "prompts.parquet" for name in names]
        entries = [entry for path, name in zip(paths, names, strict=True) for entry in lengths.read_lengths(path, name)]
        plot = files.add("lengths.png", partial(lengths.histogram, entries, window))
        blocks = [
            "## Prompt lengths",
            lengths.as_markdown(lengths.lengths_table(entries, window)),
            f"![{lengths.alt_text(entries, window)}]({plot})",
        ]
        return [*folded_section("Prompt lengths by turn", blocks), *self.domain.sections(experiment, metrics)]


def _blocks(domain: Domain, chain: Sequence[GradedAttempt]) -> Iterator[str]:
    shown: list[str] = []  # texts that an earlier prompt has, too
    for turn, graded in enumerate(chain, 1):
        prompt, attempt = graded.prompt, graded.attempt
        augmented = "" if domain.shows_task_itself(prompt) else ", of the task in another form"
        head = "feedback" if shown else "prompt"
        yield f"\n--- turn {turn}: {head}, {attempt.n_prompt_tokens} tokens in all{augmented} ---"
        messages = split_prefix(prompt.messages)[0] if prompt.messages else []
        asked = [f"[{m['role']}]\n{m['content'].strip()}" for m in messages if m["role"] != "assistant"]
        yield from [text for text in asked if text not in shown] or asked[-1:] or [prompt.text]
        shown += asked
        end = "" if attempt.finish_reason == "stop" else ", cut off"
        yield f"\n--- turn {turn}: answer, {attempt.n_tokens} tokens{end}; {attempt.adapter or attempt.model} ---"
        yield attempt.completion.strip("\n")
        yield f"\n--- turn {turn}: verdict ---"
        yield from domain.verdict_lines(graded)
