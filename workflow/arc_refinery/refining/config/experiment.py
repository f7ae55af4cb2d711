"""Refining experiments, and checks across the sections of their config."""

import os
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import combinations, filterfalse, product
from math import isinf
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, Self

from pydantic import BaseModel, Field, model_validator

from arc_refinery.branch_files import BranchFiles
from arc_refinery.config.arms import Compared, Primary
from arc_refinery.config.base import (
    AT,
    ConfigError,
    Line,
    Strict,
    faults_in,
    run_and_step,
    sections_in,
)
from arc_refinery.config.experiment import SampledTogether, TrainedRow, Wanted
from arc_refinery.config.rewards import Functions
from arc_refinery.config.sampling import Sandbox
from arc_refinery.config.training import TRAINED
from arc_refinery.evaluation.power import POWER, Plan
from arc_refinery.grades import REWARDS
from arc_refinery.models.hub import Download
from arc_refinery.refining.config.evaluation import BROKEN, Arm, Evaluation
from arc_refinery.refining.config.rewards import ATTEMPT_REWARDS
from arc_refinery.refining.config.sampling import PromptedModel, Refinement, Sampling, Thinking
from arc_refinery.refining.config.tasks import Parts, Problems, TaskSet
from arc_refinery.refining.config.training import Training

BROKEN_BRANCH = f"turn1-{BROKEN}"


def is_broken(branch: str) -> bool:
    """Whether the answers of a branch are broken ones (`answers` of turn 1); one per seed of sampling."""
    return branch == BROKEN_BRANCH or branch.startswith(f"{BROKEN_BRANCH}-")


class SamplingPlan(NamedTuple):
    """What completions are sampled with."""

    adapter: str | None
    seed: int


class Refining(Compared[Arm]):
    """What every domain has; a domain's `Experiment` narrows sections to its own keys."""

    kind: Literal["refining"] = Field("refining", description="Kind of experiment: learn to refine incorrect programs.")
    domain: Line = Field(
        description="What is refined: `arc`, `code`, `gsm8k`, `text`, or the package of a domain of your own, which "
        "has the keys of `text`."
    )
    executes_tasks: ClassVar[bool] = False  # whether only executing a task's own program tells if it can be used
    refines_errors: ClassVar[bool] = False  # default of refinement.include_errors
    program_rewards: ClassVar[Functions] = REWARDS  # by name: those that read the program alone
    usual_reward: ClassVar[str] = "solved"  # default of training.grpo.rewards
    forms: ClassVar[tuple[str, ...]] = ()  # forms of the feedback; the first is the default
    model: PromptedModel = Field(description="The model that answers.")
    problems: Problems | None = Field(None, description="Source of the training problems.")
    parts: Parts | None = Field(None, description="Split of the training tasks.")
    sampling: Sampling = Field(description="Sampling of completions, for training tasks and evaluation.")
    generation: Thinking = Field(default_factory=lambda: Thinking(), description="Thoughts of the model.")
    sandbox: Sandbox = Field(default_factory=lambda: Sandbox(), description="Limits on executed programs.")
    refinement: Refinement = Field(
        default_factory=lambda: Refinement(), description="Selection of the attempts to refine."
    )
    training: Training | None = Field(None, description="Training of a LoRA adapter; without it, nothing is trained.")
    evaluation: Evaluation[TaskSet] = Field(description="Arms to compare.")
    shards_per_grading_job: int = Field(
        1,
        ge=1,
        le=1000,  # all their paths are on one command line
        description="Shards per grading job; does not change results.",
    )

    @property
    def rules(self) -> list[str]:
        return [
            "rules/tasks.smk",  # problems -> tasks -> parts; the tasks of the evaluation sets
            "rules/attempts.smk",  # prompts of turn 1; sample completions, grade them
            "rules/refine.smk",  # incorrect attempts -> prompts of the next turn, and what is trained on
            "rules/compare.smk",  # with other experiments
        ]

    def files_named(self) -> list[Wanted]:
        wanted = super().files_named()
        what = "a file of a folder that `arc-refinery prompts export` or `prompts learn` wrote, or a template's name: "
        what += self.templates
        wanted += [Wanted("model.template", Path(path), what) for path in self.template_files()[:1]]
        if self.problems and self.problems.source == "file":
            wanted.append(Wanted("problems.path", Path(str(self.problems.path)), f"a file of {self.problems.content}"))
        for number, task_set in enumerate(self.evaluation.sets):
            wanted += task_set.files_named(f"evaluation.sets.{number}")
        return wanted

    templates: ClassVar[str] = ""  # names of built-in templates, for messages

    def template_files(self) -> list[str]:
        """Files of the wording: those of the folder that `model.template` is; only the domain knows a name."""
        template = self.model.template
        files = [str(Path(folder, name)) for folder, _, names in os.walk(template) for name in names if name[0] != "."]
        return sorted(files) or [template] * ("/" in template)

    @property
    def wording(self) -> dict[str, Any]:
        """Keys of the model that say how prompts are written."""
        return {"template": self.model.template}

    def faults_of_contents(self) -> list[str]:
        sets = enumerate(self.evaluation.sets)
        named = faults_in((f"evaluation.sets.{number}", task_set.check_contents) for number, task_set in sets)
        return [*super().faults_of_contents(), *named]

    @property
    def sampled_together(self) -> SampledTogether:
        return SampledTogether(self.sampling.batch_size, self.sampling.max_output_tokens)

    @property
    def sampled_folders(self) -> list[str]:
        parts = [name for name in self.refined_for_training if name in self.part_names]
        folders = [f"{name}/{branch}" for name in self.set_names for branch in self.branches]
        return [*(f"{name}/{self.refined_branch}" for name in parts), *folders]

    @property
    def trained_row(self) -> TrainedRow | None:
        if self.training is None:
            return None
        length = min(self.model.window, self.training.max_seq_length)
        on_policy = self.training.grpo is not None and self.training.grpo.rollout == "on-policy"
        return TrainedRow(length, length if on_policy else self.training.max_completion_length)

    @property
    def plan(self) -> Plan | None:
        return self.plan_of(None)

    def plan_of(self, n_tasks: int | None) -> Plan | None:
        """The primary comparison before it is made; `None`: on as many tasks as the config says."""
        primary = self.evaluation.primary
        n_tasks = n_tasks or (self.evaluation_set(primary.set).expected_size if primary else None)
        if primary is None or n_tasks is None:
            return None
        if primary.turn is None:
            return Plan.of(self.domain, n_tasks)
        arms = [arm for name in primary.arms for arm in self.arms_called(name)]
        n_attempts = min(arm.turns[primary.turn - 1].n_predictions for arm in arms)
        # four rates are as noisy as two of half as many
        return Plan.of(self.domain, n_tasks, max(n_attempts // len(primary.pairs), 1))

    @property
    def expected_power(self) -> str:
        primary, plan = self.evaluation.primary, self.plan
        if primary is None or plan is None:
            return ""
        n_runs = len(self.paired_runs(*primary.arms))
        trainings = f" and {n_runs} trainings" if n_runs > 1 else ""
        compared = (
            f"Primary comparison: {primary.outcome}, {primary.title}, on {plan.n_tasks} tasks of "
            f"{primary.set}{trainings}"
        )
        if isinf(detected := plan.detects(n_runs)):
            why = "two trainings are too few for an interval" if n_runs == 2 else "so few tasks show no difference"
            return f"{compared}; expected to detect nothing: {why}."
        if primary.turn is None:
            assumed = f"{100 * plan.changed:.0f} % of tasks solved by only one of the arms"
        else:
            assumed = f"{100 * plan.rate:.0f} % right, a spread over tasks of {100 * plan.task_spread:.1f} points"
        if n_runs > 1:
            assumed += f", over trainings of {100 * plan.run_spread:.1f}"
        return (
            f"{compared}; expected to detect {100 * detected:.1f} points with {100 * POWER:.0f} % power (assumed: "
            f"{assumed})."
        )

    @property
    def most_answers(self) -> tuple[int, int] | None:
        n = 0
        for name in self.set_names:
            size = self.evaluation_set(name).expected_size
            if size is None:
                return None
            for branch in filterfalse(is_broken, self.branches):
                arm, turn = self.arm_and_turn(branch)
                is_first = turn == 1  # the arms share it
                n += size * (
                    self.first_turn_predictions(name, branch) if is_first else arm.turns[turn - 1].n_predictions
                )
        return n, self.sampling.max_output_tokens

    def sources(self) -> Iterable[Download | None]:
        of_sets = [download for task_set in self.evaluation.sets for download in task_set.downloads]
        return [*super().sources(), *([self.problems.download] if self.problems else []), *of_sets]

    def trained_on(self) -> Iterable[Download | None]:
        named = set(self.training_tasks)
        problems = [self.problems.download] if self.problems and named & set(self.part_names) else []
        sets = [task_set for task_set in self.evaluation.sets if task_set.name in named]
        return [*problems, *(download for task_set in sets for download in task_set.downloads)]

    @property
    def part_names(self) -> list[str]:
        return self.parts.names if self.parts else []

    def kept_steps(self, run: str) -> list[int]:
        return self.training.kept_steps(self.runs[run]) if self.training and run in self.runs else []

    @property
    def more_to_keep_apart(self) -> dict[str, Any]:
        """Settings of the search for tasks to train on that are evaluated, in addition to the files of tasks."""
        return {}

    @property
    def files_to_keep_apart(self) -> list[str]:
        """Files that these settings name."""
        return []

    @classmethod
    def section_types(cls) -> dict[str, type[BaseModel]]:
        (evaluation,) = sections_in(cls, "evaluation")
        (problems,), (task_set,) = sections_in(cls, "problems"), sections_in(evaluation, "sets")
        return {"problems": problems, "task_set": task_set}

    @property
    def reward_functions(self) -> Functions:
        return {**self.program_rewards, **ATTEMPT_REWARDS}

    def own_of(self, tasks: str) -> Strict | None:
        """How the domain shows tasks in the prompts of a part or an evaluation set; None: in one way."""
        return None

    def own_of_broken(self, tasks: str) -> Strict | None:
        """`own_of` for prompts that the tasks' own programs answer: they show the tasks themselves."""
        return self.own_of(tasks)

    @property
    def training_tasks(self) -> list[str]:
        """Parts or evaluation sets to train on."""
        if self.training is None:
            return []
        return list(self.training.sets) or self.part_names

    @property
    def sets_to_keep_apart(self) -> list[str]:
        """Evaluation sets whose tasks should not be trained on."""
        if self.training is None:
            return []
        return [name for name in self.set_names if name not in self.training.sets]

    def expanded(self, arm: Arm) -> list[tuple[str, Arm]]:
        """Expand an arm over kept steps, trained adapters and sampling seeds, as (name without seeds, arm) pairs."""
        return [
            (name, seeded)
            for at_step in self._with_steps(arm).values()
            for name, trained in self.per_training(at_step)
            for seeded in [trained.with_seed(seed) for seed in self.evaluation.seeds] or [trained]
        ]

    def _with_steps(self, arm: Arm) -> dict[int | None, Arm]:
        """Expand an arm over the steps whose adapters are kept; None: it does not ask for all of them."""
        if not arm.over_steps:
            return {None: arm}
        runs = [run for name in arm.over_steps for run in (self.runs if name == TRAINED else {name: None})]
        return {step: arm.at_step(step) for step in sorted({step for run in runs for step in self.kept_steps(run)})}

    @cached_property
    def over_steps(self) -> dict[str, dict[int, str]]:
        """Names in `repetitions` by kept step, of each configured arm that asks for all of them.

        Includes the arms with the untrained model (step 0) and with the final adapter, if any.
        """
        over_steps: dict[str, dict[int, str]] = {}
        for configured in self.evaluation.arms:
            for step, at_step in self._with_steps(configured).items():
                if step is None:
                    continue
                for name, arm in self.per_training(at_step):
                    run = next(run_and_step(turn.adapter)[0] for turn in arm.turns if AT in turn.adapter)
                    series = over_steps.setdefault(name.replace(f"{AT}{step}", ""), {})
                    series[step] = name
                    for end, adapter in ((0, "none"), (self.runs[run].grpo.max_steps, run)):
                        if end >= 0 and (other := self._with_kept_replaced(arm, adapter)):
                            series[end] = other
        return {name: dict(sorted(series.items())) for name, series in over_steps.items()}

    def _with_kept_replaced(self, arm: Arm, adapter: str) -> str | None:
        """The name in `repetitions` of the arm that has `adapter` instead of the kept adapters of `arm`, if any."""
        turns = tuple(
            turn.model_copy(update={"adapter": adapter}) if AT in turn.adapter else turn for turn in arm.turns
        )
        names = (name for name, arms in self.repetitions.items() for other in arms if other.turns == turns)
        return next(names, None)

    @cached_property
    def compared(self) -> list[tuple[str, str]]:
        """Pairs of names in `repetitions` to compare: the first minus the second."""
        names = list(self.repetitions)
        with_baseline = [(name, names[0]) for name in names[1:]]
        others = [
            pair
            for first, second in self.evaluation.comparisons
            for pair in product(self._names_of(first), self._names_of(second))
        ]
        if not self.evaluation.comparisons and len(names) <= 3:
            others = [(second, first) for first, second in combinations(names, 2)]
        return list(dict.fromkeys([*with_baseline, *others]))

    def _names_of(self, arm: str) -> list[str]:
        """Names for `arms_called` of a configured arm, or of one of the arms it expands to."""
        configured = {entry.name: entry for entry in self.evaluation.arms}
        if arm in configured:
            return list(dict.fromkeys(name for name, _ in self.expanded(configured[arm])))
        return [arm]

    def seed_of_arm(self, arm: Arm) -> int:
        """Seed of the arm's sampling and augmentation."""
        return self.seed if arm.sampling_seed is None else arm.sampling_seed

    @property
    def evaluated_sets(self) -> Sequence[TaskSet]:
        return self.evaluation.sets

    @property
    def primaries(self) -> list[Primary]:
        return [self.evaluation.primary] if self.evaluation.primary else []

    def evaluation_set(self, name: str) -> TaskSet:
        return next(task_set for task_set in self.evaluation.sets if task_set.name == name)

    def n_shards(self, tasks: str, branch: str = "turn1") -> int:
        """Number of sampling jobs of a part or an evaluation set; broken answers need one job."""
        if is_broken(branch):
            return 1
        if self.parts and tasks in self.part_names:
            return self.parts.shards_per_part
        return self.evaluation_set(tasks).shards

    def files(self, results: Path, tasks: str, branch: str) -> BranchFiles:
        """The records of a branch of a part or an evaluation set; `results` is the experiment's folder of results."""
        return BranchFiles(
            results / tasks / branch,
            self.n_shards(tasks, branch),
            self.shards_per_grading_job,
            self.sampling.tasks_per_batch,
        )

    @property
    def refined_branch(self) -> str:
        """The first turns that training refines."""
        return BROKEN_BRANCH if self.training and self.training.answers == BROKEN else "turn1"

    @property
    def refined_for_training(self) -> list[str]:
        """Parts or evaluation sets whose first-turn attempts become training prompts or demonstrations."""
        refines = self.runs and self.training and self.training.prompts == "second-turn"
        return self.training_tasks if refines or self.sft_adapters else []

    def arm_and_turn(self, branch: str) -> tuple[Arm, int]:
        """The arm and the number of the turn that a branch such as `refine-trained-turn2` belongs to.

        Raises `ConfigError` if the experiment has no such branch.
        """
        for arm in self.arms:
            if branch in arm.branches:
                return arm, 1 + arm.branches.index(branch)
        raise ConfigError(f"{branch} is not a branch of this experiment; expected {', '.join(self.branches)}")

    def branch_before(self, branch: str) -> str:
        """The branch that a branch of turn 2 or later refines."""
        arm, number = self.arm_and_turn(branch)
        return arm.branch(number - 1)

    def first_turn_predictions(self, tasks: str, branch: str) -> int:
        """Completions per task in turn 1: the arms share them, so the largest arm decides."""
        if tasks in self.part_names:
            return self.sampling.n_predictions
        sizes = [arm.turns[0].n_predictions for arm in self.arms if arm.branch(1) == branch]
        if self._is_for_training(tasks, branch):
            sizes.append(self.sampling.n_predictions)
        return max(sizes)

    def sampled(self, tasks: str, branch: str) -> SamplingPlan:
        """What the completions of a branch are sampled with."""
        if self._is_for_training(tasks, branch):
            return SamplingPlan(None, self.seed)
        arm, number = self.arm_and_turn(branch)
        adapter = arm.turns[number - 1].adapter
        return SamplingPlan(None if adapter == "none" else adapter, self.seed_of_arm(arm))

    def _is_for_training(self, tasks: str, branch: str) -> bool:
        """Return whether training reads a first turn, so that it is sampled without regard to the arms."""
        return tasks in self.part_names or (branch == self.refined_branch and tasks in self.refined_for_training)

    @property
    def branches(self) -> list[str]:
        """Folder names of all turns of all arms, each once."""
        return list(dict.fromkeys(branch for arm in self.arms for branch in arm.branches))

    @model_validator(mode="before")
    @classmethod
    def _usual_values_are_the_domains(cls, config: Any) -> Any:
        """Fill in defaults that depend on the domain."""
        if not isinstance(config, dict):
            return config
        refinement, training = config.get("refinement", {}), config.get("training")
        if isinstance(refinement, dict):
            config = config | {"refinement": {"include_errors": cls.refines_errors} | refinement}
        if isinstance(training, dict) and isinstance(grpo := training.get("grpo"), dict):
            config = config | {"training": training | {"grpo": {"rewards": [cls.usual_reward]} | grpo}}
        return config

    @model_validator(mode="after")
    def _names_are_free(self) -> Self:
        taken = {*self.part_names, "adapters", "fetched", "report", "tasks", "template"}
        if clash := {s.name for s in self.evaluation.sets} & taken:
            raise ValueError(f"evaluation.sets: the name {', '.join(sorted(clash))} is taken; choose another")
        if clash := {arm.name for arm in self.evaluation.arms if arm.name.startswith("turn1")}:
            raise ValueError(f"evaluation.arms: {', '.join(sorted(clash))}: the name of an arm cannot begin with turn1")
        if runs := [name for name in self.adapters if is_broken(f"turn1-{name}")]:
            raise ValueError(f"training: {runs[0]}: the name of a run cannot begin with {BROKEN}; choose another")
        return self

    @model_validator(mode="after")
    def _sections_are_complete(self) -> Self:
        if self.parts and not self.problems:
            raise ValueError("problems is missing: parts are made from them")
        if self.parts and self.problems and self.problems.is_endless and not self.parts.tasks_per_part:
            raise ValueError("parts.tasks_per_part is missing: the generator needs the number of problems to make")
        if self.parts and self.training and self.training.sets:
            raise ValueError("parts are not used, because training.sets names what to train on; remove one of them")
        if self.model.window <= self.sampling.max_output_tokens:
            raise ValueError(
                f"model.window = {self.model.window} leaves no room for a prompt beside sampling.max_output_tokens = "
                f"{self.sampling.max_output_tokens}; raise one or lower the other"
            )
        if self.training and not self.training_tasks:
            raise ValueError("training: there is nothing to train on; give parts, or training.sets")
        sets = self.set_names
        if self.training and (unknown := sorted(set(self.training.sets) - set(sets))):
            raise ValueError(
                f"training.sets: {unknown[0]} is not an evaluation set; expected some of {', '.join(sets)}"
            )
        adapters = ["none", *self.adapters, *self.kept_adapters]
        names = [arm.name for arm in self.arms]
        self.check_arm_names()
        for configured in self.evaluation.arms:
            if not self._with_steps(configured):
                raise ValueError(
                    f"evaluation.arms: {configured.name} asks for the adapters of every kept step, but none is "
                    "kept: set training.keep_steps or training.keep_every"
                )
        comparable = {*names, *self.repetitions, *(arm.name for arm in self.evaluation.arms)}
        if unknown := [name for pair in self.evaluation.comparisons for name in pair if name not in comparable]:
            raise ValueError(f"evaluation.comparisons: {unknown[0]} is not an arm; expected two of {', '.join(names)}")
        for arm in self.arms:
            for turn in arm.turns:
                if turn.adapter not in adapters:
                    raise ValueError(
                        f"evaluation.arms: {arm.name} samples with the adapter {turn.adapter}; expected one of "
                        f"{', '.join(adapters)}{self.no_adapters}"
                    )
        return self

    @model_validator(mode="after")
    def _a_server_is_asked_what_it_can(self) -> Self:
        if not self.model.is_served:
            return self
        if self.generation.enable_thinking is not None:
            raise ValueError(
                "generation.enable_thinking: the chat template is the server's; set "
                "model.extra_body: {chat_template_kwargs: {enable_thinking: false}}, or what its documentation says"
            )
        if self.evaluation.reference_logprobs:
            raise ValueError("evaluation.reference_logprobs: they need the model's weights; remove it")
        return self

    @model_validator(mode="after")
    def _forms_are_the_domains(self) -> Self:
        forms = {"refinement.form": self.refinement.form}
        for number, arm in enumerate(self.evaluation.arms):
            forms |= {f"evaluation.arms.{number}.turns.{n}.form": turn.form or "" for n, turn in enumerate(arm.turns)}
        for key, form in forms.items():
            if form and form not in self.forms:
                raise ValueError(f"{key} is {form!r}; expected {', '.join(self.forms) or 'none, the domain has one'}")
        return self

    @model_validator(mode="after")
    def _arms_can_be_compared(self) -> Self:
        for first, second in self.compared:
            if any(arm == other for run in self.paired_runs(first, second) for arm, other in run):
                raise ValueError(f"evaluation.comparisons: [{first}, {second}] compares an arm with itself")
        primary, sets = self.evaluation.primary, self.set_names
        if primary is None:
            return self
        if primary.set not in sets:
            raise ValueError(f"evaluation.primary: {primary.set} is not an evaluation set; expected {', '.join(sets)}")
        if self.evaluation_set(primary.set).validation:
            raise ValueError(
                f"evaluation.primary: settings are chosen by results on {primary.set}, which has `validation: true`; "
                "compare on a set that nothing was chosen on"
            )
        if self.training and primary.set in self.training.sets:
            raise ValueError(
                f"evaluation.primary: {primary.set} is trained on (training.sets); compare on another evaluation set"
            )
        for declared in primary.pairs:
            if declared not in self.compared:
                pairs = "; ".join(f"[{first}, {second}]" for first, second in self.compared) or "two arms"
                raise ValueError(
                    f"evaluation.primary: [{', '.join(declared)}] are not compared; expected one of {pairs}, or add "
                    "the pair to evaluation.comparisons"
                )
        compared = [pair for declared in primary.pairs for run in self.paired_runs(*declared) for pair in run]
        n_turns = min(len(arm.turns) for pair in compared for arm in pair)
        turn = primary.turn or 1
        if turn > n_turns or (primary.turn and any(arm.branch(turn) == other.branch(turn) for arm, other in compared)):
            raise ValueError(
                f"evaluation.primary.turn is {turn}; expected a turn that the arms of {primary.title} all have, each "
                "its own; leave it out to compare tasks solved"
            )
        return self
