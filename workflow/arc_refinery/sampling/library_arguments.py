"""Keyword arguments that this project passes to vLLM, TRL, peft, bitsandbytes and Unsloth.

They are in one module so that `make check-gpu-envs` can check all of them against the installed libraries
(tests/unit/test_library_arguments.py). All functions are pure; heavy imports happen only when one is called.
"""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from arc_refinery.config import Imitation, Lengths, Lora, ModelConfig, Optimizer, OptimizerName, PolicyGradient
from arc_refinery.config.trl_keywords import keywords_of
from arc_refinery.errors import InputError
from arc_refinery.sampling.backends import Decoding

SEEDS = 2**31
OPTIMIZERS: dict[OptimizerName, str] = {
    "adamw": "adamw_torch_fused",
    "adamw_8bit": "adamw_8bit",
}  # our names and transformers'


# vLLM


def vllm_engine(model: ModelConfig, lora_rank: int | None, seed: int, on_gpu: bool) -> dict[str, Any]:
    """Keywords of `vllm.LLM`; `lora_rank` is a rank that vLLM supports, or None without an adapter."""
    lora = {} if lora_rank is None else {"enable_lora": True, "max_lora_rank": lora_rank}
    return {
        "model": model.path,
        "dtype": model.dtype,
        "max_model_len": model.window,
        "tensor_parallel_size": model.tensor_parallel_size,
        "gpu_memory_utilization": model.gpu_memory_utilization,
        "enable_prefix_caching": True,
        "logprobs_mode": "raw_logprobs",
        "enforce_eager": not on_gpu,
        "enable_chunked_prefill": on_gpu,  # vLLM's CPU build cannot rewind a prompt's random generator
        "seed": seed,
        **lora,
        **_kv_cache(model.kv_cache_gb),
    }


def vllm_colocated(dtype: str, lora_rank: int, kv_cache_gb: float | None) -> dict[str, Any]:
    """Keywords of `vllm.LLM` in addition to those with which TRL opens it in the trainer's process."""
    return {"dtype": dtype, "enable_lora": True, "max_lora_rank": lora_rank, **_kv_cache(kv_cache_gb)}


def _kv_cache(size: float | None) -> dict[str, int]:
    return {} if size is None else {"kv_cache_memory_bytes": int(size * 2**30)}


def vllm_attempt(decoding: Decoding, n: int, seed: int) -> dict[str, Any]:
    """Keywords of `vllm.SamplingParams`, for `n` attempts on one prompt."""
    from vllm.sampling_params import RequestOutputKind

    return {
        "n": n,
        "temperature": decoding.temperature,
        "top_p": decoding.top_p,
        "max_tokens": decoding.max_output_tokens,
        "seed": seed % SEEDS,
        "logprobs": 0,  # the drawn token's alone
        "detokenize": False,
        "output_kind": RequestOutputKind.FINAL_ONLY,
    }


def vllm_turn(decoding: Decoding, ends: Iterable[int], seed: int) -> dict[str, Any]:
    """Keywords of `vllm.SamplingParams`, for one turn of an episode; `ends` are the tokens that end it."""
    return {
        "temperature": decoding.temperature,
        "top_p": decoding.top_p,
        "top_k": decoding.top_k,
        "max_tokens": decoding.max_output_tokens,
        "stop_token_ids": sorted(ends),
        "seed": seed % SEEDS,
        "detokenize": False,
    }


# peft and bitsandbytes


def lora_adapter(lora: Lora) -> dict[str, Any]:
    """Keywords of `peft.LoraConfig`."""
    return {
        "r": lora.lora_r,
        "lora_alpha": lora.lora_alpha,
        "use_rslora": True,
        "target_modules": list(lora.target_modules),
        "task_type": "CAUSAL_LM",
    }


def four_bits(dtype: str) -> dict[str, Any]:
    """Keywords of `transformers.BitsAndBytesConfig`, as in QLoRA (Dettmers et al. 2023).

    The defaults of bitsandbytes are fp4 and computation in float32.
    """
    return {
        "load_in_4bit": True,
        "bnb_4bit_quant_type": "nf4",
        "bnb_4bit_use_double_quant": True,
        "bnb_4bit_compute_dtype": dtype,
    }


# TRL


def sft_settings(model: ModelConfig, training: Imitation, seed: int, work: Path, on_gpu: bool) -> dict[str, Any]:
    """Keywords of `trl.SFTConfig`.

    Nothing is truncated here, because rows that are too long were left out when they were made.
    """
    return {
        **_optimizer(model, training, "adamw", seed, work, on_gpu),
        "completion_only_loss": True,
        "max_length": None,
        "per_device_train_batch_size": training.rows_per_step // training.gradient_accumulation_steps,
        "save_total_limit": 2,
        "report_to": "none",
    }


def grpo_settings(
    model: ModelConfig,
    training: PolicyGradient,
    rollout_settings: dict[str, Any],
    seed: int,
    work: Path,
    on_gpu: bool,
    has_heldout: bool,
) -> dict[str, Any]:
    """Keywords of `trl.GRPOConfig`.

    `rollout_settings` are `refining_rollouts` or `tool_rollouts`.
    """
    completions = training.num_generations * training.prompts_per_step
    n_processes = training.n_training_processes
    passes = training.gradient_accumulation_steps // n_processes
    settings = {
        **_optimizer(model, training, training.optimizer, seed, work, on_gpu),
        "steps_per_generation": passes * training.steps_per_generation,  # TRL counts passes
        "per_device_train_batch_size": completions // training.gradient_accumulation_steps,
        "gradient_accumulation_steps": passes,
        "report_to": list(training.report_to),
        **rollout_settings,
        **training.trl,
    }
    if training.sampler != "transformers":
        settings |= _trl_with_vllm(model, training)
    if has_heldout:
        settings |= {
            "eval_strategy": "steps",
            "eval_steps": training.save_steps,
            "per_device_eval_batch_size": completions // n_processes,
        }
    if n_processes > 1:
        settings["ddp_find_unused_parameters"] = False  # each pass uses the whole adapter
    return settings


def refining_rollouts(lengths: Lengths) -> dict[str, Any]:
    """Keywords of `trl.GRPOConfig`."""
    return {"max_completion_length": lengths.max_completion_length}


def tool_rollouts(
    training: PolicyGradient, max_turn_tokens: int, enable_thinking: bool, stop_id: int
) -> dict[str, Any]:
    """Keywords of `trl.GRPOConfig`; `stop_id` is the token that ends a turn."""
    at_stop = {"stop_token_ids": [stop_id]}  # transformers stops at the tokenizer's end token
    return {
        "max_completion_length": max_turn_tokens,
        "chat_template_kwargs": {"enable_thinking": enable_thinking},
        "generation_kwargs": {} if training.sampler == "transformers" else at_stop,
    }


def _optimizer(
    model: ModelConfig, training: Optimizer, name: OptimizerName, seed: int, work: Path, on_gpu: bool
) -> dict[str, Any]:
    """Settings shared by SFT and GRPO."""
    if name == "adamw_8bit" and not on_gpu:
        raise InputError("optimizer `adamw_8bit`: bitsandbytes needs a GPU, but there is none; set it to `adamw`")
    return {
        **keywords_of(training),
        "output_dir": str(work),
        "seed": seed,
        "learning_rate": training.learning_rate,
        "warmup_steps": training.warmup_ratio,  # transformers reads values below 1 as a share
        "optim": OPTIMIZERS[name],  # explicit, because Unsloth would replace the defaults
        "num_train_epochs": training.epochs,
        "logging_steps": 1,
        "disable_tqdm": True,
        "use_cpu": not on_gpu,
        "bf16": model.dtype == "bfloat16",
        "fp16": model.dtype == "float16",
        "gradient_checkpointing": on_gpu,
    }


def _trl_with_vllm(model: ModelConfig, training: PolicyGradient) -> dict[str, Any]:
    return {
        "use_vllm": True,
        "vllm_mode": training.sampler.removeprefix("vllm-"),
        "vllm_gpu_memory_utilization": training.gpu_memory_utilization,
        "vllm_enable_sleep_mode": training.sleep_mode,
        "vllm_max_model_length": model.window,
        "vllm_importance_sampling_correction": training.importance_sampling_correction,
        "vllm_importance_sampling_mode": "token_truncate",
        "vllm_importance_sampling_clip_max": 2.0,
    }


# accelerate


def accelerate_launch(n_processes: int, command: Sequence[str]) -> list[str]:
    """The command that runs `command` in several processes on this machine, with GPUs or without.

    `--multi_gpu` makes accelerate start them with torchrun, which needs no GPU. Flags take precedence over a
    configuration that users may have (`accelerate config`).
    """
    flags = {
        "num_processes": n_processes,
        "num_machines": 1,
        "machine_rank": 0,
        "main_process_ip": "127.0.0.1",
        "main_process_port": 0,  # any free one
        "gpu_ids": "all",  # that are visible
        "mixed_precision": "no",  # the trainer's arguments set it
        "dynamo_backend": "no",
    }
    words = [word for name, value in flags.items() for word in (f"--{name}", str(value))]
    return [sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", *words, "--no_python", *command]


# Unsloth


def unsloth_model(
    model: ModelConfig, lora: Lora, training: PolicyGradient, start: Path | None, seed: int, on_gpu: bool
) -> dict[str, Any]:
    """Keywords of `unsloth.FastLanguageModel.from_pretrained`; `start` is the adapter to continue from."""
    import torch

    return {
        "model_name": model.path if start is None else str(start),
        "max_seq_length": model.window,
        "dtype": getattr(torch, model.dtype),
        "load_in_4bit": lora.load_in_4bit,
        "fast_inference": training.sampler == "vllm-colocate",
        "gpu_memory_utilization": training.gpu_memory_utilization,
        "max_lora_rank": max(8, 1 << (lora.lora_r - 1).bit_length()),  # vLLM supports 8, 16, 32, ...
        "use_gradient_checkpointing": _unsloth_checkpointing(on_gpu),
        "random_state": seed,
    }


def unsloth_adapter(lora: Lora, seed: int, on_gpu: bool) -> dict[str, Any]:
    """Keywords of `unsloth.FastLanguageModel.get_peft_model`."""
    return {
        "r": lora.lora_r,
        "lora_alpha": lora.lora_alpha,
        "use_rslora": True,
        "target_modules": list(lora.target_modules),
        "use_gradient_checkpointing": _unsloth_checkpointing(on_gpu),
        "random_state": seed,
    }


def _unsloth_checkpointing(on_gpu: bool) -> str | bool:
    return "unsloth" if on_gpu else False
