"""What `pip install` installs with the package: all that it imports, in versions that the pinned sets have."""

import ast
import sys
import tomllib
from importlib.metadata import packages_distributions

import pytest
from checkout import ROOT
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
DECLARED = {canonicalize_name(one.name): one for one in map(Requirement, PROJECT["dependencies"])}
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


@pytest.mark.slow
def test_what_the_package_imports_is_declared():
    distributions = packages_distributions()
    needed = {
        canonicalize_name(OF_ANOTHER.get(name) or distributions[name][0]): path
        for name, path in imported().items()
        if name not in OPTIONAL
    }
    assert {name: path for name, path in needed.items() if name not in DECLARED} == {}


@pytest.mark.parametrize("name", ["cpu.txt", "gpu.txt", "gpu-unsloth.txt"])
def test_each_set_pins_what_is_declared_in_a_version_of_its_range(name: str):
    lines = [line for line in (ROOT / "envs" / name).read_text().splitlines() if "==" in line and line[0] != "#"]
    pins = {canonicalize_name(pin.name): pin for pin in map(Requirement, lines)}
    wanted = DECLARED | {
        canonicalize_name(one.name): one
        for extra in PROJECT["optional-dependencies"].values()
        for one in map(Requirement, extra)
    }
    checked = {name: pin for name, pin in pins.items() if name in wanted}
    assert DECLARED.keys() - pins.keys() == set()
    wrong = [
        (str(pin), str(wanted[name]))
        for name, pin in checked.items()
        if not wanted[name].specifier.contains(str(pin.specifier).removeprefix("=="))
    ]
    assert wrong == []
