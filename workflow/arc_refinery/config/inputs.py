"""The files that each stage reads. `<results>` is a variable of Snakemake: the folder of the experiment's results."""

from collections.abc import Iterable
from functools import singledispatch
from itertools import chain
from pathlib import Path
from typing import Any

from arc_refinery.arc.kaggle import task_files
from arc_refinery.branch_files import BranchFiles
from arc_refinery.config.arms import Compared
from arc_refinery.config.base import ConfigError, run_and_step
from arc_refinery.config.experiment import Experiment
from arc_refinery.config.own_code import OwnCode
from arc_refinery.config.refining import Refining
from arc_refinery.config.sampling import LEARNED, ModelConfig, TemplateRows
from arc_refinery.config.tasks import Problems
from arc_refinery.config.tool_use import Questions, ToolChoice, ToolUse
from arc_refinery.models import hub
from arc_refinery.models.hub import Download
from arc_refinery.prompts import template_files

Paths = list[str]


# Places of models and rows, which may be fetched


def fetched_folder(experiment: Experiment, download: Download) -> str:
    """The folder of files that takes the place of a repository of the hub."""
    return str(hub.fetched_folder(Path(f"results/{experiment.experiment}"), download))


def model_path(experiment: Experiment, model: ModelConfig) -> str:
    return fetched_folder(experiment, model.download) if model.download else model.path


def template(experiment: Refining) -> str:
    """The template of all prompts: its name, or its folder."""
    name = experiment.model.template
    return f"results/{experiment.experiment}/template" if name == LEARNED else name


def rows_files(experiment: Experiment, source: Problems | Questions | TemplateRows) -> list[str]:
    """Where problems, questions or rows of a template are read from: a file on disk, or the folder that is fetched."""
    if source.download:
        return [fetched_folder(experiment, source.download)]
    return [str(source.path)] if source.source == "file" else []


# Models, templates, adapters


def models(experiment: Experiment, model: ModelConfig | None = None) -> Paths:
    """The model where it is fetched, by default the experiment's: an input of all that read it."""
    download = (model or experiment.model).download
    return [fetched_folder(experiment, download)] if download else []


def templates(experiment: Refining) -> Paths:
    """Files of the wording of all prompts."""
    return [str(path) for path in template_files(template(experiment))]


def fetched_records(experiment: Experiment) -> Paths:
    return [str(hub.record_of(Path(fetched_folder(experiment, one)))) for one in experiment.downloads]


def adapters(names: list[str]) -> Paths:
    return [f"<results>/adapters/{name}" for name in names]


def start_of(experiment: Experiment, adapter: str) -> Paths:
    """The adapter of SFT, where GRPO follows it."""
    name = experiment.start_of(run_and_step(adapter)[0])
    return adapters([name] if name else [])


def kept_before(experiment: Experiment, adapter: str) -> Paths:
    """The adapter, with its checkpoints, that ends the part before of a training."""
    name = experiment.kept_before(adapter)
    return adapters([name] if name else [])


# Inputs of the rules that every kind of experiment shares. Each kind registers its own.


@singledispatch
def sft_inputs(experiment: Experiment) -> dict[str, Paths]:
    """Inputs of the rule `sft` by name: `data`, the rows to learn from, and other files that decide its result."""
    raise NotImplementedError(f"{experiment.kind}: register config.inputs.sft_inputs")


@singledispatch
def grpo_inputs(experiment: Experiment) -> dict[str, Paths]:
    """Inputs of the rule `train` by name: `data`, the files to train on, and other files that decide its result."""
    raise NotImplementedError(f"{experiment.kind}: register config.inputs.grpo_inputs")


@singledispatch
def report_inputs(experiment: Experiment) -> Paths:
    """Files that the report compares."""
    raise NotImplementedError(f"{experiment.kind}: register config.inputs.report_inputs")


def reports(experiment: Compared[Any], origin: str) -> Paths:
    """The reports of the experiments to compare. Each is made with its own config: here, others have to be there.

    Raises `ConfigError` that blames the file `origin`.
    """
    if not experiment.compare:
        raise ConfigError(f"{origin}: compare: names no experiments; name those to compare, [demo, seeds-demo]")
    for name in experiment.compare:
        if name != experiment.experiment and not Path(f"results/{name}.md").exists():
            raise ConfigError(
                f"{origin}: compare: results/{name}.md does not exist. Make it first: snakemake --cores 2"
                f" --configfile <the config with `experiment: {name}`>"
            )
    return [f"results/{name}.md" for name in experiment.compare]


# Refining


@sft_inputs.register
def _(experiment: Refining) -> dict[str, Paths]:
    return {"data": [f"<results>/{tasks}/training/demonstrations.parquet" for tasks in experiment.training_tasks]}


@grpo_inputs.register
def _(experiment: Refining) -> dict[str, Paths]:
    return {"data": training_prompt_files(experiment), "template": templates(experiment)}


@report_inputs.register
def _(experiment: Refining) -> Paths:
    return [
        *(f"<results>/tasks/{one.name}.parquet" for one in experiment.evaluation.sets),
        *overlap(experiment),
        *training_prompt_files(experiment),
        *evaluation_prompts(experiment),
        *(path for branch in _branches(experiment) for path in attempts(experiment, *branch)),
        *(path for branch in _branches(experiment) for path in verdicts(experiment, *branch)),
    ]


def task_set(experiment: Refining, tasks: str) -> Paths:
    """The files that an evaluation set is read from, and the list of the tasks to keep."""
    chosen = experiment.evaluation_set(tasks)
    paths = [Path(path) for path in (chosen.path, chosen.solutions, chosen.only) if path]
    return [str(file) for path in paths for file in (task_files(path) if path.is_dir() else [path])]


def trained_and_evaluated(experiment: Refining) -> dict[str, Paths]:
    """Inputs of the rule `overlap` by name: tasks to train on, those to keep apart, and rows with their template."""
    rows = experiment.template_rows
    return {
        "trained": [f"<results>/tasks/{name}.parquet" for name in experiment.training_tasks],
        "evaluated": [f"<results>/tasks/{name}.parquet" for name in experiment.sets_to_keep_apart],
        "rows": rows_files(experiment, rows) if rows else [],
        "template": templates(experiment) if rows else [],
    }


def overlap(experiment: Refining) -> Paths:
    """Which tasks to train on are evaluated, too."""
    return ["<results>/training/overlap.parquet"] if experiment.sets_to_keep_apart else []


def left_out_of_training(experiment: Refining) -> Paths:
    training = experiment.training
    return overlap(experiment) if training and training.evaluated_tasks == "leave-out" else []


# Thousands of files: only functions of wildcards may ask for them, since every job on a cluster parses the rules.


def files(experiment: Refining, tasks: str, branch: str) -> BranchFiles:
    return experiment.files(Path("<results>"), tasks, branch)


def attempts(experiment: Refining, tasks: str, branch: str = "turn1") -> Paths:
    return _texts(files(experiment, tasks, branch).attempts)


def verdicts(experiment: Refining, tasks: str, branch: str = "turn1") -> Paths:
    return _texts(files(experiment, tasks, branch).verdicts)


def attempts_to_grade(experiment: Refining, tasks: str, branch: str, job: str) -> Paths:
    of_branch = files(experiment, tasks, branch)
    if int(job) >= of_branch.n_grading_jobs:
        raise ConfigError(
            f"{tasks}/{branch} has no grading job {job}: its {of_branch.n_grading_jobs} are numbered from 000"
        )
    return _texts(of_branch.attempts_of_job(int(job)))


def continued_verdicts(experiment: Refining, tasks: str, branch: str) -> Paths:
    """The verdicts on whose outputs a branch's programs run; none if these run on the tasks' inputs."""
    return parent_verdicts(experiment, tasks, branch) if experiment.continues_parents(branch) else []


def parent_prompts(experiment: Refining, tasks: str, branch: str) -> str:
    """The prompts of the attempts that a branch of turn 2 or later refines."""
    return str(files(experiment, tasks, experiment.branch_before(branch)).prompts)


def parent_attempts(experiment: Refining, tasks: str, branch: str) -> Paths:
    return attempts(experiment, tasks, experiment.branch_before(branch))


def parent_verdicts(experiment: Refining, tasks: str, branch: str) -> Paths:
    return verdicts(experiment, tasks, experiment.branch_before(branch))


def sampler(experiment: Refining, tasks: str, branch: str) -> Paths:
    return models(experiment, experiment.sampler(tasks, branch))


def adapter(experiment: Refining, tasks: str, branch: str) -> Paths:
    """The trained adapter where a branch is sampled with one."""
    name = experiment.adapter_of(tasks, branch)
    return adapters([name] if name else [])


def training_prompt_files(experiment: Refining) -> Paths:
    return [f"<results>/{tasks}/training/prompts.parquet" for tasks in experiment.training_tasks if experiment.runs]


def evaluation_prompts(experiment: Refining) -> Paths:
    """The prompts of the attempts that the report compares; it shows their lengths."""
    return [str(files(experiment, *branch).prompts) for branch in _branches(experiment)]


def all_prompts(experiment: Refining) -> Paths:
    """Every file of prompts of the experiment: first turns, what is trained on, what the arms answer."""
    first = [str(files(experiment, tasks, "turn1").prompts) for tasks in experiment.refined_for_training]
    return list(dict.fromkeys([*first, *training_prompt_files(experiment), *evaluation_prompts(experiment)]))


def _branches(experiment: Refining) -> list[tuple[str, str]]:
    """(evaluation set, branch) of everything that the report compares."""
    return [(task_set.name, branch) for task_set in experiment.evaluation.sets for branch in experiment.branches]


def _texts(paths: list[Path]) -> Paths:
    return list(map(str, paths))


# Tool use


@sft_inputs.register
def _(_: ToolUse) -> dict[str, Paths]:
    return {"data": ["<results>/training/conversations.parquet"]}


@grpo_inputs.register
def _(experiment: ToolUse) -> dict[str, Paths]:
    data, files = training_questions(experiment), files_to_read(experiment)
    rewards = sorted({str(term.own_code.path) for term in experiment.rewards if term.own_code})
    users = files_of_users(experiment, [one.name for one in experiment.data.train])
    return {"data": data, "files": files, "tools": tools_in_training(experiment), "rewards": rewards, "users": users}


@report_inputs.register
def _(experiment: ToolUse) -> Paths:
    return [*heldout_questions(experiment), *episode_files(experiment)]


def rows_of(experiment: ToolUse, name: str) -> Paths:
    """The file that a set of questions is read from."""
    return rows_files(experiment, experiment.sets[name])


def training_questions(experiment: ToolUse) -> Paths:
    return [f"<results>/questions/{one.name}.parquet" for one in experiment.data.train]


def heldout_questions(experiment: ToolUse) -> Paths:
    return [f"<results>/questions/{one.name}.parquet" for one in experiment.data.heldout]


def episode_files(experiment: ToolUse) -> Paths:
    """The episodes that the report compares."""
    return [
        f"<results>/{one.name}/{arm.name}/{shard:03d}.parquet"
        for one in experiment.data.heldout
        for arm in experiment.arms
        for shard in range(one.shards)
    ]


def arm_adapter(experiment: ToolUse, arm: str) -> Paths:
    name = experiment.adapter_of(arm)
    return adapters([name] if name else [])


def files_to_read(experiment: ToolUse) -> Paths:
    """Every file that `read_file` can read: the time of a folder does not show changes of its files."""
    if not experiment.reads_files(experiment.all_tools.values()) or not experiment.data.files:
        return []
    return sorted(str(path) for path in Path(experiment.data.files).rglob("*") if path.is_file())


def files_of_tools(tools: Iterable[ToolChoice]) -> Paths:
    """Files that define tools."""
    return sorted({str(path) for tool in tools for path in tool.files})


def tools_in_training(experiment: ToolUse) -> Paths:
    """Files that define the tools of training questions."""
    return files_of_tools([*experiment.tools, *chain.from_iterable(one.tools for one in experiment.data.train)])


def tools_of_arm(experiment: ToolUse, questions: str, arm: str) -> Paths:
    return files_of_tools(experiment.tools_of(questions)) if experiment.arm(arm).tools else []


def files_of_users(experiment: ToolUse, sets: Iterable[str]) -> Paths:
    """Files that define the users of sets of questions."""
    own = [OwnCode.parse(experiment.user_of(name) or "") for name in sets]
    return sorted({str(code.path) for code in own if code})


def users_of_arm(experiment: ToolUse, questions: str, arm: str) -> Paths:
    return files_of_users(experiment, [questions]) if experiment.arm(arm).user else []
