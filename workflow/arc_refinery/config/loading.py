"""Read and validate a configuration; all its faults are reported before the first job."""

import os
import sys
import sysconfig
from collections.abc import Mapping
from functools import partial
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, TypeVar, overload

from pydantic import ValidationError

from arc_refinery.config.base import ConfigError, explain, faults_in, faults_of
from arc_refinery.config.experiment import Experiment, Needs, Resources, Wanted
from arc_refinery.config.layers import Layers, read_config
from arc_refinery.config.sampling import BACKENDS
from arc_refinery.errors import InputError
from arc_refinery.models.shape import missing_weights, names_of, weight_names, without_module

_Kind = TypeVar("_Kind", bound=Experiment)
KINDS = {"refining": "arc_refinery.refining", "tool-use": "arc_refinery.tool_use"}  # packages of the built-in kinds
# Packages of what experiments are about
DOMAINS = {name: f"arc_refinery.domains.{name}" for name in ("arc", "code", "gsm8k", "text")}
EXPERIMENT = "config:Experiment"  # packages of both sorts have it


@overload
def validate_experiment(config: Mapping[str, Any], origin: str) -> Experiment: ...
@overload
def validate_experiment(config: Mapping[str, Any], origin: str, expected: type[_Kind]) -> _Kind: ...
def validate_experiment(config: Mapping[str, Any], origin: str, expected: Any = None) -> Any:
    """The experiment that a mapping describes, of any kind, or of the one that is expected.

    A mapping with `base` is merged into the file of that name first, which may have a base, too. Raises `ConfigError`
    with one line for each wrong key, after the file that set it: `origin`, or a base.
    """
    layers = Layers.of(config, origin)
    config, origin = layers.merged(), layers.origin
    kind = _kind(config, origin)
    if expected and not issubclass(kind, expected):
        wanted, actual = (section.model_fields["kind"].default for section in (expected, kind))
        raise ConfigError(f"{origin}: its kind is {actual}; expected an experiment of the kind {wanted}")
    try:
        return kind.model_validate(config)
    except ValidationError as error:
        lines = [layers.blamed(explain(fault, kind)) for fault in faults_of(error)]
        for name in KINDS if "kind" not in config else ():
            others = experiment_class(name, config.get("domain", "arc")).model_fields.keys() - kind.model_fields.keys()
            if keys := others & config.keys():
                lines = [f"{origin}: kind is missing; write `kind: {name}`, which has the key {min(keys)}"]
        raise ConfigError("\n".join(lines)) from None


@overload
def load_experiment(path: Path) -> Experiment: ...
@overload
def load_experiment(path: Path, expected: type[_Kind]) -> _Kind: ...
def load_experiment(path: Path, expected: Any = None) -> Any:
    """Read a config file and validate it, as `validate_experiment` does."""
    return validate_experiment(read_config(path), str(path), expected)


def part(kind: str, name: str) -> Any:
    """Load a module of a kind's package, `stages`, or what it holds, `report:show`. Raises `ConfigError`."""
    return _part("kind", KINDS, kind, name)


def domain_part(domain: str, name: str) -> Any:
    """Load a module of a domain's package, `config`, or what it holds, `domain:Domain`. Raises `ConfigError`."""
    return _part("domain", DOMAINS, domain, name)


def domain_sources(domain: str) -> list[Path]:
    """Return the modules of a package of the user, without its tests: what they decide is made again if one changes."""
    found = find_spec(domain) if domain and domain not in DOMAINS else None
    folders = map(Path, (found and found.submodule_search_locations) or ())
    paths = sorted(path for folder in folders for path in folder.rglob("*.py"))
    sources = [path for path in paths if not path.name.startswith(("test_", "conftest."))]
    return [path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path for path in sources]


def experiment_class(kind: str, domain: str) -> Any:
    """Load the class of the experiments of a kind; those of refining depend on the domain. Raises `ConfigError`."""
    if kind == "refining":
        key, value, named = "domain", domain, "refining.config.RowsExperiment"
        own, base = domain_part(domain, EXPERIMENT), part(kind, "config:Refining")
    else:
        key, value, named = "kind", kind, "config.Experiment"
        own, base = part(kind, EXPERIMENT), Experiment
    if not isinstance(own, type) or not issubclass(own, base) or key not in getattr(own, "model_fields", ()):
        raise ConfigError(
            f"{key} is {value}, but its {EXPERIMENT} is not a subclass of arc_refinery.{named} (docs/development.md)"
        )
    return own


def _part(key: str, built_in: Mapping[str, str], package: str, name: str) -> Any:
    if package in built_in:
        return resolve_name(f"{built_in[package]}.{name}")
    expected = f"{key} is {package!r:.100}; expected {', '.join(built_in)}, or"
    if not all(word.isidentifier() for word in package.split(".")):
        raise ConfigError(f"{expected} the package of a {key} of your own")
    try:
        return resolve_name(f"{package}.{name}")
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 (a module of the user may raise anything)
        raise ConfigError(
            f"{expected} a package with {name} (docs/development.md): {type(error).__name__}: {error!s:.200}"
        ) from None


def _kind(config: Mapping[str, Any], origin: str) -> type[Experiment]:
    """Return the class of an experiment."""
    kind, domain = config.get("kind", "refining"), config.get("domain", "arc")
    for key, name, built_in in (("kind", kind, KINDS), ("domain", domain, DOMAINS)):
        if not isinstance(name, str):
            raise ConfigError(
                f"{origin}: {key} is {name!r:.100}; expected {', '.join(built_in)}, or the package of a {key}"
            )
    try:
        own: type[Experiment] = experiment_class(kind, domain)
    except ConfigError as error:
        raise ConfigError(f"{origin}: {error}") from None
    return own


def check_files(
    experiment: Experiment, origin: str, contents: bool = True, config: Mapping[str, Any] | None = None
) -> None:
    """Raise `ConfigError` if files or folders that the config names do not exist or have unusable `contents`.

    `config` has the keys of the file `origin`, to blame its base for those that it inherits.
    """
    own = "a Python file, relative to this folder"
    wanted = [*experiment.files_named(), *_environments(experiment.resources)]
    wanted += [Wanted(key, code.path, own) for key, code, _ in experiment.own_functions]
    faults = [fault for file in wanted if (fault := file.fault)]
    if not faults and contents:
        functions = ((key, partial(code.check_function, example)) for key, code, example in experiment.own_functions)
        faults = [*experiment.faults_of_contents(), *faults_in(functions)]
        if folder := experiment.model.folder:
            missing = missing_weights(folder)
            faults += [f"{folder / name}: no such file; expected the weights of the model" for name in missing[:1]]
        faults += [*_faults_of_lora(experiment), *_faults_of_places(experiment)]
    if faults:
        raise ConfigError("\n".join(map(Layers.of(config or {}, origin).blamed, faults)))


def _faults_of_places(experiment: Experiment) -> list[str]:
    """Return which of the places where results and logs are written are taken by something of another sort."""
    name = experiment.experiment
    folders = [Path(folder, *below) for folder in ("results", "logs") for below in ((), (name,))]
    files = [Path("results", name, "settings.json"), *(Path("results", f"{name}{end}") for end in (".md", ".html"))]
    return [
        *(f"{path} is a file, but a folder is written there; move it away" for path in folders if path.is_file()),
        *(f"{path} is a folder, but a file is written there; move it away" for path in files if path.is_dir()),
    ]


def _faults_of_lora(experiment: Experiment) -> list[str]:
    """Return which target modules the model lacks, by the names of the weights in its folder, if it is here."""
    model, training = experiment.model, experiment.training
    if not training or not model.folder:
        return []
    try:
        weights = weight_names(model.folder)
    except InputError as error:
        return [f"model.path: {error}"]
    if not weights:
        return []
    if any(".experts." in name for name in weights):
        return []  # transformers renames these weights
    # without norms, which have no matrix; lm_head may be the embedding's
    modules = [*(name.removesuffix(".weight") for name in weights if not name.endswith("norm.weight")), "lm_head"]
    targets = [training.lora.target_modules, *(run.lora.target_modules for run in experiment.runs.values())]
    unknown = without_module(dict.fromkeys(chain.from_iterable(targets)), modules)
    available = ", ".join(names_of(modules))
    return [f"training.lora.target_modules: {model.path} has no module {name}; it has {available}" for name in unknown]


def _environments(resources: Resources) -> list[Wanted]:
    what = "a virtual environment with this package (pip install -e . with its pip)"
    venvs = {kind: getattr(resources, kind).venv for kind in Resources.model_fields}
    files = {kind: Path(venv, "bin", "arc-refinery") for kind, venv in venvs.items() if venv}
    return [Wanted(f"resources.{kind}.venv", file, what) for kind, file in files.items()]


def environment_warnings(experiment: Experiment, origin: str) -> list[str]:
    """Return a line for each kind of job whose environment lacks what its settings need: vLLM, or torch for GPUs."""
    if any(map(os.environ.get, ("ARC_REFINERY_IMAGE", "ARC_REFINERY_ENVIRONMENT"))):  # they have all jobs' packages
        return []
    sampler = experiment.sampler
    sampling = [("model.backend", str(sampler.backend), sampler.backend)] if sampler else []
    samplers_of_runs = {run.grpo.sampler for run in experiment.runs.values()}
    trainings = [
        ("training.grpo.sampler", name, backend)
        for name in samplers_of_runs
        for backend in BACKENDS
        if backend == name.partition("-")[0]  # of `vllm-colocate` `vllm`
    ]
    warnings = []
    for kind, settings in (("sample", sampling), ("train", trainings)):
        needs: Needs = getattr(experiment.resources, kind)  # both kinds may ask for GPUs
        packages = Path(sysconfig.get_path("purelib"))
        if needs.venv:
            packages = next(Path(needs.venv).glob("lib/python3*/site-packages"), Path(needs.venv))
        needed = {f"{BACKENDS[name].title} ({key}: {value})": BACKENDS[name].package for key, value, name in settings}
        lacking = sorted(what for what, package in needed.items() if package and not any(packages.glob(f"*{package}*")))
        if needs.gpus and (kind == "sample" or experiment.training) and any(packages.glob("torch-*+cpu.dist-info")):
            lacking.append(f"a torch for GPUs (resources.{kind}.gpus: {needs.gpus})")
        if lacking:
            warnings.append(
                f"{origin}: {kind} jobs need {' and '.join(lacking)}, but {needs.venv or sys.prefix} lacks it; set "
                f"resources.{kind}.venv to the environment that `make gpu-env` makes (docs/run.md)"
            )
    return warnings
