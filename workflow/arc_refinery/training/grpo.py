"""GRPO (Shao et al. 2024) with a LoRA adapter, by TRL.

An interrupted run resumes from its last checkpoint and gives the same result as an uninterrupted one. A run that
collapses rolls back to before the collapse, or stops (`guard`). The adapter is the best checkpoint on held-out prompts.
A run can be made in parts, `until_step` after `until_step`, each in a process of its own: that changes no weights.
Several processes can share each step (`processes`, `whole_step`); the first one writes.

An environment (`RefineEnvironment`, `ToolEnvironment`) supplies prompts, completions and rewards:

    prompt       one task, num_generations: 4, reward_name: arc-v1
    rewards      [10.0, 1.5, 0.0, 1.5]          programs: right, wrong, raises, wrong
    advantages   [1.48, -0.38, -0.71, -0.38]    (reward - mean) / standard deviation, with scale_rewards: group
"""

import logging
import math
import os
import shutil
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import torch
from datasets import Dataset, IterableDataset
from transformers import PrinterCallback, TrainerCallback
from trl import GRPOConfig

from arc_refinery.config import PolicyGradient, check_weights
from arc_refinery.errors import InputError, NotFiniteError
from arc_refinery.files import writing
from arc_refinery.models.tokenizers import end_tokens, load_tokenizer
from arc_refinery.sampling.checks import check_trained
from arc_refinery.sampling.gpus import check_mig
from arc_refinery.sampling.library_arguments import grpo_settings, vllm_colocated
from arc_refinery.sampling.transformers_sampler import not_finite
from arc_refinery.sampling.vllm_sampler import supported_rank
from arc_refinery.seeding import stream
from arc_refinery.training import checkpoints, processes, sampling_server, trackers
from arc_refinery.training.adapters import lora_config, open_base, open_network, read_weights, write_adapter
from arc_refinery.training.guard import Symptom, first_symptom, symptom
from arc_refinery.training.job import TrainingJob
from arc_refinery.training.log import MEASURED, Choice, Journal, Line, write_lines
from arc_refinery.training.progress import OneLineProgress
from arc_refinery.training.rehearsal import Rehearsal, longest_of_grpo
from arc_refinery.training.trainer import Trainer

logger = logging.getLogger(__name__)


PARTS = "checkpoints"  # in the folder of an adapter with which a part ends: all that the next part needs


@dataclass(frozen=True, slots=True)
class TrainingData:
    """Rows of a TRL dataset: `prompt`, and any other columns that the environment needs."""

    train: Dataset | IterableDataset
    heldout: Dataset | None

    @classmethod
    def split(cls, rows: Sequence[dict[str, Any]], n_heldout: int, seed: int) -> "TrainingData":
        """Hold out `n_heldout` rows from training, at random."""
        if n_heldout >= len(rows):
            raise InputError(f"n_heldout = {n_heldout} leaves nothing to train on: there are {len(rows)} prompts")
        kept_out = set(stream(seed, "heldout prompts").permutation(len(rows)).tolist()[:n_heldout])
        train = [row for index, row in enumerate(rows) if index not in kept_out]
        heldout = [rows[index] for index in sorted(kept_out)]
        return cls(Dataset.from_list(train), Dataset.from_list(heldout) if heldout else None)


class Environment(Protocol):
    """The prompts to train on, and how completions are sampled and scored."""

    data: TrainingData

    def identity(self) -> dict[str, Any]:
        """Return everything that affects the trained adapter, for the hash that rejects stale checkpoints."""
        ...

    def arguments(self) -> dict[str, Any]:
        """Return the environment's part of `GRPOConfig`: `max_completion_length`, ..."""
        ...

    @property
    def longest_completion(self) -> int:
        """Tokens of the longest completion, with all of its turns and what is between them."""
        ...

    def trainer(self, tokenizer: Any, ends: list[int], **arguments: Any) -> Trainer:
        """Return the trainer; `ends` are the token ids that end a completion."""
        ...


def train_grpo(job: TrainingJob, environment: Environment) -> bool:
    """Write the adapter and `training.jsonl` to the folder `job.output`.

    Return False if training collapsed and was rolled back. Then call it again in a new process, because vLLM does not
    release GPU memory.
    """
    training = job.training
    _check_backends(job)
    _check_size(environment, training)
    check_trained(job.model, job.lora, job.start)
    torch.set_num_threads(job.model.n_threads)
    identity = job.identity(environment)
    processes.by_first(lambda: _claim(job, identity))
    trackers.set_variables(job.tensorboard, identity)
    journal = Journal(job.work, job.guard, training.learning_rate, training.save_steps, training.steps_per_batch)
    with _sampling_server(job) as address:
        of_run = {**address, **trackers.arguments(job.output, identity)}
        trainer, found = _train(job, environment, journal, of_run)
    if found and journal.may_roll_back:
        if processes.is_first():
            journal.roll_back(found, trainer.state.log_history)
        return False
    if processes.is_first():
        _write(job, trainer, journal, found)
    return True


def _claim(job: TrainingJob, identity: str) -> None:
    """Make the folder of checkpoints this training's own, with those of the part before it."""
    checkpoints.claim(job.work, identity)
    if job.before:
        checkpoints.take_over(job.before / PARTS, job.work, job.until_step)


def _write(job: TrainingJob, trainer: Trainer, journal: Journal, found: Symptom | None) -> None:
    """Write the adapter, its log and measurements; remove the checkpoints."""
    history = journal.history(trainer.state.log_history, found)
    choice = _end_of_part(job, trainer, found) or journal.choose(history, found, trainer.state.global_step)
    _take_weights(trainer.model, job, choice.step)

    def add(folder: Path) -> None:
        write_lines(folder / "training.jsonl", [*history, choice])
        if job.until_step:
            shutil.copytree(job.work, folder / PARTS)

    write_adapter(trainer.model, job.output, add)
    if job.measurements:
        write_lines(job.measurements, _measured(trainer))
    checkpoints.remove(job.work)


def _end_of_part(job: TrainingJob, trainer: Trainer, found: Symptom | None) -> Choice | None:
    """Return the adapter of a part that was not ended by a collapse; None for a whole run."""
    if not job.until_step or (found and job.guard.action != "none"):
        return None
    if trainer.state.global_step < job.until_step:
        raise InputError(
            f"training ended after step {trainer.state.global_step}, but the adapter of step {job.until_step} is to be "
            "kept: remove that step from training.keep_steps, or train for longer"
        )
    return Choice(job.until_step, checkpoints.KEPT)


def _check_size(environment: Environment, training: PolicyGradient) -> None:
    """Raise if there are fewer prompts than a batch needs: TRL drops incomplete ones, so it would train for none."""
    n = training.prompts_per_step * training.steps_per_generation
    if isinstance(environment.data.train, Dataset) and len(environment.data.train) < n:
        raise InputError(
            f"there are {len(environment.data.train)} prompts to train on, but a batch needs prompts_per_step x "
            f"steps_per_generation = {n}; lower them, or add tasks or questions"
        )


def _check_backends(job: TrainingJob) -> None:
    training = job.training
    try:
        check_weights(job.lora, training)
    except ValueError as error:
        raise InputError(str(error)) from None
    packages = {"vllm-colocate": "vllm", "vllm-server": "vllm"}
    wanted = {packages[training.sampler]: "sampler"} if training.sampler in packages else {}
    wanted |= dict.fromkeys(training.report_to, "report_to")
    for package, key in wanted.items():
        if find_spec(package) is None:
            raise InputError(f"{key}: the package {package} is not installed here; install it (docs/training.md)")
    if training.sampler == "transformers":
        return
    check_mig()
    if not torch.cuda.is_available():
        logger.warning("sampler %s: needs a GPU, and this machine has none", training.sampler)


def _sampling_server(job: TrainingJob) -> AbstractContextManager[Mapping[str, Any]]:
    if not job.training.n_server_gpus:
        return nullcontext({})
    return sampling_server.running(job.model, job.training, job.sampler_gpus, job.tensorboard.with_suffix(".server"))


def _train(
    job: TrainingJob, environment: Environment, journal: Journal, of_run: Mapping[str, Any]
) -> tuple[Trainer, Symptom | None]:
    """Train from the newest checkpoint, if there is one, to the end or to a collapse.

    `of_run` are keywords of `trl.GRPOConfig`: where its server answers, and its name in trackers.
    """
    trainer = _trainer(job, environment, journal.rate, of_run)
    newest = processes.by_first(lambda: checkpoints.newest(job.work, job.until_step))
    if newest:
        logger.info("%s: training resumes from this checkpoint", newest)
    elif processes.is_first():
        for curves in job.tensorboard.glob("events.out.tfevents.*"):  # of another run
            curves.unlink()
    if not newest and environment.data.heldout:  # at every start from step 0, because it advances the random state
        trackers.begin_trackio(trainer)
        metrics = trainer.evaluate()
        processes.by_first(lambda: journal.note_start(metrics))
    watcher = _CollapseWatcher(job)
    trainer.add_callback(watcher)
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
            if not step or job.guard.action == "none" or processes.count() > 1:
                raise
            watcher.found = Symptom(step, "loss", math.nan, 0.0)
    return trainer, watcher.found


def _trainer(job: TrainingJob, environment: Environment, rate: float, of_run: Mapping[str, Any]) -> Trainer:
    if job.training.opens_vllm:
        from arc_refinery.training import colocated

        colocated.open_with(vllm_colocated(job.model.dtype, supported_rank(job.lora.lora_r)))
    tokenizer = load_tokenizer(job.model.path)
    network = _network(job)
    trainer = environment.trainer(
        tokenizer,
        end_tokens(job.model.path, tokenizer),
        **network,
        processing_class=tokenizer,
        args=_arguments(job, environment, rate, of_run),
        train_dataset=environment.data.train,
        eval_dataset=environment.data.heldout,
        callbacks=[_LearningRate(rate), OneLineProgress({"reward": "reward", "eval_reward": "held-out reward"})],
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


def _arguments(job: TrainingJob, environment: Environment, rate: float, of_run: Mapping[str, Any]) -> GRPOConfig:
    if job.training.sampler == "vllm-colocate":
        # TRL takes port 29500 if it looks free: of two runs starting on one machine, the second would crash.
        (port,) = sampling_server.free_ports(1)
        os.environ.setdefault("MASTER_PORT", str(port))
    settings = grpo_settings(
        job.model,
        job.training,
        environment.arguments(),
        rate,
        job.seed,
        job.work,
        on_gpu=torch.cuda.is_available(),
        has_heldout=environment.data.heldout is not None,
    )
    return GRPOConfig(**{**settings, **of_run})


def _measured(trainer: Trainer) -> list[Line]:
    return [
        {"step": entry["step"]}
        | {name.removeprefix(MEASURED): value for name, value in entry.items() if name.startswith(MEASURED)}
        for entry in trainer.state.log_history
        if "reward" in entry
    ]


def _take_weights(network: Any, job: TrainingJob, step: int) -> None:
    folder = checkpoints.steps_of(job.work)[step] if step else job.start
    if folder is not None:
        read_weights(network, folder)
        return
    with torch.no_grad():
        for name, weights in network.named_parameters():
            if "lora_B" in name:
                weights.zero_()  # as in a fresh adapter, which changes nothing


class _LearningRate(TrainerCallback):
    """Sets the learning rate of a resumed run: its checkpoint contains the rate from before a rollback."""

    def __init__(self, rate: float) -> None:
        self.rate = rate

    def on_train_begin(
        self, args: Any, state: Any, control: Any, optimizer: Any = None, lr_scheduler: Any = None, **_: Any
    ) -> None:
        lr_scheduler.base_lrs = [self.rate for _ in lr_scheduler.base_lrs]
        for group, factor in zip(optimizer.param_groups, lr_scheduler.lr_lambdas, strict=True):
            group["initial_lr"] = self.rate
            group["lr"] = self.rate * factor(lr_scheduler.last_epoch)
        lr_scheduler._last_lr = [group["lr"] for group in optimizer.param_groups]  # what the next step logs


def _steps(state: Any) -> list[dict[str, Any]]:
    return [entry for entry in state.log_history if "reward" in entry]


class _CollapseWatcher(TrainerCallback):
    """Stops a run that collapses or whose part is over, prunes checkpoints, and evaluates the last step too."""

    def __init__(self, job: TrainingJob) -> None:
        self.job = job
        self.found: Symptom | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self.job.until_step and self.job.until_step > state.max_steps:
            raise InputError(
                f"--until-step is {self.job.until_step}, but the training ends after step {state.max_steps}; lower it, "
                "or remove that step from training.keep_steps"
            )
        if self.job.guard.action == "none":  # else no training continues after a collapse
            self.found = processes.of_first(first_symptom(_steps(state), self.job.guard))

    def on_log(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        steps = _steps(state)
        if self.found is None and steps and steps[-1]["step"] == state.global_step:
            wrong = not_finite(model, is_trained=True)  # a step can break the weights, though its own loss was finite
            if wrong and self.job.guard.action == "none":
                raise InputError(
                    f"step {state.global_step}: {len(wrong)} of the adapter's matrices hold values that are not finite "
                    f"numbers, such as {wrong[0]}, and guard.action is none; lower learning_rate or max_grad_norm"
                )
            found = Symptom(state.global_step, "loss", math.nan, 0.0) if wrong else symptom(steps, self.job.guard)
            self.found = processes.of_first(found)
            ended = self.found is not None and self.job.guard.action != "none"
            control.should_training_stop |= ended
            control.should_save &= not ended  # a run resumed from there would continue

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        control.should_training_stop |= state.global_step == self.job.until_step
        control.should_evaluate |= state.global_step == state.max_steps and self.job.training.n_heldout > 0

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if not processes.is_first():
            return
        rewards = {entry["step"]: entry["eval_reward"] for entry in state.log_history if "eval_reward" in entry}
        settings = self.job.training
        window = self.job.guard.window + settings.steps_per_batch - 1
        checkpoints.prune(self.job.work, rewards, settings.keep_best, settings.save_steps, state.global_step, window)
