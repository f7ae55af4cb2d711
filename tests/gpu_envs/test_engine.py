"""vLLM's engine on a pretended H100, as far as its configuration: settings, names of GPUs, the server's command.

Not checked, because it takes a GPU: kernels, CUDA graphs, the memory that is left for the KV cache, tensor parallelism
between processes, and a server that answers.
"""

import json
import os
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nvidia_smi
import pytest
from adapters import make_adapter
from checkout import TINY, TINY_TOOLS
from gpu_envs.pretended import engine_config
from unit.test_documented_commands import commands, texts

from arc_refinery.config import ModelConfig
from arc_refinery.errors import InputError
from arc_refinery.sampling.gpus import check_mig, complete_visible_devices

# MIG instances of the second GPU by their number in it, each under both of its names
MIG = [(f"MIG-11c29e8{n}-e611-50b5-b5ef-609c0a0fe58b", f"MIG-{nvidia_smi.SECOND}/{n + 7}/0") for n in range(3)]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Keywords of the engines that are opened, as on a GPU; none is started."""
    import torch
    import vllm
    from vllm import LLM  # noqa: F401  # before there seems to be a GPU: packages that it imports would use it

    calls: list[dict[str, Any]] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(vllm, "LLM", lambda **keywords: calls.append(keywords))
    return calls


def test_an_engine_may_have_a_cache_of_a_given_size(opened: list[dict[str, Any]]):
    """vLLM then does not measure the GPU, which other jobs use."""
    from arc_refinery.sampling.vllm_sampler import open_engine

    open_engine(ModelConfig(path=TINY, window=512, backend="vllm", dtype="bfloat16", kv_cache_gb=0.5), None, seed=7)
    assert engine_config(opened[0]).cache_config.kv_cache_memory_bytes == 2**29


def test_an_engine_may_sum_whatever_the_batch(opened: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch):
    from vllm import envs

    from arc_refinery.sampling.vllm_sampler import open_engine

    monkeypatch.setattr(os, "environ", os.environ.copy())
    assert not envs.VLLM_BATCH_INVARIANT
    open_engine(
        ModelConfig(path=TINY, window=512, backend="vllm", dtype="bfloat16", batch_invariant=True), None, seed=7
    )
    assert envs.VLLM_BATCH_INVARIANT
    assert engine_config(opened[0]).cache_config.enable_prefix_caching


@pytest.mark.parametrize("rank", [None, 1, 20])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize(("path", "n_gpus"), [(TINY, 1), (TINY, 2), (TINY_TOOLS, 1)])
def test_sampling_opens_an_engine_that_vllm_admits(
    path: str, n_gpus: int, dtype: str, rank: int | None, opened: list[dict[str, Any]], tmp_path: Path
):
    from arc_refinery.sampling.vllm_sampler import open_engine

    model = ModelConfig.model_validate(
        {"path": path, "window": 512, "backend": "vllm", "dtype": dtype, "tensor_parallel_size": n_gpus}
    )
    adapter = None if rank is None else make_adapter(tmp_path / "adapter", path, rank=rank)
    _, request = open_engine(model, adapter, seed=7)
    config = engine_config(opened[0])
    assert config.scheduler_config.enable_chunked_prefill
    assert config.cache_config.enable_prefix_caching
    assert not config.model_config.enforce_eager
    assert str(config.model_config.dtype) == f"torch.{dtype}"
    assert (config.model_config.max_model_len, config.model_config.seed) == (512, 7)
    assert config.model_config.logprobs_mode == "raw_logprobs"
    assert config.cache_config.gpu_memory_utilization == 0.9
    assert config.parallel_config.tensor_parallel_size == n_gpus
    if rank is None:
        assert config.lora_config is request is None
    else:
        assert config.lora_config.max_lora_rank == {1: 1, 20: 32}[rank]
        assert (request.lora_path, request.lora_int_id) == (str(adapter), 1)


def test_4_bits_would_not_be_admitted(opened: list[dict[str, Any]]):
    """The reason why the config refuses them with vLLM."""
    from arc_refinery.sampling.vllm_sampler import open_engine

    open_engine(ModelConfig(path=TINY, window=512), None, seed=0)
    with pytest.raises(ValueError, match="Unknown quantization method: bitsandbytes"):
        engine_config(opened[0] | {"quantization": "bitsandbytes"})


@pytest.mark.parametrize("written", [{"eos_token_id": [256, 258]}, {"eos_token_id": 258}, {}, None])
def test_vllm_ends_completions_as_is_checked_before_sampling(
    written: dict[str, Any] | None, opened: list[dict[str, Any]], tmp_path: Path
):
    from vllm import SamplingParams

    from arc_refinery.models.tokenizers import end_tokens, load_tokenizer
    from arc_refinery.sampling.vllm_sampler import open_engine

    folder = shutil.copytree(TINY, tmp_path / "model")
    (folder / "generation_config.json").unlink()
    if written is not None:
        (folder / "generation_config.json").write_text(json.dumps(written))
    open_engine(ModelConfig(path=str(folder), window=512), None, seed=0)
    tokenizer, params = load_tokenizer(str(folder)), SamplingParams()
    read = engine_config(opened[0]).model_config.try_get_generation_config()
    params.update_from_generation_config(read, tokenizer.eos_token_id)
    assert params.all_stop_token_ids == set(end_tokens(str(folder), tokenizer))


# names of GPUs


@pytest.fixture
def capability(monkeypatch: pytest.MonkeyPatch) -> Callable[[], Any]:
    """vLLM's question for the first visible GPU; NVML knows two, and three MIG instances of the second."""
    import pynvml
    from vllm.platforms import cuda

    for library in (cuda.pynvml, pynvml):  # vLLM has a copy
        with_two_gpus(library, monkeypatch)
    cuda.NvmlCudaPlatform.get_device_capability.cache_clear()
    return lambda: tuple(cuda.NvmlCudaPlatform.get_device_capability())


def with_two_gpus(library: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace NVML by its documented behavior on two GPUs, with capability 9.0 and 9.1."""
    handles = {nvidia_smi.FIRST: ("gpu", 0), nvidia_smi.SECOND: ("gpu", 1)}
    handles |= {name: ("mig", number) for number, names in enumerate(MIG) for name in names}

    def by_uuid(uuid: str) -> tuple[str, int]:
        if uuid not in handles:  # it compares whole ones
            raise library.NVMLError(library.NVML_ERROR_NOT_FOUND)
        return handles[uuid]

    def by_index(index: int) -> tuple[str, int]:
        if index > 1:
            raise library.NVMLError(library.NVML_ERROR_INVALID_ARGUMENT)
        return ("gpu", index)

    stand_ins = {
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlDeviceGetHandleByUUID": by_uuid,
        "nvmlDeviceGetIndex": lambda handle: handle[1],  # index of a MIG instance within its GPU
        "nvmlDeviceGetHandleByIndex": by_index,
        "nvmlDeviceGetCudaComputeCapability": lambda handle: (9, handle[1]),
    }
    for name, stand_in in stand_ins.items():
        monkeypatch.setattr(library, name, stand_in)


@pytest.mark.parametrize(
    ("name", "expected"), [("GPU-6a96ffff", (9, 1)), (nvidia_smi.SECOND, (9, 1)), ("1", (9, 1)), ("GPU-6a96b", (9, 0))]
)
def test_vllm_finds_the_gpu_that_a_scheduler_names(
    name: str,
    expected: tuple[int, int],
    capability: Callable[[], Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    nvidia_smi.put_on_path(tmp_path, monkeypatch)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", name)
    complete_visible_devices()
    assert capability() == expected


def test_vllm_would_not_find_it_by_the_first_digits_alone(
    capability: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
):
    """The reason why they are completed: once this fails, arc_refinery.sampling.gpus may go."""
    from vllm.platforms import cuda

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-6a96ffff")
    with pytest.raises(cuda.pynvml.NVMLError):
        capability()


@pytest.mark.parametrize("name", MIG[0] + MIG[1])
def test_vllm_finds_a_mig_instance_whose_number_is_that_of_a_gpu(
    name: str, capability: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
):
    """Though it asks for that GPU, not for its own."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", name)
    check_mig()
    assert capability() == (9, 0 if name in MIG[0] else 1)


@pytest.mark.parametrize("name", MIG[2])
def test_other_mig_instances_are_refused_where_vllm_would_fail(
    name: str, capability: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
):
    """Once the first part fails, arc_refinery.sampling.gpus.check_mig may go."""
    from vllm.platforms import cuda

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", name)
    with pytest.raises(cuda.pynvml.NVMLError, match="Invalid Argument"):
        capability()
    with pytest.raises(InputError, match=rf"is {name}, but vLLM 0\.31 would not find .* \(Invalid Argument\)"):
        check_mig()


# the server


def test_vllm_parses_the_command_of_the_server_that_docs_name():
    from trl.scripts.vllm_serve import build_command, make_parser
    from vllm.entrypoints.launchers.cli_args import make_arg_parser
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    (command,) = {
        command.replace("<model.path>", TINY).replace("<max_seq_length>", "512")
        for text in texts().values()
        for command in commands(text)
        if command.startswith("trl vllm-serve --")
    }
    settings, others = make_parser().parse_args_and_config(shlex.split(command)[2:], return_remaining_strings=True)
    assert others == []
    built = build_command(settings)
    parsed = make_arg_parser(FlexibleArgumentParser()).parse_args(built[built.index("serve") + 1 :])
    assert (parsed.model_tag, parsed.dtype, parsed.max_model_len) == (TINY, "bfloat16", 512)
    assert parsed.logprobs_mode == "processed_logprobs"


# what would be compiled when an engine starts


def test_flashinfers_sampler_is_off_though_vllm_would_take_it(monkeypatch: pytest.MonkeyPatch):
    """It needs nvcc, which vLLM does not look for."""
    import torch
    from flashinfer.jit.core import current_compilation_context
    from vllm.v1.sample.ops.topk_topp_sampler import flashinfer_sampler_supported

    from arc_refinery.sampling.gpus import set_vllm_variables

    monkeypatch.setattr(torch.accelerator, "current_device_index", lambda: 0)
    monkeypatch.setattr(current_compilation_context, "TARGET_CUDA_ARCHS", {(9, "0a")})  # that of an H100
    monkeypatch.delenv("VLLM_USE_FLASHINFER_SAMPLER", raising=False)
    assert flashinfer_sampler_supported()
    set_vllm_variables()
    assert not flashinfer_sampler_supported()
