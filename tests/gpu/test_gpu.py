"""GPU checks without vLLM: kernels in bfloat16, memory, the 8-bit optimizer, and our own command."""

import json
import os
import re
import runpy
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import asdict
from importlib.metadata import distributions
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from checkout import ROOT, TINY
from experiments import words_of
from factories import first_turns

from arc_refinery.models.shape import Shape

if TYPE_CHECKING:
    from torch import Tensor

    from .conftest import Verdict

pytestmark = [pytest.mark.model, pytest.mark.training]

SMALL = {
    "cpu": Shape(32, 64, 2, 4, 2, 8, 50, False),
    "cuda": Shape(1024, 2816, 4, 16, 4, 64, 32000, False),
}
LENGTHS = {"cpu": (12, (3, 7, 7, 1)), "cuda": (1500, (40, 700, 380, 120, 512, 90, 260, 333))}  # prompt, completions


def test_wheels_have_the_versions_of_the_gpu_environment():
    pinned = set((ROOT / "envs/gpu.txt").read_text().splitlines())
    wheels = [line for line in (ROOT / "tests/gpu/wheels.txt").read_text().splitlines() if not line.startswith("#")]
    assert pinned.issuperset(wheels)


def llama(shape: Shape, device: str, dtype: str) -> Any:
    """A network with random weights and TRL's projection to logits."""
    import torch
    from transformers import AutoModelForCausalLM, LlamaConfig
    from trl.trainer.utils import add_fused_lm_head

    torch.manual_seed(0)
    config = LlamaConfig(**asdict(shape), max_position_embeddings=8192)
    network = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")
    add_fused_lm_head(network, outputs=("log_probs", "entropy"))
    return network.to(device, torch.bfloat16).to(getattr(torch, dtype))


def completions(shape: Shape, device: str) -> "tuple[Tensor, Tensor, int]":
    """Ids and mask of completions of one prompt, (rows, tokens), padded on the right; the number of their columns."""
    import torch

    n_prompt, lengths = LENGTHS[device]
    generator = torch.Generator().manual_seed(0)
    prompt = torch.randint(shape.vocab_size, (1, n_prompt), generator=generator).expand(len(lengths), -1)
    answers = torch.randint(shape.vocab_size, (len(lengths), max(lengths)), generator=generator)
    is_token = torch.arange(max(lengths)) < torch.tensor(lengths).unsqueeze(1)
    ids, mask = torch.cat([prompt, answers], 1), torch.cat([torch.ones_like(prompt), is_token.long()], 1)
    return ids.to(device), mask.to(device), max(lengths)


def test_attention_to_a_shared_prompt(device: str, verdict: "Verdict"):
    """Values and gradients in bfloat16 are as near those in float32 as are a plain pass's, one padded row each."""
    import torch

    from arc_refinery.models.shared_attention import enable_layouts
    from arc_refinery.training.shared_prefix import log_probs

    ids, mask, n_scored = completions(SMALL[device], device)
    labels = ids.masked_fill(mask == 0, -100)
    labels[:, :-n_scored] = -100

    def plain(network: Any) -> "Tensor":
        output = network(input_ids=ids, attention_mask=mask, labels=labels, fused_lm_head=True)
        scored: Tensor = output.log_probs[:, -n_scored:]
        return scored

    def shared(network: Any) -> "Tensor":
        assert not enable_layouts(network)
        return log_probs(network, ids, mask, n_scored)[0]

    def values_and_gradients(score: "Callable[[Any], Tensor]", dtype: str) -> "tuple[Tensor, Tensor]":
        network = llama(SMALL[device], device, dtype)
        network.gradient_checkpointing_enable({"use_reentrant": False})
        network.train()
        with torch.autocast(device, torch.bfloat16, enabled=dtype == "bfloat16"):
            values = score(network)
        (values * torch.linspace(-1, 1, values.numel(), device=device).view_as(values)).sum().backward()
        return values.detach().float(), torch.cat([p.grad.flatten().float() for p in network.parameters()])

    exact = values_and_gradients(plain, "float32")

    def distances(results: "tuple[Tensor, Tensor]") -> list[float]:
        return [float((result - other).norm() / other.norm()) for result, other in zip(results, exact, strict=True)]

    apart_plain, apart_shared = (distances(values_and_gradients(score, "bfloat16")) for score in (plain, shared))
    (values, gradients), (plain_values, plain_gradients) = apart_shared, apart_plain
    verdict(
        f"distance from float32 of values {values:.1e} (plain pass {plain_values:.1e}), "
        f"of gradients {gradients:.1e} (plain pass {plain_gradients:.1e})",
        all(own <= 2 * other for own, other in zip(apart_shared, apart_plain, strict=True)),
    )


@pytest.mark.parametrize("n_prompts", [0, 1], ids=["padded rows", "one prompt"])
def test_memory_of_a_pass(device: str, n_prompts: int, verdict: "Verdict", monkeypatch: pytest.MonkeyPatch):
    """The estimate of `arc-refinery doctor memory`, against what PyTorch allocates."""
    import torch
    from unit.test_gpu_memory import open_network, peak_of, project_as_on_a_gpu, run_pass

    from arc_refinery.models.shared_attention import enable_layouts
    from arc_refinery.sampling.gpu_memory import training_pass

    shape, sizes = {
        "cpu": (Shape(64, 176, 2, 4, 2, 16, 500, False), (4, 256, 8)),
        "cuda": (Shape(2048, 5632, 8, 16, 8, 128, 32000, False), (8, 4096, 512)),
    }[device]
    network = open_network(shape, "bfloat16").to(device)
    enable_layouts(network.get_base_model())

    def read() -> None:
        run_pass(network, "bfloat16", *sizes, pads=True, n_prompts=n_prompts)

    if device == "cpu":
        project_as_on_a_gpu(monkeypatch)
        peak = peak_of(read, network)
    else:
        read()  # loads libraries, which keep memory
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        read()
        peak = torch.cuda.max_memory_allocated() - before
    estimate = sum(training_pass(shape, 2, *sizes, n_prompts).values())
    verdict(
        f"{peak / 2**20:,.0f} MiB allocated, {estimate / 2**20:,.0f} estimated, ratio {peak / estimate:.2f}",
        0.6 < peak / estimate < 1.1,
    )


def test_the_8_bit_optimizer_is_the_same_after_a_reload(device: str, verdict: "Verdict", tmp_path: Path):
    """Also on a CPU, with PyTorch's optimizer instead."""
    import torch

    if device == "cuda":
        optimizers = pytest.importorskip("bitsandbytes", reason="bitsandbytes is not installed here").optim
        make: Any = optimizers.AdamW8bit
    else:
        make = torch.optim.AdamW
    gradients = torch.randn(4, 64, 4096, generator=torch.Generator().manual_seed(0)).to(device)

    def weights() -> Any:
        return torch.nn.Parameter(torch.ones(64, 4096, device=device))

    def step(optimizer: Any, weights: Any, steps: range) -> None:
        for index in steps:
            weights.grad = gradients[index].clone()
            optimizer.step()

    exact, whole = weights(), weights()
    in_32_bits, optimizer = torch.optim.AdamW([exact], lr=1e-3), make([whole], lr=1e-3)
    step(in_32_bits, exact, range(4))
    step(optimizer, whole, range(2))
    torch.save(optimizer.state_dict(), tmp_path / "optimizer.pt")
    resumed = weights()
    resumed.data.copy_(whole.data)
    again = make([resumed], lr=1e-3)
    again.load_state_dict(torch.load(tmp_path / "optimizer.pt", map_location=device, weights_only=True))
    step(optimizer, whole, range(2, 4))
    step(again, resumed, range(2, 4))
    n_bytes = [
        state.element_size() for state in optimizer.state[whole].values() if getattr(state, "shape", ()) == whole.shape
    ]
    distance = ((whole - exact).norm() / (exact - 1).norm()).item()
    verdict(
        f"states of {n_bytes} bytes per weight; after a reload {'equal' if whole.equal(resumed) else 'other'} weights; "
        f"{distance:.3f} of the change from AdamW in 32 bits",
        whole.equal(resumed) and distance < 0.2 and n_bytes == ([1, 1] if device == "cuda" else [4, 4]),
    )


COMMAND = """
import os, torch
from arc_refinery.cli import main
main()
print("allocator:", os.environ["PYTORCH_ALLOC_CONF"])
if torch.cuda.is_available():
    print("segments that grow:", torch.cuda.memory._snapshot()["allocator_settings"]["expandable_segments"])
"""


def test_grpo_with_our_command(device: str, verdict: "Verdict", tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    if not list(distributions(name="arc-refinery")):  # only its folder is on the path: records name its version
        described = tmp_path / "arc_refinery-0.dist-info/METADATA"
        described.parent.mkdir()
        described.write_text("Metadata-Version: 2.1\nName: arc-refinery\nVersion: 0\n")
        monkeypatch.syspath_prepend(tmp_path)
    from arc_refinery import records
    from arc_refinery.domains.arc.config import Showing, TaskSet
    from arc_refinery.domains.arc.prompts import load_template
    from arc_refinery.domains.arc.records import Prompt
    from arc_refinery.domains.arc.sources import tasks_of_set
    from arc_refinery.domains.prompts import Renderer
    from arc_refinery.refining.config import Sampling

    n_steps, dtype = (1, "float32") if device == "cpu" else (4, "bfloat16")
    tasks = tasks_of_set(TaskSet(name="made", source="generator", n_tasks=12, max_cells=300), Counter())
    sampling = Sampling(batch_size=1, max_output_tokens=24)
    prompts = first_turns(
        tasks, 1, sampling, load_template("compact"), Renderer(TINY), shown=Showing(use_data_augmentation=False)
    )
    records.write(tmp_path / "prompts.parquet", Prompt, prompts, 0, {})
    grpo = {"learning_rate": 1e-5, "max_steps": n_steps, "save_steps": n_steps, "report_to": []}
    grpo |= {"num_generations": 4, "prompts_per_step": 2, "gradient_accumulation_steps": 2}
    settings = {
        "model": {"path": TINY, "template": "compact", "window": 1024, "dtype": dtype},
        "grpo": grpo,
        "lengths": {"max_completion_length": 24, "max_seq_length": 1024},
        "sandbox": {"allow_without_seccomp": True},
        "lora": {},
        "guard": {},
        "refinement": {},
    }
    places = {"data": "prompts.parquet", "output": "adapter", "measurements": "measured.jsonl"}
    places |= {"checkpoints": "checkpoints", "tensorboard": "tensorboard"}
    words = words_of("train", settings, **{flag: tmp_path / name for flag, name in places.items()})
    paths = os.pathsep.join([str(ROOT / "workflow"), *map(os.path.abspath, sys.path)])
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, *words],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": paths},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    output = done.stdout
    assert done.returncode == 0, output[-4000:]
    steps = [json.loads(line) for line in (tmp_path / "adapter/training.jsonl").read_text().splitlines()][:-1]
    measured = [json.loads(line) for line in (tmp_path / "measured.jsonl").read_text().splitlines()]
    rehearsal = re.search(r"rehearsal: 4 rows of up to 1,024 tokens .*", output)
    on_gpu = [line.get("gpu_mb") for line in measured]
    verdict(
        f"{len(steps)} steps in {dtype}, {measured[-1]['seconds/step']:.2f} s for the last; gpu_mb {on_gpu}; "
        f"{rehearsal[0] if rehearsal else 'no rehearsal'}",
        len(steps) == len(measured) == n_steps
        and all(step["grad_norm"] >= 0 for step in steps)
        and "allocator: expandable_segments:True" in output
        and (device == "cpu" or (rehearsal is not None and all(on_gpu) and "segments that grow: True" in output)),
    )


def test_benchmark_of_shared_prompts(device: str, verdict: "Verdict", tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    sizes = {
        "cpu": "--prompts 1 --completions 2 --rows 2 --prompt-tokens 16 --completion-tokens 4 --repeats 1",
        "cuda": "--prompts 2 --completions 16 --rows 4 --prompt-tokens 4000 --completion-tokens 512 --repeats 3",
    }[device]
    llama(SMALL[device], "cpu", "float32").save_pretrained(tmp_path)
    monkeypatch.setattr(sys, "argv", ["shared_prefix.py", "--model", str(tmp_path), *sizes.split()])
    with redirect_stdout(StringIO()) as printed:
        runpy.run_path(str(ROOT / "benchmarks/shared_prefix.py"), run_name="__main__")
    output = printed.getvalue()
    print(f"\n{output}")
    title, ratios = "", {}
    for cells in (line.strip("| ").split(" | ") for line in output.splitlines() if line.startswith("|")):
        title = cells[0] if cells[1:2] == ["seconds"] else title
        if cells[0] == "ratio":
            ratios[title] = float(cells[1])
    faster = "; ".join(f"{title}: {ratio:.1f} times faster" for title, ratio in ratios.items())
    updates = [ratio for title, ratio in ratios.items() if "update" in title]
    verdict(faster, bool(updates) and (device == "cpu" or min(updates) >= 1))
