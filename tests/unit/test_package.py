"""What `pip install` installs with the package: all that it imports, in versions that the pinned sets have."""

import ast
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from checkout import ROOT, TINY
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from arc_refinery import cli

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OF_MODELS = PROJECT["optional-dependencies"]["train"]
DECLARED = {canonicalize_name(r.name): r for r in map(Requirement, [*PROJECT["dependencies"], *OF_MODELS])}
# Modules that a model behind an address needs, from the config to the report
WITHOUT_WEIGHTS = ["cli", "config", "doctor", "domains", "evaluation", "refining.report", "refining.stages"]
WITHOUT_WEIGHTS += ["reporting", "runs", "sampling.endpoint", "sandbox", "stages"]
OF_MODELS_NAMES = [Requirement(line).name for line in OF_MODELS]
# Imported only where they are: on GPUs, or with an executor of Snakemake
OPTIONAL = {"pynvml", "unsloth", "vllm", "classad2", "htcondor2"}
OF_ANOTHER = {"pydantic_core": "pydantic"}  # which pins it


def imported() -> dict[str, str]:
    """Third-party modules, each with a file that imports it."""
    modules: dict[str, str] = {}
    for path in sorted((ROOT / "workflow/arc_refinery").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module]
            modules |= {name.partition(".")[0]: str(path.relative_to(ROOT)) for name in names}
    own = {path.stem for path in (ROOT / "workflow/arc_refinery/barc/common").iterdir()}  # as programs import them
    ours = {*sys.stdlib_module_names, *own, "arc_refinery"}
    return {name: path for name, path in modules.items() if name not in ours}


def test_the_message_for_the_extra_train_knows_its_packages():
    assert sorted(cli.OF_MODELS) == sorted(OF_MODELS_NAMES)


@pytest.mark.slow
def test_what_the_package_imports_is_declared():
    distributions = packages_distributions()
    needed = {
        canonicalize_name(OF_ANOTHER.get(name) or distributions[name][0]): path
        for name, path in imported().items()
        if name not in OPTIONAL
    }
    assert {name: path for name, path in needed.items() if name not in DECLARED} == {}


@pytest.mark.slow
def test_what_asks_a_server_needs_no_package_of_the_extra_train(tmp_path: Path):
    program = f"""
import importlib, pkgutil, sys
class Nothing:
    def find_spec(self, name, *_):
        if name.partition(".")[0] in {OF_MODELS_NAMES}:
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Nothing())
for name in {WITHOUT_WEIGHTS}:
    module = importlib.import_module("arc_refinery." + name)
    for found in pkgutil.walk_packages(getattr(module, "__path__", []), module.__name__ + "."):
        importlib.import_module(found.name)
from arc_refinery.cli import main
words = "sample --dataset-path {ROOT}/examples/tasks --base-model-path {TINY} --output-folder {tmp_path}/new"
sys.argv[1:] = words.split()
main()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert "is not installed here" in done.stderr.splitlines()[-1]
    assert "pip install 'arc-refinery[train]'" in done.stderr


@pytest.mark.parametrize("name", ["cpu.txt", "gpu.txt", "gpu-unsloth.txt"])
def test_each_set_pins_what_is_declared_in_a_version_of_its_range(name: str):
    lines = [line for line in (ROOT / "envs" / name).read_text().splitlines() if "==" in line and line[0] != "#"]
    pins = {canonicalize_name(pin.name): pin for pin in map(Requirement, lines)}
    wanted = DECLARED | {
        canonicalize_name(one.name): one
        for extra in PROJECT["optional-dependencies"].values()
        for one in map(Requirement, extra)
        if one.name != PROJECT["name"]  # one extra is part of others
    }
    checked = {name: pin for name, pin in pins.items() if name in wanted}
    assert DECLARED.keys() - pins.keys() == set()
    wrong = [
        (str(pin), str(wanted[name]))
        for name, pin in checked.items()
        if not wanted[name].specifier.contains(str(pin.specifier).removeprefix("=="))
    ]
    assert wrong == []
