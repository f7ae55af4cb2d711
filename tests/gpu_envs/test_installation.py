"""The environments for GPUs hold together, and import each other's names.

Not checked, because it takes a GPU: `import unsloth`, kernels, NCCL, and whether the driver is new enough.
"""

import ast
import importlib
import subprocess
import sys
from collections.abc import Iterable
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest
from checkout import ROOT

OURS = "arc_refinery"
UV = ROOT / ".venv/bin/uv"  # the default environment makes the others


@pytest.mark.parametrize("package", ["torch", "transformers", "peft", "trl", "bitsandbytes", "vllm"])
def test_it_imports(package: str):
    importlib.import_module(package)


def test_torch_is_built_for_cuda():
    import torch

    assert torch.version.cuda == "13.0"  # as docs/run.md says


def test_versions_agree_but_for_what_is_overridden():
    """numpy is newer than mistral-common declares (envs/gpu.overrides.txt)."""
    done = subprocess.run([UV, "pip", "check", "--python", sys.executable], capture_output=True, text=True, check=False)
    complaints = [line for line in done.stderr.splitlines() if line.startswith("The package ")]
    assert len(complaints) == 1, done.stderr
    assert "`mistral-common` requires `numpy" in complaints[0]


@pytest.mark.skipif(find_spec("unsloth") is None, reason="Unsloth is not installed in this environment")
def test_unsloth_packs_rows_and_shares_prompts_only_without_vllm():
    """In its text, because importing it needs a GPU; docs/run.md and the configs say so."""
    text = (root_of("unsloth_zoo") / "rl_replacements.py").read_text()
    assert 'os.environ.get("UNSLOTH_GRPO_SEQ_PACKING", "1")' in text
    assert 'bool(_pg_funcs) and not getattr(trainer, "use_vllm", False)' in text


# names that packages import from vLLM


@pytest.mark.parametrize("package", [OURS, "trl", "unsloth", "unsloth_zoo"])
def test_names_imported_from_vllm_are_there(package: str):
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed in this environment")
    files = sorted(root_of(package).rglob("*.py"))
    assert any("from vllm" in file.read_text() for file in files)
    missing = {str(file): missing_in(ast.parse(file.read_text()).body) for file in files}
    assert {file: names for file, names in missing.items() if names} == {}


def test_missing_names_are_found_and_those_of_other_versions_left_out():
    assert imported("from vllm import LLM, Nothing") == ["vllm.Nothing"]
    assert imported("def f():\n    from vllm.nowhere import LLM") == ["vllm.nowhere.LLM"]
    assert imported("if is_vllm_available():\n    from vllm import Nothing") == ["vllm.Nothing"]
    either = "if NEW:\n    from vllm import {}\nelse:\n    from vllm import {}"
    assert imported(either.format("LLM", "Nothing")) == imported(either.format("Nothing", "LLM")) == []
    assert imported(either.format("Nothing", "Nobody")) == ["vllm.Nothing"]
    assert imported("try:\n    from vllm import Nothing\nexcept ImportError:\n    pass") == []
    assert imported('if Version("0.1") > version:\n    from vllm import Nothing') == []


def imported(source: str) -> list[str]:
    return missing_in(ast.parse(source).body)


def missing_in(nodes: Iterable[ast.AST]) -> list[str]:
    """Names that vLLM lacks. One of two branches may have some, and what is tried or for certain versions only."""
    missing: list[str] = []
    for node in nodes:
        match node:
            case ast.ImportFrom(module=str(module), names=names, level=0) if module.partition(".")[0] == "vllm":
                missing += [f"{module}.{alias.name}" for alias in names if not is_there(module, alias.name)]
            case ast.If(body=body, orelse=[_, *_] as orelse):
                fewest: list[str] = min(missing_in(body), missing_in(orelse), key=len)
                missing += fewest
            case ast.If(test=test) if "version" in ast.unparse(test).lower():
                pass
            case ast.Try():
                pass
            case _:
                missing += missing_in(ast.iter_child_nodes(node))
    return missing


def root_of(package: str) -> Path:
    if package == OURS:
        return ROOT / "workflow" / OURS
    spec = find_spec(package)
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent


def is_there(module: str, name: str) -> bool:
    path = file_of(module)
    return path is not None and (name in names_in(path) or file_of(f"{module}.{name}") is not None)


def file_of(module: str) -> Path | None:
    path = root_of("vllm").parent.joinpath(*module.split("."))
    files = (path.with_suffix(".py"), path / "__init__.py")
    return next((file for file in files if file.exists()), None)


@cache
def names_in(path: Path) -> frozenset[str]:
    """Names that a module defines at any depth, or as a key of vLLM's table of lazy names."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.Name(id=name, ctx=ast.Store()):
                names.add(name)
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                names |= {alias.asname or alias.name for alias in aliases}
            case ast.Dict(keys=keys):
                names |= {key.value for key in keys if isinstance(key, ast.Constant) and isinstance(key.value, str)}
    return frozenset(names)


def test_torch_and_vllm_read_how_gpu_memory_grows():
    """torch does after its import, and vLLM's sleep mode turns it off in its own memory only if it sees it."""
    from vllm.device_allocator.alloc_conf import expandable_segments_enabled_from_env

    from arc_refinery.sampling.gpus import ALLOCATOR, GROWING

    assert expandable_segments_enabled_from_env({ALLOCATOR: GROWING})
    program = (
        f"import os, torch; os.environ['{ALLOCATOR}'] = 'nothing:1'; "
        f"torch._C._accelerator_setAllocatorSettings('{GROWING}')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "Unrecognized key 'nothing'" in done.stderr
