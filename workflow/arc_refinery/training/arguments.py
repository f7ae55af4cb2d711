"""What SFT and GRPO tell TRL alike."""

from pathlib import Path
from typing import Any

import torch

from arc_refinery.config import Network, Optimizer


def common_arguments(model: Network, training: Optimizer, seed: int, work: Path) -> dict[str, Any]:
    has_gpu = torch.cuda.is_available()
    return {
        "output_dir": str(work),
        "seed": seed,
        "learning_rate": training.learning_rate,
        "lr_scheduler_type": training.lr_scheduler_type,
        "warmup_steps": training.warmup_ratio,  # below 1, transformers reads it as a share
        "max_grad_norm": training.max_grad_norm,
        "optim": "adamw_torch_fused",  # the defaults, which Unsloth would replace
        "weight_decay": 0.0,
        "num_train_epochs": training.epochs,
        "max_steps": training.max_steps,
        "save_steps": training.save_steps,
        "logging_steps": 1,
        "disable_tqdm": True,
        "use_cpu": not has_gpu,
        "bf16": model.dtype == "bfloat16",
        "fp16": model.dtype == "float16",
        "gradient_checkpointing": has_gpu,
    }
