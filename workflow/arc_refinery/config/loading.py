"""Read and validate a configuration; all its faults are reported before the first job."""

from collections.abc import Hashable, Mapping
from itertools import chain
from os.path import exists
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, TypeVar, overload

import yaml
from pydantic import ValidationError

from arc_refinery.config.base import ConfigError, explain, faults_of
from arc_refinery.config.experiment import Experiment, Resources, Wanted
from arc_refinery.errors import InputError
from arc_refinery.files import in_words, read_json, read_text
from arc_refinery.models.shape import names_of, weight_names, without_module

_Kind = TypeVar("_Kind", bound=Experiment)
KINDS = {"refining": "arc_refinery.refining", "tool-use": "arc_refinery.tool_use"}  # packages of the built-in kinds


@overload
def validate_experiment(config: Mapping[str, Any], origin: str) -> Experiment: ...
@overload
def validate_experiment(config: Mapping[str, Any], origin: str, expected: type[_Kind]) -> _Kind: ...
def validate_experiment(config: Mapping[str, Any], origin: str, expected: Any = None) -> Any:
    """The experiment that a mapping describes, of any kind, or of the one that is expected.

    A mapping with `base` is merged into the file of that name first (`merged`), which may have a base, too. Raises
    `ConfigError` with one line for each wrong key of the file `origin`.
    """
    config, with_nulls, origin = _with_base(config, origin)
    kind = _kind(config, origin)
    if expected not in (None, kind):
        wanted, actual = (section.model_fields["kind"].default for section in (expected, kind))
        raise ConfigError(f"{origin}: its kind is {actual}; expected an experiment of the kind {wanted}")
    if unknown := _unknown_nulls(kind, with_nulls):
        raise ConfigError("\n".join(f"{origin}: {line}" for line in unknown))
    try:
        return kind.model_validate(config)
    except ValidationError as error:
        lines = [explain(fault) for fault in faults_of(error)]
        for name in KINDS if "kind" not in config else ():
            others = part(name, "config:Experiment").model_fields.keys() - kind.model_fields.keys()
            if keys := others & config.keys():
                lines = [f"kind is missing; write `kind: {name}`, which has the key {min(keys)}"]
        raise ConfigError("\n".join(f"{origin}: {line}" for line in lines)) from None


@overload
def load_experiment(path: Path) -> Experiment: ...
@overload
def load_experiment(path: Path, expected: type[_Kind]) -> _Kind: ...
def load_experiment(path: Path, expected: Any = None) -> Any:
    """Read a config file and validate it, as `validate_experiment` does."""
    return validate_experiment(_content(path), str(path), expected)


def merged(base: Mapping[str, Any], changes: Mapping[str, Any], keeps_nulls: bool = False) -> dict[str, Any]:
    """Section by section; anything else, a list too, is replaced. `key: null` removes the base's key.

    With `keeps_nulls`, a null for a key that the base lacks stays.

    >>> merged({"grpo": {"beta": 0.02, "epochs": 1}, "compare": ["a", "b"]}, {"grpo": {"beta": 0.0}, "compare": None})
    {'grpo': {'beta': 0.0, 'epochs': 1}}
    """
    result = dict(base)
    for key, value in changes.items():
        if value is None and (key in result or not keeps_nulls):
            result.pop(key, None)
        elif isinstance(value, Mapping) and isinstance(result.get(key), Mapping):
            result[key] = merged(result[key], value, keeps_nulls)
        else:
            result[key] = value
    return result


def _unknown_nulls(kind: type[Experiment], config: Mapping[str, Any]) -> list[str]:
    """Return the faults of keys that are null and that the experiment does not know: they may be misspelt."""
    try:
        kind.model_validate(config)
    except ValidationError as error:
        return [explain(e) for e in error.errors() if e["type"] == "extra_forbidden" and e["input"] is None]
    return []


def _with_base(config: Mapping[str, Any], origin: str) -> tuple[Mapping[str, Any], Mapping[str, Any], str]:
    """Return the config merged into its base, that one into its own, and the files to blame for a wrong key.

    The second one still has the keys that are null and remove nothing.
    """
    if "base" not in config:
        return config, {}, origin
    if "experiment" not in config:
        raise ConfigError(
            f"{origin}: experiment is missing; name this experiment, or its results would replace those of its base"
        )
    layers, files = [config], [origin]
    while "base" in layers[-1]:
        base = layers[-1]["base"]
        if not isinstance(base, str) or not base:
            raise ConfigError(f"{files[-1]}: base is {base!r}; expected the path of a config file")
        layers.append(_content(Path(base), f"{files[-1]}: base: "))
        if base in files:
            raise ConfigError(f"{origin}: the bases {', '.join([*files[1:], base])} form a circle; remove one")
        files.append(base)
    whole: dict[str, Any] = {}
    with_nulls: dict[str, Any] = {}
    for layer in reversed(layers):
        changes = {key: value for key, value in layer.items() if key != "base"}
        whole, with_nulls = merged(whole, changes), merged(with_nulls, changes, keeps_nulls=True)
    return whole, with_nulls, f"{origin} (or its base {', '.join(files[1:])})"


def part(kind: str, name: str) -> Any:
    """Load a module of a kind's package, `stages`, or what it holds, `config:Experiment`. Raises `ConfigError`."""
    if kind in KINDS:
        return resolve_name(f"{KINDS[kind]}.{name}")
    if not all(word.isidentifier() for word in kind.split(".")):
        raise ConfigError(f"kind is {kind!r:.100}; expected {', '.join(KINDS)}, or the package of a kind of your own")
    try:
        return resolve_name(f"{kind}.{name}")
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 (a module of the user may raise anything)
        raise ConfigError(
            f"kind is {kind!r:.100}; expected {', '.join(KINDS)}, or a package with {name} "
            f"(docs/development.md): {type(error).__name__}: {error!s:.200}"
        ) from None


def _kind(config: Mapping[str, Any], origin: str) -> type[Experiment]:
    """Return the class of an experiment."""
    name = config.get("kind", "refining")
    if not isinstance(name, str):
        raise ConfigError(f"{origin}: kind is {name!r:.100}; expected {', '.join(KINDS)}, or the package of a kind")
    try:
        own = part(name, "config:Experiment")
    except ConfigError as error:
        raise ConfigError(f"{origin}: {error}") from None
    if not isinstance(own, type) or not issubclass(own, Experiment):
        raise ConfigError(
            f"{origin}: kind is {name}, but its config:Experiment is not a subclass of arc_refinery.config.Experiment "
            "(docs/development.md)"
        )
    return own


def _content(path: Path, where: str = "") -> dict[str, Any]:
    if not exists(path):
        advice = "give a config with --configfile" if not where else "expected a config, relative to this folder"
        raise ConfigError(f"{where}{path}: no such file; {advice}")
    if path.suffix != ".json":
        return read_yaml(path, where)
    content = read_json(path, "the settings of an experiment")
    if not isinstance(content, dict):
        raise ConfigError(f"{where}{path}: expected an object, found {in_words(content)}")
    return content


def check_files(experiment: Experiment, origin: str, contents: bool = True) -> None:
    """Raise `ConfigError` if files or folders that the config names do not exist or have unusable `contents`."""
    own = "a Python file, relative to this folder"
    wanted = [*experiment.files_named(), *_environments(experiment.resources)]
    wanted += [Wanted(key, code.path, own) for key, code, _ in experiment.own_functions]
    faults = [fault for file in wanted if (fault := file.fault)]
    if not faults and contents:
        faults = [*experiment.faults_of_contents(), *_faults_of_functions(experiment)]
        faults += [*_faults_of_lora(experiment), *_faults_of_places(experiment)]
    if faults:
        raise ConfigError("\n".join(f"{origin}: {fault}" for fault in faults))


def _faults_of_functions(experiment: Experiment) -> list[str]:
    faults = []
    for key, code, example in experiment.own_functions:
        try:
            code.check_function(example)
        except InputError as error:
            faults.append(f"{key}: {error}")
    return faults


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
    if not training or model.download:
        return []
    try:
        weights = weight_names(Path(model.path))
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
    venvs = {kind: getattr(resources, kind).venv for kind in ("sample", "train")}
    files = {kind: Path(venv, "bin", "arc-refinery") for kind, venv in venvs.items() if venv}
    return [Wanted(f"resources.{kind}.venv", file, what) for kind, file in files.items()]


class _Loader(yaml.SafeLoader):
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen = set()
        for key, _ in node.value:
            if key.tag != "tag:yaml.org,2002:merge" and isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise yaml.MarkedYAMLError(problem=f"{key.value} is there twice", problem_mark=key.start_mark)
                seen.add(key.value)
        return super().construct_mapping(node, deep)

    def construct_scalar(self, node: yaml.ScalarNode | yaml.MappingNode) -> str:
        str(node.value).encode()  # raises ValueError for half a surrogate pair, which no file can hold
        return str(super().construct_scalar(node))


def read_yaml(path: Path, where: str = "") -> dict[str, Any]:
    """Return the keys of a YAML file; `where` precedes its name in messages. Raises `ConfigError`."""
    text = read_text(path, "a config in YAML")
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        content = None if node is None else loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f", line {mark.line + 1}" if mark else ""
        raise ConfigError(f"{where}{path}{line}: cannot be read as YAML: {error.problem or error.context}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: also an integer of too many digits
        is_deep = isinstance(error, RecursionError)
        reason = "its sections are nested too deeply" if is_deep else str(error).partition("\n")[0]
        raise ConfigError(f"{where}{path}: cannot be read as YAML: {reason}") from None
    if not isinstance(content, dict):
        kind = "nothing" if content is None else in_words(content)
        raise ConfigError(f"{where}{path}: expected a mapping of keys, found {kind}")
    return content
