"""GRPO (Shao et al. 2024) with a LoRA adapter, by TRL.

An interrupted run resumes from its last checkpoint and gives the same result as an uninterrupted one. A run that
collapses stops (`guard`). The adapter is the best checkpoint on held-out prompts, from before a collapse.
Several processes can share each step (`job.train`); the first one writes.

An environment (`RefineEnvironment`, `ToolEnvironment`) supplies prompts, completions and rewards:

    prompt       one task, num_generations: 4, rewards: [arc-v1]
    rewards      [10.0, 1.5, 0.0, 1.5]          programs: right, wrong, raises, wrong
    advantages   [1.48, -0.38, -0.71, -0.38]    (reward - mean) / standard deviation, with scale_rewards: group
"""

import logging
import math
import os
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from accelerate.utils import broadcast_object_list
from torch.distributed.elastic.utils.distributed import get_free_port
from transformers import PrinterCallback
from trl import GRPOConfig

from arc_refinery.config import Guard, PolicyGradient, check_weights
from arc_refinery.config.own_functions import defined_by
from arc_refinery.errors import InputError, NotFiniteError
from arc_refinery.files import writing
from arc_refinery.models.tokenizers import end_tokens, load_tokenizer
from arc_refinery.sampling.checks import check_trained
from arc_refinery.sampling.gpus import check_mig
from arc_refinery.sampling.library_arguments import grpo_settings
from arc_refinery.training import checkpoints
from arc_refinery.training.adapters import lora_config, open_base, open_network, read_weights, write_adapter
from arc_refinery.training.callbacks import (
    CollapseWatcher,
    EndsPart,
    KeepsCheckpoints,
    OneLineProgress,
    begin_trackers,
    begin_trackio,
)
from arc_refinery.training.job import TrainingJob
from arc_refinery.training.log import Choice, HeldoutResult, Line, Symptom, history, write_lines
from arc_refinery.training.rehearsal import Rehearsal, longest_of_grpo
from arc_refinery.training.samples import FILE, Samples, copy_checkpoints
from arc_refinery.training.trainer import Environment, Trainer

logger = logging.getLogger(__name__)


def train_grpo(job: TrainingJob, environment: Environment) -> None:
    """Write the adapter and `training.jsonl` to the folder `job.output`."""
    _check(job, environment)
    torch.set_num_threads(job.model.n_threads)
    identity = job.identity(environment)
    state = PartialState(cpu=not torch.cuda.is_available())
    if state.is_main_process:
        checkpoints.claim(job.work, identity)
        if job.before:
            checkpoints.take_over(job.before / checkpoints.FOLDER, job.work, job.until_step)
    # the first process removes damaged ones, the others wait
    first = [checkpoints.newest(job.work, job.until_step) if state.is_main_process else None]
    (newest,) = broadcast_object_list(first)
    keywords = begin_trackers(job.output, job.tensorboard, identity)
    if job.training.sampler == "vllm-colocate":
        # TRL takes port 29500 if it looks free: of two runs starting on one machine, the second would crash.
        os.environ.setdefault("MASTER_PORT", str(get_free_port()))
    if job.training.opens_vllm:
        from arc_refinery.training import colocated

        colocated.open_with(job.model, job.lora, job.training)
    trainer = open_trainer(job, environment, keywords)
    trainer.samples = Samples(job.work, job.seed)
    symptom = _train(job, environment, trainer, newest)
    if state.is_main_process:
        trainer.samples.save(trainer.state.global_step)
        _write(job, trainer, trainer.samples, symptom)


def _check(job: TrainingJob, environment: Environment) -> None:
    """Raise before anything is written if the training cannot start here."""
    training, rows = job.training, environment.data.train
    if training.own_advantage:
        defined_by(training.own_advantage)
    try:
        check_weights(job.lora, training)
    except ValueError as error:
        raise InputError(str(error)) from None
    keys: dict[str, str] = dict.fromkeys(training.report_to, "report_to")
    if training.sampler != "transformers":
        keys["vllm"] = "sampler"
    for package, key in keys.items():
        if find_spec(package) is None:
            raise InputError(f"{key}: the package {package} is not installed here; install it (docs/methods.md)")
    if training.sampler != "transformers":
        check_mig()
        if not torch.cuda.is_available():
            logger.warning("sampler %s: needs a GPU, and this machine has none", training.sampler)
    n = training.prompts_per_step * training.steps_per_generation
    if len(rows) < n:  # TRL drops incomplete batches, so it would train for no step
        raise InputError(
            f"there are {len(rows)} prompts to train on, but a batch needs prompts_per_step x steps_per_generation = "
            f"{n}; lower them, or add tasks or questions"
        )
    check_trained(job.model, job.lora, job.start)


def open_trainer(job: TrainingJob, environment: Environment, keywords: dict[str, Any]) -> Trainer:
    """Return the environment's trainer with the network; `keywords` are further ones of `trl.GRPOConfig`."""
    tokenizer = load_tokenizer(job.model.path)
    settings = grpo_settings(
        job.model,
        job.training,
        environment.arguments(),
        job.seed,
        job.work,
        on_gpu=torch.cuda.is_available(),
        has_heldout=environment.data.heldout is not None,
    )
    try:
        arguments = GRPOConfig(**settings | keywords)
    except (TypeError, ValueError) as error:
        if not job.training.trl:
            raise
        raise InputError(f"grpo.trl is {job.training.trl}, which TRL refuses: {error}") from None
    trainer = environment.trainer(
        tokenizer,
        end_tokens(job.model.path, tokenizer),
        **_network(job),
        processing_class=tokenizer,
        args=arguments,
        train_dataset=environment.data.train,
        eval_dataset=environment.data.heldout,
        callbacks=[OneLineProgress({"reward": "reward", "eval_reward": "held-out reward"})],
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


def _network(job: TrainingJob) -> dict[str, Any]:
    """Return TRL's arguments: the model and the config of a fresh adapter, or a model that already has its adapter.

    TRL copies an existing adapter: it is the reference of the KL term.
    """
    if job.training.trains_with_unsloth:
        from arc_refinery.training import unsloth_backend

        return {"model": unsloth_backend.open_unsloth_network(job.model, job.lora, job.training, job.start, job.seed)}
    if job.start is not None:
        return {"model": open_network(job.model, job.lora, job.start, job.seed)}
    return {"model": open_base(job.model, job.lora), "peft_config": lora_config(job.lora)}


def _train(job: TrainingJob, environment: Environment, trainer: Trainer, newest: Path | None) -> Symptom | None:
    """Train from the newest checkpoint, if there is one, to the end or to a collapse, and return its symptom."""
    is_first = trainer.accelerator.is_main_process
    if is_first and trainer.samples:
        trainer.samples.resume(int(newest.name.rpartition("-")[2]) if newest else 0)
    if newest:
        logger.info("%s: training resumes from this checkpoint", newest)
    elif is_first:
        for curves in job.tensorboard.glob("events.out.tfevents.*"):  # left by another run
            curves.unlink()
    at_start: dict[str, float] | None = None
    if not newest and environment.data.heldout:  # at every start from step 0, because it advances the random state
        begin_trackio(trainer)
        metrics = trainer.evaluate()
        at_start = {name: metrics[name] for name in ("eval_reward", "eval_share/solved")}
    if job.until_step:
        trainer.add_callback(EndsPart(job.until_step))
    watcher = CollapseWatcher(job.guard)
    trainer.add_callback(watcher)
    trainer.add_callback(KeepsCheckpoints(job.training, job.guard, at_start))
    if job.training.trains_with_unsloth:
        logger.info("no rehearsal: Unsloth divides each pass by the memory that is free")
    else:
        longest = longest_of_grpo(trainer, job.model.window, environment.longest_completion)
        trainer.add_callback(Rehearsal(trainer, longest, job.model))
    with writing(job.tensorboard):  # checkpoints name themselves
        try:
            trainer.train(resume_from_checkpoint=str(newest) if newest else None)
        except NotFiniteError:  # a step has made weights that are finite, but too large
            step = trainer.state.global_step
            if not step or job.guard.action == "none" or trainer.accelerator.num_processes > 1:
                raise
            return Symptom(step, "loss", math.nan, 0.0)
    return watcher.symptom


def _write(job: TrainingJob, trainer: Trainer, samples: Samples, symptom: Symptom | None) -> None:
    """Write the adapter, its log, samples and measurements; remove the checkpoints."""
    last_step = trainer.state.global_step
    lines = history(trainer.state.log_history, symptom, job.guard.action)
    collapse = symptom if job.guard.action == "stop" else None
    is_over = not job.until_step or collapse is not None
    if job.until_step and not is_over:
        choice = Choice(job.until_step, checkpoints.KEPT_STEP)
    else:
        choice = choose(job.work, job.training, job.guard, lines, collapse, last_step)
    if collapse:
        logger.warning(
            "training collapsed at step %d and was stopped (%s: %.3g, limit %.3g); the adapter is that of step %d: %s",
            *(collapse.step, collapse.criterion, collapse.value, collapse.limit, choice.step, choice.why),
        )
    _load_step(trainer.model, job, choice.step)

    def add(folder: Path) -> None:
        write_lines(folder / "training.jsonl", [*lines, choice])
        if job.until_step:
            copy_checkpoints(job.work, folder / checkpoints.FOLDER)
        if is_over:  # the last part has the samples of all
            samples.write(folder / FILE)

    write_adapter(trainer.model, job.output, add)
    if job.measurements:
        write_lines(job.measurements, trainer.measurements())
    checkpoints.remove(job.work)


def choose(
    work: Path,
    training: PolicyGradient,
    guard: Guard,
    lines: Sequence[Line],
    collapse: Symptom | None,
    last_step: int,
) -> Choice:
    """Choose the step whose weights become the adapter; 0: those that training started from."""
    steps = checkpoints.planned(work, training.save_steps, last_step)
    if collapse:
        steps = checkpoints.before_window(steps, collapse.step, guard.window + training.steps_per_batch - 1)
    available = [0, *steps]
    rewards = {line.step: line.reward for line in lines if isinstance(line, HeldoutResult) and line.step in available}
    if rewards:
        step = checkpoints.best(rewards)
        return Choice(step, "best held-out reward", rewards[step])
    if collapse:
        return Choice(available[-1], "the last one before the collapse")
    return Choice(last_step, "the last step")


def _load_step(network: Any, job: TrainingJob, step: int) -> None:
    """Load the adapter of a step; 0: the one that training started from."""
    folder = checkpoints.steps_of(job.work)[step] if step else job.start
    if folder is not None:
        read_weights(network, folder)
        return
    with torch.no_grad():
        for name, weights in network.named_parameters():
            if "lora_B" in name:
                weights.zero_()  # as in a fresh adapter, which changes nothing
