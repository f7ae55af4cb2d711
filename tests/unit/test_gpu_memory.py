"""The count of GPU memory, against hand arithmetic, the tensors of a pass, and every config that asks for a GPU."""

import json
import re
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import yaml
from checkout import ROOT, TINY
from messages import Wording

from arc_refinery.cli.doctor import Memory
from arc_refinery.config import Dtype, Experiment, load_experiment, validate_experiment
from arc_refinery.errors import InputError, ModelError
from arc_refinery.models.shape import PUBLISHED_SHAPES, Shape, shape_of
from arc_refinery.sampling import gpu_memory
from arc_refinery.sampling.gpu_memory import (
    GIB,
    WIDTH,
    Items,
    counts,
    forward_pass,
    memory_page,
    memory_warnings,
    sampled_tokens,
    training_pass,
)

LLAMA_8B = PUBLISHED_SHAPES["barc0/Llama-3.1-ARC-Potpourri-Induction-8B"]
QWEN_2B = PUBLISHED_SHAPES["Qwen/Qwen3-1.7B"]
ALL = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
CONFIGS = {path.stem: path for path in (ROOT / "config").glob("*.yaml")}
FULL_SIZE = [name for name, path in CONFIGS.items() if load_experiment(path).resources.sample.gpu_mem_mb]


def content(name: str) -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load(CONFIGS[name].read_text())
    return read


def total(items: Items) -> float:
    return sum(items.values()) / GIB


def test_sizes_of_the_8b_model_by_hand():
    per_layer = 2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336
    assert LLAMA_8B.n_parameters == 32 * (per_layer + 2 * 4096) + 4096 + 2 * 128256 * 4096 == 8_030_261_248
    assert LLAMA_8B.kv_bytes_per_token(2) == 128 * 1024
    one_layer = 2 * (4096 + 4096) + 2 * (4096 + 1024) + 3 * (4096 + 14336)
    assert LLAMA_8B.n_in_adapter(1, ALL) == 32 * one_layer == 2_621_440
    assert LLAMA_8B.n_in_adapter(8, ("q_proj",)) == 32 * 8 * 8192


def test_a_checkpointed_pass_of_the_8b_model_by_hand():
    held = training_pass(LLAMA_8B, 2, n_rows=4, length=9700, n_scored=1024)
    assert held["layer inputs that gradient checkpointing keeps"] == 32 * 4 * 9700 * 4096 * 2
    assert held["attention mask, because rows are padded"] == 4 * 9700 * 9700 * 3  # one byte, and two as a bias


# Counted with fake tensors before this module was written: no padding, attention as flash attention keeps it, tiles of
# logits held all the time. GiB: weights, the pass, and both with vLLM's share.
@pytest.mark.parametrize(
    ("shape", "n_rows", "length", "backward", "gpu", "weights", "expected", "with_vllm"),
    [
        (LLAMA_8B, 8, 4024, True, 79.0, 15.0, 19.4, 58),
        (LLAMA_8B, 8, 9700, True, 79.0, 15.0, 45.5, 84),
        (LLAMA_8B, 4, 9700, True, 79.0, 15.0, 23.1, 62),
        (LLAMA_8B, 32, 9700, False, 79.0, 15.0, 47.4, 86),
        (QWEN_2B, 8, 3572, True, 40.0, 3.3, 8.6, 24),
        (QWEN_2B, 128, 3572, False, 40.0, 3.3, 31.4, 47),
    ],
)
def test_an_independent_count_agrees(
    shape: Shape, n_rows: int, length: int, backward: bool, gpu: float, weights: float, expected: float, with_vllm: int
):
    held = (
        total(training_pass(shape, 2, n_rows, length, 1024))
        if backward
        else forward_pass(shape, 2, n_rows * length) / GIB
    )
    counted = 2 * shape.n_parameters / GIB
    assert counted == pytest.approx(weights, rel=0.03)
    assert held == pytest.approx(expected, rel=0.10)  # it has no mask, and 0.75 GiB of tiles
    assert counted + held + 0.3 * gpu == pytest.approx(with_vllm, rel=0.05)


class Allocated:
    """Bytes of tensors that live at once, from when each appears to when its storage goes. Also of fake ones.

    Without the scratch memory of kernels, which depends on the processor.
    """

    def __init__(self) -> None:
        self.now = self.peak = 0
        self._seen: set[int] = set()

    @contextmanager
    def watch(self, network: Any) -> Iterator[None]:
        from torch import Tensor
        from torch.utils._python_dispatch import TorchDispatchMode
        from torch.utils._pytree import tree_iter

        for weights in [*network.parameters(), *network.buffers()]:
            self._seen.add(weights.untyped_storage()._cdata)
        add = self._add

        class Mode(TorchDispatchMode):
            def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                result = function(*args, **(kwargs or {}))
                for tensor in tree_iter(result):
                    if isinstance(tensor, Tensor):
                        add(tensor.untyped_storage())
                return result

        with Mode():
            yield

    def _add(self, storage: Any) -> None:
        key, n_bytes = storage._cdata, storage.nbytes()
        if key not in self._seen:
            self._seen.add(key)
            self.now += n_bytes
            self.peak = max(self.peak, self.now)
            weakref.finalize(storage, self._drop, key, n_bytes)

    def _drop(self, key: int, n_bytes: int) -> None:
        self._seen.discard(key)
        self.now -= n_bytes


def open_network(shape: Shape, dtype: str, family: str = "llama") -> Any:
    """A network with TRL's projection to logits, under a LoRA adapter, as training prepares it on a GPU."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoConfig, AutoModelForCausalLM
    from trl.trainer.utils import add_fused_lm_head

    sizes = {name: getattr(shape, name) for name in Shape.__slots__}
    config = AutoConfig.for_model(family, **sizes)
    network = AutoModelForCausalLM.from_config(config, dtype=getattr(torch, dtype), attn_implementation="sdpa")
    add_fused_lm_head(network, outputs=("log_probs", "entropy"))
    network = get_peft_model(network, LoraConfig(r=1, target_modules=list(ALL), task_type="CAUSAL_LM"))
    network.enable_input_require_grads()
    network.gradient_checkpointing_enable()
    return network.train()


def run_pass(network: Any, dtype: str, n_rows: int, length: int, n_scored: int, pads: bool, n_prompts: int = 0) -> None:
    """Forward and backward, as the trainers do both; `n_prompts` prompts are read once."""
    import torch

    from arc_refinery.training.shared_prefix import log_probs

    ids = torch.zeros(n_rows, length, dtype=torch.long, device=network.device)
    if n_prompts:
        ids += torch.arange(n_rows, device=ids.device)[:, None] % n_prompts
    mask = torch.ones_like(ids)
    if pads:
        mask[0, 0] = 0
    labels = ids.clone()
    labels[:, :-n_scored] = -100
    with torch.autocast(ids.device.type, dtype=getattr(torch, dtype)) if dtype != "float32" else nullcontext():
        if n_prompts:
            values = log_probs(network, ids, torch.ones_like(ids), n_scored)[0]
        else:
            values = network(input_ids=ids, attention_mask=mask, labels=labels, fused_lm_head=True).log_probs
    if torch.is_grad_enabled():
        values.sum().backward()


def peak_of(run: Callable[[], None], network: Any) -> int:
    """Bytes of tensors that live at once on a CPU, without those of the network."""
    from torch.nn.attention.bias import causal_lower_right
    from torch.utils._python_dispatch import _disable_current_modes

    from arc_refinery.training import shared_prefix

    def mask(*size: int) -> Any:
        with _disable_current_modes():  # which see a plain tensor first; then it cannot become a mask
            return causal_lower_right(*size)

    allocated = Allocated()
    with pytest.MonkeyPatch.context() as patch, allocated.watch(network):
        patch.setattr(shared_prefix, "causal_lower_right", mask)
        run()
    return allocated.peak


def project_as_on_a_gpu(monkeypatch: pytest.MonkeyPatch, finds_scored: bool = True) -> None:
    """Without the copies of tiles of logits that TRL makes on a CPU; on a GPU, Triton's kernels work in place.

    TRL projects only the scored positions there, which fake tensors cannot find (`finds_scored`).
    """
    import trl.kernels.chunked_logprob as kernel
    import trl.trainer.utils

    for name in ("_forward_tile", "_backward_tile", "_addmm_fp32"):
        monkeypatch.setattr(kernel, name, lambda *_, **__: None)
    monkeypatch.setattr(trl.trainer.utils, "_use_triton", lambda device: finds_scored)


@pytest.mark.model
@pytest.mark.parametrize(
    ("shape", "family", "n_rows", "length", "backward"),
    [
        (LLAMA_8B, "llama", 4, 9700, True),
        (LLAMA_8B, "llama", 4, 9700, False),
        (QWEN_2B, "qwen3", 8, 3572, True),
    ],
)
def test_a_pass_at_full_size_holds_what_fake_tensors_would(
    shape: Shape, family: str, n_rows: int, length: int, backward: bool, monkeypatch: pytest.MonkeyPatch
):
    import torch
    from peft.tuners.tuners_utils import BaseTunerLayer
    from torch._subclasses.fake_tensor import FakeTensorMode

    project_as_on_a_gpu(monkeypatch, finds_scored=False)
    monkeypatch.setattr(torch.nn.Module, "to", lambda network, *_, **__: network)
    monkeypatch.setattr(BaseTunerLayer, "_move_adapter_to_device_of_base_layer", lambda *_, **__: None)
    allocated = Allocated()
    with FakeTensorMode(allow_non_fake_inputs=True), torch.set_grad_enabled(backward):
        network = open_network(shape, "bfloat16", family)
        n_weights = sum(weights.numel() for name, weights in network.named_parameters() if "lora" not in name)
        with allocated.watch(network):
            run_pass(network, "bfloat16", n_rows, length, n_scored=1024, pads=False)
    assert shape.n_parameters == pytest.approx(n_weights, rel=1e-4)
    held = (
        sum(training_pass(shape, 2, n_rows, length, 1024).values())
        if backward
        else forward_pass(shape, 2, n_rows * length) + n_rows * length**2  # and the mask
    )
    assert held == pytest.approx(allocated.peak, rel=0.01 if backward else 0.05)


@pytest.mark.model
@pytest.mark.parametrize(
    ("shape", "n_rows", "length", "n_scored", "n_prompts", "largest", "dtype"),
    [
        (Shape(256, 704, 4, 8, 2, 32, 1000, False), 8, 512, 8, 0, "backward pass of one layer", "bfloat16"),
        (Shape(256, 704, 4, 4, 4, 64, 1000, True), 6, 400, 8, 0, "backward pass of one layer", "float32"),
        (Shape(64, 128, 4, 4, 2, 16, 2000, False), 8, 256, 250, 0, "backward pass of the logits", "float32"),
        # prompts that are read once: the MLP, the attention and the logits need most
        (Shape(256, 704, 4, 8, 2, 32, 1000, False), 4, 2000, 8, 1, "backward pass of one layer", "float32"),
        (Shape(256, 704, 4, 4, 4, 64, 1000, True), 32, 512, 4, 1, "backward pass of one layer", "bfloat16"),
        (Shape(256, 704, 4, 8, 2, 32, 1000, False), 8, 300, 200, 1, "backward pass of the logits", "bfloat16"),
    ],
)
def test_a_small_pass_takes_what_its_tensors_do(
    shape: Shape,
    n_rows: int,
    length: int,
    n_scored: int,
    n_prompts: int,
    largest: str,
    dtype: Dtype,
    monkeypatch: pytest.MonkeyPatch,
):
    from arc_refinery.models.shared_attention import enable_layouts

    project_as_on_a_gpu(monkeypatch)
    network = open_network(shape, dtype)
    if n_prompts:
        enable_layouts(network.get_base_model())
    run_pass(network, dtype, n_rows, 8, 4, True, n_prompts)  # what stays: gradients
    peak = peak_of(lambda: run_pass(network, dtype, n_rows, length, n_scored, True, n_prompts), network)
    held = training_pass(shape, WIDTH[dtype], n_rows, length, n_scored, n_prompts)
    assert largest in held
    assert sum(held.values()) == pytest.approx(
        peak, rel=0.05 if n_prompts else 0.02
    )  # left out: the adapter's gradients, statistics of norms


def changed(name: str, **changes: Any) -> Experiment:
    """An experiment of config/, with other values of keys such as `training__grpo__beta`."""
    config = content(name)
    for key, value in changes.items():
        section = config
        *outer, last = key.split("__")
        for part in outer:
            section = section.setdefault(part, {})
        section[last] = value
    return validate_experiment(config, "c.yaml")


def training_items(**changes: Any) -> Items:
    """Of the training of multi-turn-rl, with changes."""
    return next(count.items for count in counts(changed("multi-turn-rl", **changes)) if count.job == "train trained")


@pytest.mark.parametrize("name", FULL_SIZE)
def test_every_published_config_fits_its_gpus(name: str):
    experiment = load_experiment(CONFIGS[name])
    estimates = counts(experiment)
    kinds = {count.job.split()[0] for count in estimates}
    assert kinds >= ({"sample", "train"} if experiment.training else {"sample"})
    assert all(0.1 < count.share < 0.85 for count in estimates)
    assert memory_warnings(experiment, name) == []
    assert memory_page(experiment).count("Fits.") == len(estimates)


def test_published_configs_are_found():
    assert {"multi-turn-rl", "single-turn-rl", "arc-training-rl", "one-task-sanity", "tool-use"} <= set(FULL_SIZE)


def test_twice_as_many_completions_in_a_pass_do_not_fit_and_the_warning_says_what_does(wording: Wording):
    (warning,) = memory_warnings(changed("multi-turn-rl", training__grpo__gradient_accumulation_steps=1), "c.yaml")
    assert warning.startswith("c.yaml: ") and "train trained" in warning
    for number in ("32 completions", "9,700 tokens", "68.0 of 78.1 GiB", "87%", "85%"):
        assert number in warning
    assert "training.grpo.gradient_accumulation_steps to 2 (now 1)" in warning
    assert "arc-refinery doctor memory --configfile c.yaml" in warning
    wording(warning)


def test_prompts_that_are_read_for_each_completion_take_more_passes(wording: Wording):
    changes = {"training__grpo__gradient_accumulation_steps": 4, "training__grpo__shared_prefix": "off"}
    (warning,) = memory_warnings(changed("multi-turn-rl", **changes), "c.yaml")
    assert all(number in warning for number in ("86.2 of 78.1 GiB", "110%", "85%"))
    assert "training.grpo.gradient_accumulation_steps to 8 (now 4)" in warning
    wording(warning)


@pytest.mark.parametrize(
    ("generations", "prompts", "passes", "expected"),
    [(8, 4, 1, 4), (8, 4, 2, 2), (8, 3, 4, 2), (6, 2, 3, 2), (4, 2, 8, 1)],
)
def test_a_pass_counts_the_prompts_that_it_can_meet(generations: int, prompts: int, passes: int, expected: int):
    """Passes cut the completions of a step, group after group, into equal shares."""
    experiment = changed(
        "multi-turn-rl",
        training__grpo__num_generations=generations,
        training__grpo__prompts_per_step=prompts,
        training__grpo__gradient_accumulation_steps=passes,
    )
    (step,) = gpu_memory.steps(experiment)
    groups = [row // generations for row in range(generations * prompts)]
    size = len(groups) // passes
    assert expected == max(len(set(groups[start : start + size])) for start in range(0, len(groups), size))
    assert step.prompts_of(size) == expected


def test_a_model_with_a_sliding_window_is_counted_with_a_prompt_for_each_completion(tmp_path: Path):
    config = json.loads((Path(TINY) / "config.json").read_text())
    prompts = []
    for window in (None, 64):
        (tmp_path / "config.json").write_text(json.dumps(config | {"sliding_window": window}))
        experiment = changed("multi-turn-rl", model__path=str(tmp_path))
        (step,) = gpu_memory.steps(experiment)
        prompts.append(step.prompts_of(step.n_rows))
    assert prompts == [1, 0]


def test_where_no_number_of_passes_is_enough_another_gpu_is_advised(wording: Wording):
    changes: dict[str, Any] = {"resources__train__gpu_mem_mb": 24000}
    (warning,) = memory_warnings(changed("multi-turn-rl", **changes), "c.yaml")
    assert "gradient_accumulation_steps" not in warning
    assert "sleep_mode" not in warning  # with it, it would not fit either
    assert "training.lora.load_in_4bit" not in warning and "resources.train.gpu_mem_mb" in warning
    wording(warning)
    changes |= {"training__grpo__sleep_mode": True, "training__grpo__gpu_memory_utilization": 0.9}
    (warning,) = memory_warnings(changed("multi-turn-rl", **changes), "c.yaml")
    assert "training.grpo.gpu_memory_utilization" in warning and "sleep_mode" not in warning
    wording(warning)
    (warning,) = memory_warnings(changed("multi-turn-rl", **changes, training__grpo__kv_cache_gb=40), "c.yaml")
    assert "lower training.grpo.kv_cache_gb" in warning and "gpu_memory_utilization" not in warning


@pytest.mark.parametrize(
    ("gpu_mem_mb", "more"),
    [
        (32000, {}),
        (40000, {}),
        (48000, {}),
        (40000, {"kv_cache_gb": 8.0}),
        (32000, {"kv_cache_gb": 4.0, "sleep_mode": True}),
    ],
    ids=["32000", "40000", "48000", "cache", "asleep"],
)
def test_the_keys_that_are_advised_make_it_fit(gpu_mem_mb: int, more: dict[str, Any]):
    changes: dict[str, Any] = {"resources__train__gpu_mem_mb": gpu_mem_mb}
    changes |= {f"training__grpo__{key}": value for key, value in more.items()}
    (warning,) = memory_warnings(changed("multi-turn-rl", **changes), "c.yaml")
    ways = re.findall(r"set (training\.\S+) to (\S+)((?: and \S+ to [^ ,]+)*(?: with \S+ \d+)?)", warning)
    assert ways
    for key, value, rest in ways:
        followed = {key: value} | dict(re.findall(r"(?:and|with) (\S+) (?:to )?([^ ,]+)", rest))
        advised = {name.replace(".", "__"): yaml.safe_load(text.rstrip(",")) for name, text in followed.items()}
        assert memory_warnings(changed("multi-turn-rl", **changes | advised), "c.yaml") == [], key


def test_vllm_needs_room_for_one_window(wording: Wording):
    # 0.22 x 78.1 GiB = 17.2; less 15.0 of weights and 1.5 of its own, 0.7 GiB is left: 5,000 tokens of 128 KiB
    (warning,) = memory_warnings(changed("multi-turn-rl", training__grpo__gpu_memory_utilization=0.22), "c.yaml")
    assert "training.grpo.gpu_memory_utilization" in warning
    wording(warning)
    (warning,) = memory_warnings(changed("multi-turn-rl", model__gpu_memory_utilization=0.48), "c.yaml")
    assert " sample " in warning and "model.gpu_memory_utilization" in warning
    wording(warning)


def test_a_cache_of_a_given_size_counts_as_such(wording: Wording):
    for key in ("training__grpo__", "model__"):
        share = {f"{key}gpu_memory_utilization": 0.05}  # does not matter
        # in 1 GiB, 8,192 tokens of 128 KiB
        smaller, larger = (
            next(count for count in counts(experiment) if f"{n_tokens} tokens" in count.remark)
            for n_gb, n_tokens in ((8.0, "65,536"), (9.0, "73,728"))
            for experiment in [changed("multi-turn-rl", **share | {f"{key}kv_cache_gb": n_gb})]
        )
        assert larger.total - smaller.total == GIB and not smaller.faults
        (warning,) = memory_warnings(changed("multi-turn-rl", **share | {f"{key}kv_cache_gb": 0.5}), "c.yaml")
        assert f"{key.replace('__', '.')}kv_cache_gb" in warning
        wording(warning)


def test_one_table_per_kind_of_job():
    jobs = [count.job for count in counts(load_experiment(CONFIGS["tool-use"]))]
    assert jobs == ["sample", "sft", "train trained"]
    # the sweep's trainings hold the same
    jobs = [count.job for count in counts(load_experiment(CONFIGS["one-task-sanity"]))]
    assert jobs == ["sample", "train learning-rate-1e-5, train learning-rate-1e-9"]


def test_a_second_gpu_halves_weights_and_cache_of_vllm():
    one, two = (counts(changed("refine-without-rl", model__tensor_parallel_size=n))[0].items for n in (1, 2))
    halved = [name for name in one if two[name] == one[name] // 2]
    assert [name.split()[0] for name in halved] == ["weights", "KV"]


def test_4_bit_weights_and_sampling_without_vllm():
    items = training_items(training__lora__load_in_4bit=True, training__grpo__sampler="transformers")
    weights = next(n_bytes for name, n_bytes in items.items() if name.startswith("weights"))
    # 6.98e9 parameters of 4.127 bits; embeddings, norms and one unpacked matrix of 2 bytes
    assert weights == pytest.approx(6_979_321_856 * 4.127 / 8 + 2 * (2 * 128256 * 4096 + 4096 * 14336), rel=1e-3)


@pytest.mark.parametrize(
    ("changes", "n_tokens", "n_read"),
    [
        # one prompt of 8,676 tokens for 32 completions of 1,024
        ({}, 8676 + 32 * 1024, 8676),
        ({"training__grpo__steps_per_generation": 2}, 2 * (8676 + 32 * 1024), 2 * 8676),
        ({"training__grpo__shared_prefix": "off"}, 32 * 9700, 32 * 8676),
        # second turns are read in their own contexts
        ({"training__prompts": "first-turn", "training__grpo__rollout": "on-policy"}, 32 * 9700, 32 * 9700),
    ],
)
def test_training_that_samples_by_transformers_keeps_each_prompt_once(
    changes: dict[str, Any], n_tokens: int, n_read: int
):
    # a pass of one completion takes less than sampling: the larger of both counts
    fixed = {"training__grpo__sampler": "transformers", "training__grpo__gradient_accumulation_steps": 32}
    items = training_items(**fixed, **changes)
    assert "backward pass of one layer" not in items
    assert items[f"KV cache of {n_tokens:,} tokens"] == n_tokens * 131072
    choosing = 32 * changes.get("training__grpo__steps_per_generation", 1) * 128256 * 16
    assert items["reading prompts"] == n_read * 2 * (5 * 14336 + 3 * 4096) + choosing


def test_a_vllm_that_sleeps_and_the_pass_are_not_held_at_once():
    changes: dict[str, Any] = {"resources__train__gpu_mem_mb": 48000, "training__grpo__gpu_memory_utilization": 0.45}
    awake = training_items(**changes)
    asleep = training_items(**changes, training__grpo__sleep_mode=True)
    graphs = "vLLM's CUDA graphs, also while it sleeps (assumed)"
    share = int(0.45 * 48000 * 2**20)
    # a pass of 16 completions, 16.8 GiB, takes less than vLLM's share, 21.1 GiB
    assert asleep[graphs] + asleep["vLLM's share (0.45), without these"] == awake["vLLM's share (0.45)"] == share
    assert "backward pass of one layer" in awake and "backward pass of one layer" not in asleep
    held = sum(n_bytes for name, n_bytes in awake.items() if name.startswith(("layer inputs", "backward pass")))
    assert sum(awake.values()) - sum(asleep.values()) == held
    # 28.6 GiB of 32 completions take more
    longer = training_items(**changes, training__grpo__sleep_mode=True, training__grpo__gradient_accumulation_steps=1)
    assert "backward pass of one layer" in longer and longer[graphs] == GIB
    assert not any(name.startswith("vLLM's share") for name in longer)


def test_unsloth_packs_rows_without_padding():
    experiment = load_experiment(CONFIGS["multi-turn-rl-unsloth"])
    (step,) = gpu_memory.steps(experiment)
    assert step.prompts_of(4) == 4


def test_sampling_by_transformers_takes_a_batch_or_the_longest_prompt():
    def sampling(**changes: Any) -> Items:
        experiment = changed("multi-turn-rl", model__backend="transformers", **changes)
        return next(count.items for count in counts(experiment) if count.job == "sample")

    assert sampling()["KV cache of 32,768 tokens"] == 4 * 2**30  # 128 KiB per token
    # 8 completions of 8,000 tokens, one of which the window holds beside the prompt
    longer = sampling(model__window=20_000, sampling__max_output_tokens=8000)
    assert longer["KV cache of 76,000 tokens"] == 76_000 * 131072


@pytest.mark.parametrize(
    ("free", "expected"),
    [
        (0, 32768),  # what the estimate counts, however little is free
        (40 * GIB, 20 * GIB // (2 * 131_072 + 16 * 128_256 // 256)),  # keys and values twice, and a row's logits
        (1000 * GIB, 262144),  # more would not be faster
    ],
)
def test_the_memory_of_a_gpu_decides_how_many_tokens_transformers_samples_together(free: int, expected: int):
    assert sampled_tokens(LLAMA_8B, 2, 256, free) == expected


def test_turns_sampled_by_transformers_keep_their_keys_for_the_next_turn():
    items = next(iter(counts(changed("tool-use", model__backend="transformers")))).items
    (cache,) = [n_bytes for name, n_bytes in items.items() if name.startswith("KV cache of")]
    assert items["keys of a turn, kept for the next one"] == cache


def test_without_gpus_nothing_is_counted(wording: Wording):
    experiment = load_experiment(CONFIGS["config"])
    assert counts(experiment) == []
    page = memory_page(experiment)
    assert "resources.train" in page
    wording(page)


def test_a_models_sizes_come_from_its_folder():
    shape = shape_of(TINY)
    assert (shape.hidden_size, shape.num_hidden_layers, shape.head_dim, shape.tie_word_embeddings) == (128, 6, 32, True)


def test_an_unknown_model_is_an_error_of_the_command_and_no_warning(wording: Wording):
    experiment = changed("multi-turn-rl", model__path="nobody/nothing", training__grpo__gradient_accumulation_steps=1)
    assert memory_warnings(experiment, "c.yaml") == []
    with pytest.raises(ModelError) as caught:
        memory_page(experiment)
    assert str(caught.value).startswith("nobody/nothing: ") and "hf download nobody/nothing" in str(caught.value)
    wording(caught.value)


SIZES = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 100,
}


@pytest.mark.parametrize(("kind", "is_tied"), [("gemma", True), ("qwen2", False)])
def test_embeddings_are_tied_as_the_library_has_it_where_the_file_does_not_say(
    kind: str, is_tied: bool, tmp_path: Path
):
    (tmp_path / "config.json").write_text(json.dumps(SIZES | {"model_type": kind}))
    assert shape_of(str(tmp_path)).tie_word_embeddings is is_tied


@pytest.mark.parametrize(
    ("config", "key"),
    [
        ({"hidden_size": 8}, "intermediate_size"),
        ({"num_experts": 8}, "num_experts"),
        (SIZES | {"model_type": "deepseek_v2", "n_routed_experts": 64}, "n_routed_experts"),
        (SIZES | {"kv_lora_rank": 512}, "kv_lora_rank"),
        (SIZES | {"model_type": "starcoder2"}, "starcoder2"),
        (SIZES, "model_type"),
        (SIZES | {"model_type": "llama", "moe_intermediate_size": 64}, "moe_intermediate_size"),
        (SIZES | {"model_type": "qwen3", "layer_types": ["full_attention", "linear_attention"]}, "layer_types"),
    ],
)
def test_a_config_json_of_another_kind_is_refused(tmp_path: Path, config: dict[str, Any], key: str, wording: Wording):
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError) as caught:
        shape_of(str(tmp_path))
    assert str(caught.value).startswith(f"{tmp_path}/config.json: ") and key in str(caught.value)
    wording(caught.value)


@pytest.mark.slow
def test_the_command_needs_neither_torch_nor_the_hub():
    script = (
        "import sys; from arc_refinery.cli import main;"
        "sys.argv[1:] = ['doctor', 'memory', '--configfile', sys.argv[1]]; main();"
        "assert not {'torch', 'transformers', 'huggingface_hub'} & set(sys.modules)"
    )
    command = [sys.executable, "-c", script, str(CONFIGS["multi-turn-rl"])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "| vLLM's share (0.3) | 23.4 |" in done.stdout


def test_the_command_fails_for_a_job_that_does_not_fit(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    small = {"base": str(CONFIGS["multi-turn-rl"]), "experiment": "s", "resources": {"train": {"gpu_mem_mb": 40000}}}
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(small))
    with pytest.raises(InputError) as caught:
        Memory(configfile=tmp_path / "small.yaml").run()
    assert str(tmp_path / "small.yaml") in str(caught.value)
    assert "train trained" in str(caught.value)
    assert "sample" not in str(caught.value)
    assert "Does not fit: " in capsys.readouterr().out
