"""Read and validate a configuration; all its faults are reported before the first job."""

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial, singledispatch
from importlib import import_module
from itertools import chain
from os.path import exists, isdir, isfile
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar, overload

from pydantic import ValidationError

from arc_refinery.arc.kaggle import read_ids, read_set, task_files
from arc_refinery.config.base import ConfigError, explain
from arc_refinery.config.experiment import Experiment
from arc_refinery.config.own_code import OwnCode
from arc_refinery.config.refining import Refining
from arc_refinery.config.resources import Resources
from arc_refinery.config.sampling import LEARNED, ModelConfig
from arc_refinery.config.tasks import TaskSet
from arc_refinery.config.tool_signatures import signatures
from arc_refinery.config.tool_use import ToolUse
from arc_refinery.config.yaml_files import read_yaml
from arc_refinery.errors import InputError
from arc_refinery.models.shape import names_of, weight_names, without_module
from arc_refinery.prompts import load_template, template_files
from arc_refinery.reading import in_words, read_json

_Kind = TypeVar("_Kind", bound=Experiment)
KINDS: dict[str, type[Experiment]] = {"refining": Refining, "tool-use": ToolUse}

READ_AT_PLANNING = 10 * 2**20  # bytes of an evaluation set; ARC-AGI-2's 1,000 training tasks have 6 MB
GZIP_RATIO = 20  # of files of grids


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
        wanted, given = (one.model_fields["kind"].default for one in (expected, kind))
        raise ConfigError(f"{origin}: its kind is {given}; expected an experiment of the kind {wanted}")
    if unknown := _unknown_nulls(kind, with_nulls):
        raise ConfigError("\n".join(f"{origin}: {line}" for line in unknown))
    try:
        return kind.model_validate(config)
    except ValidationError as error:
        # pydantic also calls a list empty if its only item is wrong
        problems = [one for one in error.errors() if one["type"] != "too_short" or not one["input"]]
        lines = [explain(problem) for problem in problems]
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
        return [explain(one) for one in error.errors() if one["type"] == "extra_forbidden" and one["input"] is None]
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


def _kind(config: Mapping[str, Any], origin: str) -> type[Experiment]:
    """Return the class of an experiment; without `kind`, the section `data` shows one in tool use."""
    name = config.get("kind", "tool-use" if "data" in config else "refining")
    wrong = f"{origin}: kind is {name!r:.100}; expected {', '.join(KINDS)}, or a module with an experiment of your own"
    if not isinstance(name, str) or not all(part.isidentifier() for part in name.replace("-", "_").split(".")):
        raise ConfigError(wrong)
    if name in KINDS:
        return KINDS[name]
    try:
        own = import_module(name).Experiment
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 (a module of the user may raise anything)
        raise ConfigError(f"{wrong} (docs/development.md): {type(error).__name__}: {error!s:.200}") from None
    if not isinstance(own, type) or not issubclass(own, Experiment) or not hasattr(own, "rules"):
        raise ConfigError(
            f"{wrong} (docs/development.md): its `Experiment` must be a subclass of "
            "arc_refinery.config.Experiment with `rules`"
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


class Wanted(NamedTuple):
    """A file or folder that a config names."""

    key: str  # that names it
    path: Path
    what: str  # is expected
    form: Literal["file", "folder", "either"] = "file"

    @property
    def fault(self) -> str:
        """What is wrong with the path; empty if nothing is."""
        is_file, is_folder = isfile(self.path), isdir(self.path)  # False also for names that no file can have
        if not is_file and not is_folder:
            there = "is neither a file nor a folder" if exists(self.path) else "does not exist"
            return f"{self.key}: {self.path} {there}; expected {self.what}"
        if (is_folder and self.form == "file") or (is_file and self.form == "folder"):
            return f"{self.key}: {self.path} is a {'folder' if is_folder else 'file'}; expected {self.what}"
        return ""


def check_files(experiment: Experiment, origin: str, contents: bool = True) -> None:
    """Raise `ConfigError` if files or folders that the config names do not exist or have unusable `contents`."""
    wanted = [*files_named(experiment), *_environments(experiment.resources)]
    faults = [fault for one in wanted if (fault := one.fault)]
    if not faults and contents:
        faults = [*faults_of_contents(experiment), *_faults_of_lora(experiment), *_faults_of_places(experiment)]
    if faults:
        raise ConfigError("\n".join(f"{origin}: {fault}" for fault in faults))


@singledispatch
def files_named(experiment: Experiment) -> list[Wanted]:
    """Files and folders that a config names. Each kind of experiment registers its own."""
    return [_model_folder("model", experiment.model)]


@files_named.register
def _(experiment: Refining) -> list[Wanted]:
    wanted = [_model_folder(key, model) for key, model in experiment.all_models.items()]
    what = "a file of a folder that `arc-refinery prompts learn` wrote, or the template `compact`, `words` or `learned`"
    if experiment.model.template != LEARNED:
        wanted += [Wanted("model.template", path, what) for path in template_files(experiment.model.template)[:1]]
    if experiment.template_rows and experiment.template_rows.path:
        path = Path(experiment.template_rows.path)
        wanted.append(Wanted("template_rows.path", path, "rows, or a folder of them", "either"))
    if experiment.problems and experiment.problems.source == "file":
        wanted.append(Wanted("problems.path", Path(str(experiment.problems.path)), "a file of BARC rows"))
    for number, task_set in enumerate(experiment.evaluation.sets):
        key = f"evaluation.sets.{number}"
        if task_set.only:
            wanted.append(Wanted(f"{key}.only", Path(task_set.only), "a text file of task ids"))
        if task_set.path:
            wanted.append(Wanted(f"{key}.path", Path(task_set.path), "a JSON file of tasks, or a folder", "either"))
        if task_set.solutions:
            wanted.append(Wanted(f"{key}.solutions", Path(task_set.solutions), "a JSON file of outputs"))
    return wanted


@files_named.register
def _(experiment: ToolUse) -> list[Wanted]:
    wanted = [_model_folder("model", experiment.model)]
    for side in ("train", "heldout"):
        for number, questions in enumerate(getattr(experiment.data, side)):
            if questions.source == "file":
                what = f"a file of rows of {questions.form}"
                wanted.append(Wanted(f"data.{side}.{number}.path", Path(questions.path), what))
    if experiment.data.files:
        what = "a folder with one folder per question"
        wanted.append(Wanted("data.files", Path(experiment.data.files), what, "folder"))
    for key, tool in experiment.all_tools.items():
        if tool.own_code:
            wanted.append(Wanted(key, tool.own_code.path, "a Python file, relative to this folder"))
        if tool.corpus_file:
            wanted.append(Wanted(f"{key}.corpus", tool.corpus_file, "a file of passages"))
    what = "a Python file, relative to this folder"
    return [*wanted, *(Wanted(key, code.path, what) for key, code, _ in _functions(experiment))]


def _functions(experiment: ToolUse) -> list[tuple[str, OwnCode, str]]:
    """The user's functions of an episode: the key that names one, its code, and how its first line should look."""
    rewards = {f"training.grpo.rewards.{number}": term.reward for number, term in enumerate(experiment.rewards)}
    named = [(key, reward, "def score(episode):") for key, reward in rewards.items()]
    named += [(key, user, "def reply(episode):") for key, user in experiment.all_users.items()]
    return [(key, code, example) for key, name, example in named if (code := OwnCode.parse(name))]


@singledispatch
def faults_of_contents(experiment: Experiment) -> list[str]:
    """Return what is wrong inside files that a config names. Kinds of experiment register their own."""
    return []


@faults_of_contents.register
def _(experiment: Refining) -> list[str]:
    checks: dict[str, Callable[[], Any]] = {}
    if experiment.model.template != LEARNED:
        checks["model.template"] = partial(load_template, experiment.model.template, experiment.model.colors)
    for number, task_set in enumerate(experiment.evaluation.sets):
        checks[f"evaluation.sets.{number}"] = partial(_check_tasks, task_set)
    faults = []
    for key, check in checks.items():
        try:
            check()
        except InputError as error:
            faults.append(f"{key}: {error}")
    return faults


def _check_tasks(task_set: TaskSet) -> None:
    """Raise `InputError` if a job could not read the set; large files are left to the job."""
    read_ids(task_set.only)
    if not task_set.path:
        return
    paths = [Path(path) for path in (task_set.path, task_set.solutions) if path]
    files = [file for path in paths for file in (task_files(path) if path.is_dir() else [path])]
    if sum(file.stat().st_size * (GZIP_RATIO if file.suffix == ".gz" else 1) for file in files) <= READ_AT_PLANNING:
        solutions = paths[1] if task_set.solutions else None
        read_set(paths[0], solutions, task_set.only, task_set.leave_out_too_large, Counter())


@faults_of_contents.register
def _(experiment: ToolUse) -> list[str]:
    faults = []
    names: dict[str, list[str]] = {}  # of the tools of each list
    for key, tool in experiment.all_tools.items():
        try:
            found = [one.name for one in signatures(tool.own_code)] if tool.own_code else [tool.tool]
        except InputError as error:
            faults.append(f"{key}: {error}")
            continue
        taken = names.setdefault(key.rpartition(".")[0], [])
        faults += [f"{key}: a second tool is called {name}; rename or remove one" for name in found if name in taken]
        taken += found
    for key, code, example in _functions(experiment):
        try:
            code.check_function(example)
        except InputError as error:
            faults.append(f"{key}: {error}")
    return faults


def _faults_of_places(experiment: Experiment) -> list[str]:
    """Return which of the places where results and logs are written are taken by something of another sort."""
    name = experiment.experiment
    folders = [Path(one, *below) for one in ("results", "logs") for below in ((), (name,))]
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
    known = ", ".join(names_of(modules))
    return [f"training.lora.target_modules: {model.path} has no module {name}; it has {known}" for name in unknown]


def _model_folder(key: str, model: ModelConfig) -> Wanted:
    """The model's config.json; for hub names, a path that always exists."""
    folder = Path() if model.download else Path(model.path, "config.json")
    return Wanted(f"{key}.path", folder, "a folder with a model, or a hub name", "either")


def _environments(resources: Resources) -> list[Wanted]:
    what = "a virtual environment with this package (pip install -e . with its pip)"
    venvs = {kind: getattr(resources, kind).venv for kind in ("sample", "train")}
    files = {kind: Path(venv, "bin", "arc-refinery") for kind, venv in venvs.items() if venv}
    return [Wanted(f"resources.{kind}.venv", file, what) for kind, file in files.items()]
