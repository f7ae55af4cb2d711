"""Time and memory of GRPO with each prompt read once, in updates and in sampling, and of SFT with rows side by side.

    python benchmarks/shared_prefix.py                            sizes of the demo's second turns; two minutes
    python benchmarks/shared_prefix.py --model workflow/models/tiny-tools

Updates are a forward and a backward pass over random tokens by random weights; sampling draws random ones. On one
thread of a CPU, or on a GPU in bfloat16. Both ways run in turns in this process. *Kept* is what autograd keeps for the
backward pass: each tensor once, without weights.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig
from trl.trainer.utils import add_fused_lm_head

from arc_refinery.models.shared_attention import enable_layouts, side_by_side
from arc_refinery.sampling.rows import sample_rows
from arc_refinery.training.shared_prefix import log_probs

ON_GPU = torch.cuda.is_available()
DEVICE = "cuda" if ON_GPU else "cpu"


def network(config: PretrainedConfig) -> Any:
    dtype = torch.bfloat16 if ON_GPU else torch.float32
    model = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation="sdpa").to(DEVICE)
    add_fused_lm_head(model, outputs=("log_probs", "entropy"))
    return model


def batch(options: argparse.Namespace, n_prompts: int, n_completions: int, vocabulary: int) -> tuple[Tensor, Tensor]:
    """Ids and mask, (prompts x completions, tokens); lengths vary between half and all of the given ones."""

    def padded(length: int, fill_left: bool) -> tuple[Tensor, Tensor]:
        n = int(torch.randint(length // 2, length + 1, ()))
        tokens, gap = torch.randint(vocabulary, (n,)), torch.zeros(length - n, dtype=torch.long)
        parts = [(gap, gap), (tokens, torch.ones_like(tokens))]
        ids, mask = zip(*(parts if fill_left else reversed(parts)), strict=True)
        return torch.cat(ids), torch.cat(mask)

    rows = []
    for _ in range(n_prompts):
        prompt = padded(options.prompt_tokens, fill_left=True)
        for _ in range(n_completions):
            completion = padded(options.completion_tokens, fill_left=False)
            rows.append([torch.cat(both) for both in zip(prompt, completion, strict=True)])
    ids, mask = (torch.stack(parts).to(DEVICE) for parts in zip(*rows, strict=True))
    return ids, mask


def labels_of(ids: Tensor, mask: Tensor, n_completion: int) -> Tensor:
    labels = ids.masked_fill(mask == 0, -100)
    labels[:, :-n_completion] = -100
    return labels


def separately(model: Any, ids: Tensor, mask: Tensor, n_completion: int) -> tuple[Tensor, Tensor]:
    """Score as TRL does."""
    labels = labels_of(ids, mask, n_completion)
    scored = model(input_ids=ids, attention_mask=mask, labels=labels, fused_lm_head=True)
    return scored.log_probs[:, -n_completion:], scored.entropy[:, -n_completion:]


def unpadded(model: Any, ids: Tensor, mask: Tensor, n_completion: int) -> tuple[Tensor, Tensor]:
    """Score as SFT does."""
    is_token = mask == 1
    labels = labels_of(ids, mask, n_completion)[is_token].unsqueeze(0)
    arguments = side_by_side(ids[is_token].unsqueeze(0), mask.sum(1).tolist())
    scored = model(**arguments, labels=labels, fused_lm_head=True)
    return scored.log_probs, scored.entropy


def update(score: Callable[[], tuple[Tensor, Tensor]], model: Any) -> tuple[float, float]:
    """Return the seconds of a forward and backward pass, and the megabytes kept between them."""
    weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    saved: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    model.zero_grad()
    started = now()
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        scores = score()[0]
    megabytes = sum(saved.values()) / 1e6
    scores.sum().backward()
    return now() - started, megabytes


def now() -> float:
    if ON_GPU:
        torch.cuda.synchronize()
    return time.perf_counter()


def sampling(model: Any, ids: Tensor, mask: Tensor, n_tokens: int, **loop: Any) -> tuple[float, float]:
    """Return the seconds in which each prompt gets at most so many tokens; nothing is kept.

    Each token is the end with a probability of one in eight, so completions have about eight tokens, as in the demo.
    """
    prompts = {"input_ids": ids[:, :-n_tokens], "attention_mask": mask[:, :-n_tokens]}
    draws = {"do_sample": True, "temperature": 1e6, "top_k": 0, "max_new_tokens": n_tokens}
    ends = {"eos_token_id": list(range(model.config.vocab_size // 8)), "pad_token_id": 0}
    torch.manual_seed(0)
    started = now()
    with torch.inference_mode():
        model.generate(**prompts, **draws, **ends, **loop)
    return now() - started, 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="workflow/models/tiny", help="folder of the model's config.json")
    parser.add_argument("--prompts", type=int, default=4, help="prompts of a step")
    parser.add_argument("--completions", type=int, default=8, help="completions of each prompt")
    parser.add_argument("--rows", type=int, default=8, help="rows of a step of SFT")
    parser.add_argument("--prompt-tokens", type=int, default=600, help="longest prompt")
    parser.add_argument("--completion-tokens", type=int, default=48, help="longest completion")
    parser.add_argument("--repeats", type=int, default=7, help="times that each way runs")
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    config = AutoConfig.from_pretrained(options.model)
    separate, shared = network(config), network(config)
    enable_layouts(shared)
    torch.backends.cuda.enable_cudnn_sdp(False)  # as in training
    n_completion, vocabulary = options.completion_tokens, separate.config.vocab_size
    group = *batch(options, options.prompts, options.completions, vocabulary), n_completion
    rows = *batch(options, options.rows, 1, vocabulary), n_completion
    compare(
        f"GRPO, {options.prompts} prompts x {options.completions} completions, update",
        {
            "each completion with its prompt": lambda: update(lambda: separately(separate, *group), separate),
            "each prompt once": lambda: update(lambda: log_probs(shared, *group), shared),
        },
        options.repeats,
    )
    compare(
        "the same, sampling",
        {
            "each completion with its prompt": lambda: sampling(separate, *group),
            "each prompt once": lambda: sampling(shared, *group, custom_generate=sample_rows),
        },
        options.repeats,
    )
    compare(
        f"SFT, {options.rows} rows",
        {
            "padded": lambda: update(lambda: separately(separate, *rows), separate),
            "side by side": lambda: update(lambda: unpadded(shared, *rows), shared),
        },
        options.repeats,
    )


def compare(title: str, ways: dict[str, Callable[[], tuple[float, float]]], n_repeats: int) -> None:
    measured: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for _ in range(n_repeats):
        for name, measure in ways.items():
            measured[name].append(measure())
    seconds = {name: statistics.median(both[0] for both in many) for name, many in measured.items()}
    megabytes = {name: many[0][1] for name, many in measured.items()}
    print(f"| {title} | seconds | kept, MB |\n|---|--:|--:|")
    for name in ways:
        print(f"| {name} | {seconds[name]:.2f} | {megabytes[name]:.0f} |")
    first, last = ways
    less = f"{megabytes[first] / megabytes[last]:.1f}" if megabytes[last] else "–"
    print(f"| ratio | {seconds[first] / seconds[last]:.1f} | {less} |\n")


if __name__ == "__main__":
    main()
