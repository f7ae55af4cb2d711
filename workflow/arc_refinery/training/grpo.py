"""GRPO (Shao et al. 2024) with a LoRA adapter, by TRL; an interrupted training goes on from its last checkpoint.

Checkpoints lie outside the rule's outputs, because Snakemake deletes those of failed jobs.
"""

import json
import logging
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, PrinterCallback, TrainerCallback
from transformers.trainer_utils import get_last_checkpoint
from trl import GRPOConfig, GRPOTrainer

from arc_refinery import records
from arc_refinery.config import CHANGE_NO_ADAPTER, Grpo, Model, Sandbox
from arc_refinery.errors import InputError
from arc_refinery.grids import fingerprint
from arc_refinery.prompts import split_prefix
from arc_refinery.records import Prompt
from arc_refinery.tokenizers import begin_answers, load_tokenizer
from arc_refinery.training.rewards import ExecutionReward

logger = logging.getLogger(__name__)


class TrainingError(InputError):
    """Training cannot start; the message says why."""


def train(
    prompts: Sequence[Prompt], model: Model, training: Grpo, sandbox: Sandbox, seed: int, output: Path, work: Path
) -> None:
    """Write the adapter and `training.jsonl` to the folder `output`; checkpoints live in the folder `work`."""
    if not prompts:
        raise TrainingError(
            "there are no training prompts. Either the files hold none (of second turns: no attempt was incorrect with "
            "valid outputs; sample more tasks), or all are too long for max_seq_length less max_completion_length"
        )
    torch.set_num_threads(model.n_threads)
    _drop_foreign_checkpoints(work, _identity(prompts, model, training, sandbox, seed))
    tokenizer = load_tokenizer(model.path)
    begin_answers(tokenizer, split_prefix(prompts[0].messages)[1])  # one template made all prompts
    with sandbox.executor(training.n_jobs) as executor:
        trainer = GRPOTrainer(
            model=_load(model, training),
            processing_class=tokenizer,
            args=_arguments(model, training, seed, work),
            train_dataset=dataset(prompts),
            reward_funcs=ExecutionReward(training.reward_name, executor),
            peft_config=LoraConfig(
                r=training.lora_r,
                lora_alpha=training.lora_alpha,
                use_rslora=True,
                target_modules=list(training.target_modules),
                task_type="CAUSAL_LM",
            ),
            callbacks=[_OneLineProgress()],
        )
        trainer.remove_callback(PrinterCallback)
        last = get_last_checkpoint(str(work))
        if last:
            logger.info("%s: training goes on from this checkpoint", last)
        trainer.train(resume_from_checkpoint=last)
    _write_results(trainer, output)
    shutil.rmtree(work)


def dataset(prompts: Sequence[Prompt]) -> Dataset:
    """Rows as TRL wants them: what is asked, what the answer begins with, and the pairs to execute its program on."""
    return Dataset.from_list(
        [
            {
                "prompt": asked,
                "assistant_prefix": prefix,
                "pairs": [
                    {"input": pair.input.tolist(), "output": pair.output.tolist()}
                    for pair in prompt.train + prompt.test
                    if pair.output.size  # of Kaggle's tests the output may be unknown
                ],
            }
            for prompt in prompts
            for asked, prefix in [split_prefix(prompt.messages)]
        ]
    )


def _load(model: Model, training: Grpo) -> Any:
    if training.load_in_4bit:
        from transformers import BitsAndBytesConfig

        return AutoModelForCausalLM.from_pretrained(
            model.path, dtype=getattr(torch, model.dtype), quantization_config=BitsAndBytesConfig(load_in_4bit=True)
        )
    return AutoModelForCausalLM.from_pretrained(model.path, dtype=getattr(torch, model.dtype))


def _arguments(model: Model, training: Grpo, seed: int, work: Path) -> GRPOConfig:
    completions = training.num_generations * training.prompts_per_step
    return GRPOConfig(
        output_dir=str(work),
        seed=seed,
        learning_rate=training.learning_rate,
        lr_scheduler_type=training.lr_scheduler_type,
        warmup_steps=training.warmup_ratio,  # below 1, transformers reads it as a share
        beta=training.beta,
        max_grad_norm=training.max_grad_norm,
        loss_type=training.loss_type,
        scale_rewards=training.scale_rewards,
        mask_truncated_completions=training.mask_truncated_completions,
        repetition_penalty=training.repetition_penalty,
        temperature=training.temperature,
        top_p=training.top_p,
        num_generations=training.num_generations,
        per_device_train_batch_size=completions // training.gradient_accumulation_steps,
        gradient_accumulation_steps=training.gradient_accumulation_steps,
        num_train_epochs=training.epochs,
        max_steps=training.max_steps,
        max_completion_length=training.max_completion_length,
        save_steps=training.save_steps,
        save_total_limit=2,
        logging_steps=1,
        report_to="none",
        disable_tqdm=True,
        use_cpu=not torch.cuda.is_available(),
        bf16=model.dtype == "bfloat16",
        gradient_checkpointing=torch.cuda.is_available(),
        use_vllm=training.use_vllm,
        vllm_mode="colocate",
        vllm_gpu_memory_utilization=training.gpu_memory_utilization,
        vllm_max_model_length=training.max_seq_length,
    )


def _identity(prompts: Sequence[Prompt], model: Model, training: Grpo, sandbox: Sandbox, seed: int) -> str:
    """A hash of everything that decides the adapter."""
    return records.settings_hash(
        {
            "model": model.model_dump(),
            "training": training.model_dump(exclude=CHANGE_NO_ADAPTER),
            "sandbox": sandbox.model_dump(),
            "seed": seed,
            "prompts": [(prompt.text, _fingerprint(prompt)) for prompt in prompts],
        }
    )


def _fingerprint(prompt: Prompt) -> str:
    return fingerprint([grid for pair in prompt.train + prompt.test for grid in (pair.input, pair.output)])


def _drop_foreign_checkpoints(work: Path, identity: str) -> None:
    """Forget checkpoints that were made with other settings or prompts, and note ours."""
    note = work / "settings.txt"
    if work.exists() and (not note.exists() or note.read_text() != identity):
        logger.info("%s: holds checkpoints of another training; they are removed", work)
        shutil.rmtree(work)
    work.mkdir(parents=True, exist_ok=True)
    note.write_text(identity)


def _write_results(trainer: GRPOTrainer, output: Path) -> None:
    temporary = output.with_name(f".{output.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    trainer.model.save_pretrained(temporary)
    (temporary / "README.md").unlink(missing_ok=True)  # peft's empty model card
    adapter = json.loads((temporary / "adapter_config.json").read_text())
    adapter["target_modules"].sort()  # peft writes a set in the order of this process's hashes
    (temporary / "adapter_config.json").write_text(json.dumps(adapter, indent=2, sort_keys=True) + "\n")
    with (temporary / "training.jsonl").open("w") as file:
        for entry in trainer.state.log_history:
            if "reward" in entry:  # a step, not the summary, which covers only what ran since the last interruption
                figures = {name: value for name, value in entry.items() if name != "step_time"}
                file.write(json.dumps(figures, sort_keys=True) + "\n")
    shutil.rmtree(output, ignore_errors=True)
    os.replace(temporary, output)


class _OneLineProgress(TrainerCallback):
    """The reward of each step in the log file, where a progress bar's redrawing would not be readable."""

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **_: Any) -> None:
        if logs and "reward" in logs:
            logger.info("step %d of %d: reward %.3f", state.global_step, state.max_steps, logs["reward"])
