"""LoRA adapters with weights that change what a model writes."""

from pathlib import Path

MATRICES = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def make_adapter(
    folder: Path, model_path: str, seed: int = 0, rank: int = 8, lora_bias: bool = False, **changed: int
) -> Path:
    """Write an rsLoRA adapter of random weights, as peft saves it; `changed` settings make one that does not fit."""
    # here, as modules that use this one are collected without torch
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoConfig, AutoModelForCausalLM

    network = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(model_path, **changed))
    settings = LoraConfig(
        r=rank, lora_alpha=16, use_rslora=True, target_modules=MATRICES, task_type="CAUSAL_LM",
        base_model_name_or_path=model_path, lora_bias=lora_bias,
    )  # fmt: skip
    adapted = get_peft_model(network, settings)
    generator = torch.Generator().manual_seed(seed)
    for name, weights in adapted.named_parameters():
        if "lora_" in name:
            weights.data = torch.randn(weights.shape, generator=generator) * 0.1
    adapted.save_pretrained(folder)
    return folder
