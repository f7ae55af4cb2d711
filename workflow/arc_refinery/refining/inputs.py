"""The files that each stage of refining reads. `<results>` is Snakemake's variable for the folder of results."""

from pathlib import Path

from arc_refinery.branch_files import BranchFiles
from arc_refinery.config import ConfigError
from arc_refinery.config.inputs import Paths, adapters
from arc_refinery.config.loading import domain_sources
from arc_refinery.refining.config import Refining


def sft_inputs(experiment: Refining) -> dict[str, Paths]:
    return {"data": [f"<results>/{tasks}/training/demonstrations.parquet" for tasks in experiment.training_tasks]}


def grpo_inputs(experiment: Refining) -> dict[str, Paths]:
    prompts, wording = training_prompt_files(experiment), experiment.template_files()
    return {"data": prompts, "template": wording, "domain": domain_code(experiment)}


def report_inputs(experiment: Refining) -> Paths:
    return [
        *domain_code(experiment),
        *(f"<results>/tasks/{name}.parquet" for name in experiment.set_names),
        *overlap(experiment),
        *training_prompt_files(experiment),
        *evaluation_prompts(experiment),
        *reference_logprobs(experiment),
        *(path for branch in _branches(experiment) for path in attempts(experiment, *branch)),
        *(path for branch in _branches(experiment) for path in verdicts(experiment, *branch)),
    ]


def domain_code(experiment: Refining) -> Paths:
    """Modules of a domain of the user: an input of all that it decides."""
    return _texts(domain_sources(experiment.domain))


def task_set(experiment: Refining, tasks: str) -> Paths:
    """The files that an evaluation set is read from."""
    return [*experiment.evaluation_set(tasks).files_read(experiment), *domain_code(experiment)]


def trained_and_evaluated(experiment: Refining) -> dict[str, Paths]:
    """Inputs of the rule `overlap` by name: tasks to train on, those to keep apart, and what the domain adds."""
    return {
        "trained": [f"<results>/tasks/{name}.parquet" for name in experiment.training_tasks],
        "evaluated": [f"<results>/tasks/{name}.parquet" for name in experiment.sets_to_keep_apart],
        "more": [*experiment.files_to_keep_apart, *domain_code(experiment)],
    }


def overlap(experiment: Refining) -> Paths:
    """File of the tasks to train on that are evaluated, too."""
    return ["<results>/training/overlap.parquet"] if experiment.sets_to_keep_apart else []


# Thousands of files: only functions of wildcards may ask for them, because every job on a cluster parses the rules.


def files(experiment: Refining, tasks: str, branch: str) -> BranchFiles:
    return experiment.files(Path("<results>"), tasks, branch)


def attempts(experiment: Refining, tasks: str, branch: str) -> Paths:
    return _texts(files(experiment, tasks, branch).attempts)


def verdicts(experiment: Refining, tasks: str, branch: str) -> Paths:
    return _texts(files(experiment, tasks, branch).verdicts)


def attempts_to_grade(experiment: Refining, tasks: str, branch: str, job: str) -> Paths:
    branch_files = files(experiment, tasks, branch)
    if int(job) >= branch_files.n_grading_jobs:
        raise ConfigError(
            f"{tasks}/{branch} has no grading job {job}: its {branch_files.n_grading_jobs} are numbered from 000"
        )
    return _texts(branch_files.attempts_of_job(int(job)))


def parent_prompts(experiment: Refining, tasks: str, branch: str) -> str:
    """The prompts of the attempts that a branch of turn 2 or later refines."""
    return str(files(experiment, tasks, experiment.branch_before(branch)).prompts)


def parent_attempts(experiment: Refining, tasks: str, branch: str) -> Paths:
    return attempts(experiment, tasks, experiment.branch_before(branch))


def parent_verdicts(experiment: Refining, tasks: str, branch: str) -> Paths:
    return verdicts(experiment, tasks, experiment.branch_before(branch))


def adapter(experiment: Refining, tasks: str, branch: str) -> Paths:
    """The trained adapter that a branch is sampled with, if any."""
    name = experiment.sampled(tasks, branch).adapter
    return adapters([name] if name else [])


def training_prompt_files(experiment: Refining) -> Paths:
    return [f"<results>/{tasks}/training/prompts.parquet" for tasks in experiment.training_tasks if experiment.runs]


def evaluation_prompts(experiment: Refining) -> Paths:
    """The prompts of the attempts that the report compares; it shows their lengths."""
    return [str(files(experiment, *branch).prompts) for branch in _branches(experiment)]


def reference_logprobs(experiment: Refining) -> Paths:
    """Log-probabilities of the tasks' own programs as second turns: arms share what these refine, not later turns."""
    if not experiment.evaluation.reference_logprobs:
        return []
    branches = dict.fromkeys(arm.branch(2) for arm in experiment.arms if len(arm.turns) > 1)
    return [str(files(experiment, tasks, branch).reference) for tasks in experiment.set_names for branch in branches]


def all_prompts(experiment: Refining) -> Paths:
    """Every file of prompts of the experiment: of first turns, of training, and of the arms' later turns."""
    first = [
        str(files(experiment, tasks, experiment.refined_branch).prompts) for tasks in experiment.refined_for_training
    ]
    return list(dict.fromkeys([*first, *training_prompt_files(experiment), *evaluation_prompts(experiment)]))


def _branches(experiment: Refining) -> list[tuple[str, str]]:
    """Return (evaluation set, branch) of everything that the report compares."""
    return [(task_set.name, branch) for task_set in experiment.evaluation.sets for branch in experiment.branches]


def _texts(paths: list[Path]) -> Paths:
    return list(map(str, paths))
