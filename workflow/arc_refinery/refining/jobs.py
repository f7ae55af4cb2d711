"""The jobs of refining, for the rules: the settings of each stage, and the files that it reads (inputs.py).

>>> import json
>>> from arc_refinery.config import load_experiment
>>> experiment = load_experiment(Path("config/config.yaml"), Refining)
>>> settings, tuning = sample(experiment, "heldout", "turn1")
>>> json.loads(settings)["sampling"]["temperature"], json.loads(tuning)["model"]["gpu_memory_utilization"]
(1.0, 0.9)
"""

from typing import Any

from arc_refinery.config import ATTEMPTS, GRADING, REPORT, TUNING, Lengths, marked
from arc_refinery.config.base import PROMPTS
from arc_refinery.config.inputs import with_local_path
from arc_refinery.jobs import Job, Part, job, local, only, paid_in, sampling_model, trained_model, without
from arc_refinery.refining import inputs as inputs
from arc_refinery.refining.config import PromptChoice, Refinement, Refining
from arc_refinery.refining.inputs import grpo_inputs as grpo_inputs
from arc_refinery.refining.inputs import report_inputs as report_inputs
from arc_refinery.refining.inputs import sft_inputs as sft_inputs

# Tasks


def tasks(experiment: Refining) -> Job:
    parts, problems = experiment.parts, experiment.problems
    assert parts and problems
    return job(
        experiment,
        problems=with_local_path(experiment, problems),
        tasks_per_part=parts.tasks_per_part,
        seed=experiment.seed,
        sandbox=_task_sandbox(experiment),
    )


def evaluation_tasks(experiment: Refining, tasks: str) -> Job:
    task_set = without(experiment.evaluation_set(tasks).completed(experiment), TUNING, REPORT)
    return job(experiment, task_set=task_set, sandbox=_task_sandbox(experiment))


def _task_sandbox(experiment: Refining) -> Any:
    """Its limits decide which tasks there are only where the domain executes their programs."""
    return experiment.sandbox if experiment.executes_tasks else {}


def overlap(experiment: Refining) -> Job:
    return job(experiment, **experiment.more_to_keep_apart)


# Prompts, attempts, verdicts


def first_prompts(experiment: Refining, tasks: str, branch: str) -> Job:
    sampled = experiment.sampled(tasks, branch)
    changes = {"n_predictions": experiment.first_turn_predictions(tasks, branch)}
    return job(
        experiment,
        model=_prompted(experiment, experiment.model.window),
        sampling=without(experiment.sampling.model_copy(update=changes), ATTEMPTS),
        **_own(experiment.own_of(tasks)),
        **_thinking(experiment),
        branch="turn1",
        seed=sampled.seed,
    )


def break_programs(experiment: Refining, tasks: str, branch: str) -> Job:
    changes = {"n_predictions": experiment.first_turn_predictions(tasks, branch)}
    return job(
        experiment,
        model=_prompted(experiment, experiment.model.window),
        sampling=only(experiment.sampling.model_copy(update=changes), "n_predictions", "max_output_tokens"),
        sandbox=experiment.sandbox,
        include_errors=experiment.refinement.include_errors,
        seed=experiment.sampled(tasks, branch).seed,
        **_own(experiment.own_of_broken(tasks)),
        **_thinking(experiment),
    )


def _own(own: Any) -> dict[str, Any]:
    return {"own": own} if own else {}


def _thinking(experiment: Refining) -> dict[str, Any]:
    return experiment.generation.model_dump(exclude_none=True)


def sample(experiment: Refining, tasks: str, branch: str) -> Job:
    return job(
        experiment,
        paid_in(experiment),
        model=sampling_model(experiment),
        sampling=only(experiment.sampling, "max_output_tokens", "tasks_per_batch", "temperature", "top_p"),
        seed=experiment.sampled(tasks, branch).seed,
    )


def grade(experiment: Refining) -> Job:
    return job(experiment, sandbox=experiment.sandbox, seed=experiment.seed)


def refining_prompts(experiment: Refining, tasks: str, branch: str) -> Job:
    arm, number = experiment.arm_and_turn(branch)
    before, turn = arm.turns[number - 2 : number]
    return _next_turn(
        experiment,
        tasks,
        branch,
        seed=experiment.seed_of_arm(arm),
        model=_prompted(experiment, experiment.model.window),
        sampling={"n_predictions": turn.n_predictions, "max_output_tokens": experiment.sampling.max_output_tokens},
        refinement=turn.refinement(experiment.refinement),
        n_considered=before.n_predictions,
        feedback=turn.feedback,
        select=PromptChoice(),
    )


def _next_turn(experiment: Refining, tasks: str, branch: str, sampling: dict[str, int], **settings: Any) -> Job:
    sizes = {"batch_size": experiment.sampling.batch_size} | sampling
    refined = experiment.refined_branch if branch == "training" else experiment.branch_before(branch)
    files = _files(experiment, tasks, refined)
    return job(experiment, files, branch=branch, sampling=sizes, **_thinking(experiment), **settings)


def _files(experiment: Refining, tasks: str, branch: str) -> dict[str, int]:
    """How a branch is split into files, which changes no result."""
    return {
        "n_shards": experiment.n_shards(tasks, branch),
        "shards_per_grading_job": experiment.shards_per_grading_job,
        "tasks_per_batch": experiment.sampling.tasks_per_batch,
    }


def _prompted(experiment: Refining, window: int) -> Part:
    """The model as far as prompts depend on it."""
    changed = local(experiment, window=window, **experiment.wording)
    backend = ["backend"] if changed.is_served else []
    return only(changed, "path", "window", *backend, *marked(type(changed), PROMPTS))


def reference_logprobs(experiment: Refining, tasks: str, branch: str) -> Job:
    """The log-probabilities that a branch's model gives the tasks' own programs, with transformers."""
    model = local(experiment, **experiment.wording)
    wording = marked(type(model), PROMPTS)
    return job(
        experiment,
        model=only(model, "path", "window", "dtype", "n_threads", "use_4bit_quantization", *wording),
        sandbox=without(experiment.sandbox, GRADING),
    )


# Training


def training_prompts(experiment: Refining, tasks: str) -> Job:
    training, sampling = experiment.training, experiment.sampling
    assert training
    model = _prompted(experiment, _training_window(experiment))
    if training.prompts == "first-turn":  # each prompt has its own augmentation
        sizes = {"n_predictions": training.prompts_per_task, "batch_size": 1}
        changed = sampling.model_copy(update=sizes | {"max_output_tokens": training.max_completion_length})
        prompted = without(changed, ATTEMPTS)
        own = _own(experiment.own_of(""))  # augmented as the evaluation's, also for parts whose attempts are not
        own |= _thinking(experiment)
        return job(experiment, model=model, sampling=prompted, **own, branch="training", seed=experiment.seed)
    return _next_turn(  # one prompt per task, which refines its best incorrect attempt
        experiment,
        tasks,
        "training",
        seed=experiment.seed,
        model=model,
        sampling={"n_predictions": 1, "max_output_tokens": training.max_completion_length},
        refinement=_refinement(experiment, n_parents=1),
        n_considered=sampling.n_predictions,
        feedback="real",
        select=training.select or PromptChoice(),
    )


def _refinement(experiment: Refining, **settings: Any) -> Refinement:
    """What attempts are refined in training, and how the feedback is written."""
    usual = experiment.refinement
    return type(usual)(include_errors=usual.include_errors, form=usual.form, **settings)


def demonstrations(experiment: Refining, tasks: str) -> Job:
    training = experiment.training
    assert training and training.sft
    return job(
        experiment,
        _files(experiment, tasks, experiment.refined_branch),
        model=_prompted(experiment, _training_window(experiment)),
        refinement=_refinement(experiment),
        demonstrations=training.sft.demonstrations,
        sandbox=experiment.sandbox,
        max_completion_length=training.max_completion_length,
        n_considered=experiment.sampling.n_predictions,
        seed=experiment.seed,
        **_thinking(experiment),
    )


def _training_window(experiment: Refining) -> int:
    assert experiment.training
    return min(experiment.model.window, experiment.training.max_seq_length)


def training(experiment: Refining, run: str) -> dict[str, Any]:
    """Return the settings of a training with GRPO that only refining has."""
    training = experiment.training
    assert training and training.grpo
    window, answer = training.max_seq_length, training.max_completion_length
    shows_history = not training.grpo.answers_once
    model = trained_model(experiment, window, run)
    wording = marked(type(experiment.model), PROMPTS)
    return {
        "model": Part(model.section.model_copy(update=experiment.wording), model.left_out - wording),
        "refinement": _refinement(experiment, **({"history": experiment.refinement.history} if shows_history else {})),
        "lengths": Lengths(max_completion_length=answer, max_seq_length=window),
        **_thinking(experiment),
    }
