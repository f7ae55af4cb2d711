"""The config of the domain `arc`."""

from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, get_args

from pydantic import BaseModel, Field, model_validator

from arc_refinery.config.base import Line, PositiveInt, Strict, faults_in
from arc_refinery.config.experiment import Wanted
from arc_refinery.config.inputs import rows_files
from arc_refinery.config.sampling import RowsSource
from arc_refinery.domains.arc.config.rewards import REWARDS
from arc_refinery.domains.arc.config.tasks import Problems, TaskSet
from arc_refinery.domains.arc.prompts import FeedbackForm, load_template, template_files
from arc_refinery.models.hub import Download
from arc_refinery.refining.config.evaluation import BROKEN, Evaluation
from arc_refinery.refining.config.experiment import Refining

LEARNED = "learned"


class TemplateRows(RowsSource):
    file_key: ClassVar = "files"
    source: Literal["hub", "file"] = Field(
        description="`hub`: a data set of the Hugging Face hub; `file`: rows on disk."
    )
    path: Line | None = Field(
        None, description="For `file`: a .jsonl, .json (also .gz) or .parquet file, or a folder of them."
    )
    files: Line | None = Field(
        None, description="For `hub`: glob of the files to read, such as `*test_sft*`; `*` also matches `/`."
    )
    n_rows: PositiveInt = Field(1000, description="Number of rows to read, from the first; a few hundred are enough.")


class Showing(Strict):
    """How first-turn prompts show tasks."""

    use_data_augmentation: bool = Field(True, description="Give each prompt its own symmetry and coloring.")
    test_inputs: Literal["all", "one"] = Field(
        "all", description="Test inputs that a first-turn prompt shows: all, or one drawn at random."
    )
    n_shown_pairs: PositiveInt | None = Field(
        None,
        description="Train pairs that a first-turn prompt shows, in its own order; feedback reveals the first of "
        "the others that the program gets wrong. Default: all.",
    )


class Arc(Showing):
    augment_parts: bool | None = Field(
        None, description="`use_data_augmentation` for attempts on training parts; default: as for all."
    )
    template_rows: TemplateRows | None = Field(
        None,
        description="Rows that the model was trained on; `model.template: learned` takes its wording from them.",
    )


class ArcExperiment(Refining):
    domain: Literal["arc"] = Field("arc", description=Refining.model_fields["domain"].description)
    forms: ClassVar = get_args(FeedbackForm)
    templates: ClassVar = f"`compact`, `words` or `{LEARNED}`"
    program_rewards: ClassVar = REWARDS
    usual_reward: ClassVar = "arc-v2-no-pixel-score"
    problems: Problems | None = Field(None, description=Refining.model_fields["problems"].description)
    evaluation: Evaluation[TaskSet] = Field(description=Refining.model_fields["evaluation"].description)
    arc: Arc = Field(default_factory=lambda: Arc(), description="Prompts of ARC tasks.")

    @property
    def rules(self) -> list[str]:
        # the template, from the model's training rows
        wording = ["rules/wording.smk"] if self.arc.template_rows else []
        return [*wording, *super().rules]

    def files_named(self) -> list[Wanted]:
        wanted = [file for file in super().files_named() if not self.learned_template or file.key != "model.template"]
        if self.arc.template_rows and self.arc.template_rows.path:
            path = Path(self.arc.template_rows.path)
            wanted.append(Wanted("arc.template_rows.path", path, "rows, or a folder of them", "either"))
        return wanted

    def template_files(self) -> list[str]:
        return [str(path) for path in template_files(self.learned_template or self.model.template or "words")]

    @property
    def wording(self) -> dict[str, Any]:
        return {"template": self.learned_template or self.model.template}

    @property
    def learned_template(self) -> str:
        """The folder of the template that is learned from rows; empty if none is."""
        return f"results/{self.experiment}/template" if self.model.template == LEARNED else ""

    def faults_of_contents(self) -> list[str]:
        if self.model.template == LEARNED:
            return super().faults_of_contents()
        check = partial(load_template, self.model.template or "words")
        return [*faults_in([("model.template", check)]), *super().faults_of_contents()]

    def sources(self) -> list[Download | None]:
        rows = self.arc.template_rows
        return [*super().sources(), *([rows.download] if rows else [])]

    @property
    def more_to_keep_apart(self) -> dict[str, Any]:
        if not self.arc.template_rows:
            return {}
        (messages,) = rows_files(self, self.arc.template_rows)
        return {"messages": Path(messages), "template": self.learned_template, "n_rows": self.arc.template_rows.n_rows}

    @property
    def files_to_keep_apart(self) -> list[str]:
        rows = self.arc.template_rows
        return [*rows_files(self, rows), *self.template_files()] if rows else []

    @classmethod
    def section_types(cls) -> dict[str, type[BaseModel]]:
        return super().section_types() | {"own": Showing}

    def own_of(self, tasks: str) -> Showing:
        parts = self.arc.augment_parts if tasks in self.part_names else None
        augment = self.arc.use_data_augmentation if parts is None else parts
        return Showing(
            use_data_augmentation=augment, test_inputs=self.arc.test_inputs, n_shown_pairs=self.arc.n_shown_pairs
        )

    @model_validator(mode="before")
    @classmethod
    def _two_rules_agree_on_what_is_shown(cls, config: Any) -> Any:
        """Replace `two_rules: true` by the number of pairs that prompts show: the sources of tasks do not see `arc`."""
        arc = config.get("arc") if isinstance(config, dict) else None
        if not isinstance(arc, dict) or not (n_shown := arc.get("n_shown_pairs")):
            return config

        def filled(source: Any) -> Any:
            is_true = isinstance(source, dict) and source.get("two_rules") is True
            return {**source, "two_rules": n_shown} if is_true else source

        evaluation = config.get("evaluation")
        if isinstance(evaluation, dict) and isinstance(sets := evaluation.get("sets"), list):
            config = config | {"evaluation": evaluation | {"sets": [filled(task_set) for task_set in sets]}}
        return config | {"problems": filled(config["problems"])} if "problems" in config else config

    @model_validator(mode="after")
    def _two_rules_share_a_first_prompt(self) -> Self:
        n_shown = self.arc.n_shown_pairs
        if n_shown and self.arc.test_inputs == "one":
            raise ValueError("arc.n_shown_pairs: first-turn prompts show all test inputs; set arc.test_inputs to `all`")
        sets = {f"evaluation.sets.{i}": (task_set, [task_set.name]) for i, task_set in enumerate(self.evaluation.sets)}
        for key, (source, names) in {"problems": (self.problems, self.part_names), **sets}.items():
            if source is None or not source.two_rules:
                continue
            if source.two_rules != n_shown:
                raise ValueError(
                    f"{key}.two_rules: two rules agree on the pairs that prompts show; set arc.n_shown_pairs, and "
                    "two_rules to true"
                )
            if any(self.own_of(name).use_data_augmentation for name in names):
                raise ValueError(
                    f"{key}.two_rules: tasks with two rules have the same first prompt; set arc.use_data_augmentation "
                    "to false"
                )
        return self

    def own_of_broken(self, tasks: str) -> Showing:
        return self.own_of(tasks).model_copy(update={"use_data_augmentation": False})

    @model_validator(mode="after")
    def _a_learned_wording_has_rows(self) -> Self:
        if (self.model.template == LEARNED) != bool(self.arc.template_rows):
            raise ValueError("`model.template: learned` and `arc.template_rows` go together; add or remove one")
        return self

    @model_validator(mode="after")
    def _sources_answer_what_is_shown(self) -> Self:
        if self.training and self.training.prompts_per_task > 1 and not self.arc.use_data_augmentation:
            raise ValueError("training.prompts_per_task: without arc.use_data_augmentation they are all the same")
        is_broken = any(arm.turns[0].answers == BROKEN for arm in self.evaluation.arms)
        if self.evaluation.reference_logprobs and self.arc.use_data_augmentation and not is_broken:
            raise ValueError(
                "evaluation.reference_logprobs: a task's source answers the unaugmented task; set "
                "arc.use_data_augmentation to false"
            )
        sft = self.training.sft if self.training and self.training.answers == "sampled" else None
        learns_from_sources = sft is not None and sft.demonstrations.targets == "source"
        if learns_from_sources and (not self.parts or self.own_of(self.part_names[0]).use_data_augmentation):
            raise ValueError(
                "training.sft.demonstrations.targets `source`: a task's source answers the unaugmented task; set "
                "arc.augment_parts to false, or the targets to `attempts` or `nearest`"
            )
        return self
