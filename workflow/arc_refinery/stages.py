"""Stages: plain functions of sections of the config, and of the files that a rule gives; `run` calls one for a job.

    def grade(domain: Domain, sandbox: Sandbox, seed: Seed, *, attempts: Files, tasks: Path, output: Verdicts) -> None

Positional arguments are the job's settings (jobs.py), validated by their types: where a domain has its own class of a
section, by that. Keyword arguments are flags: files, and numbers that a rule knows. A mark `Writes` says what an output
is, so that nothing else is replaced. Modules that take long to import are imported when a stage runs.
"""

import inspect
import os
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin, get_type_hints

from pydantic import AfterValidator, TypeAdapter, ValidationError

from arc_refinery.config import KINDS, Experiment, Imitation, Lora, ModelConfig, Seed, experiment_class, part
from arc_refinery.config.base import explain, faults_of
from arc_refinery.config.layers import merged
from arc_refinery.errors import InputError
from arc_refinery.files import decode_json
from arc_refinery.models.hub import Download, fetch_repository
from arc_refinery.outputs import Writes, adapter, check_outputs, checkpoints, curves, flag_of, lines, links
from arc_refinery.sampling.gpus import keep_gpus, let_segments_grow

if TYPE_CHECKING:
    from arc_refinery.training.sft import SftRow

NO_DEMONSTRATIONS = (
    "For refining, a task needs an attempt that ran to valid outputs and is wrong, and a correct program "
    "(training.sft.demonstrations.targets): sample more. For tool use, a question "
    "needs a worked solution whose results the tools give. What is too long needs a larger "
    "training.max_seq_length and max_completion_length, or generation.max_episode_tokens"
)
Stage = Callable[..., None]


def _named_once(paths: tuple[Path, ...]) -> tuple[Path, ...]:
    places = [os.path.realpath(path) for path in paths]
    if twice := [path for path, place in zip(paths, places, strict=True) if places.count(place) > 1]:
        raise ValueError(f"names {twice[-1]} twice; remove one")
    return paths


Files = Annotated[tuple[Path, ...], AfterValidator(_named_once)]
# What a training writes
Adapter = Annotated[Path, Writes(adapter)]
Checkpoints = Annotated[Path, Writes(checkpoints)]
Curves = Annotated[Path, Writes(curves)]
Measurements = Annotated[Path, Writes(lines, "step")]


# A job


def run(words: Sequence[str]) -> None:
    """Do the job of a command line: `<stage> <settings> [--tuning <settings>] [--<flag> <value>...]...`."""
    if not words or {"-h", "--help"} & set(words):
        name = words[0] if words and not words[0].startswith("-") else ""
        if name and not any(name in stages_of(kind) for kind in KINDS):
            raise InputError(f"{name} is not a stage; `arc-refinery stage --help` lists them")
        print(usage(name))
        return
    name, *rest = words
    settings, flags = _json("its first argument", rest[:1]), _flags(rest[1:])
    settings = merged(settings, _json("--tuning", flags.pop("tuning", ["{}"])))
    print(f"$ arc-refinery stage {shlex.join(words)}", file=sys.stderr)  # a job is repeated by a line of its log
    call(name, settings, flags)


def call(name: str, settings: Mapping[str, Any], flags: Mapping[str, list[str]]) -> None:
    """Check a job, and do it. Raises `InputError`."""
    kind = str(settings.get("kind", "refining"))
    stage = load(name, kind)
    experiment = experiment_class(kind, str(settings.get("domain", "arc")))
    arguments = validated(stage, settings, flags, experiment)
    hints = get_type_hints(stage, include_extras=True)
    marks = [(argument, mark) for argument in arguments for mark in getattr(hints[argument], "__metadata__", ())]
    outputs = {argument: mark.outputs(arguments[argument]) for argument, mark in marks if isinstance(mark, Writes)}
    check_outputs(arguments, outputs)
    stage(**arguments)


def load(name: str, kind: str) -> Stage:
    """Return a stage of a kind of experiment. Raises `InputError`."""
    if name not in (names := stages_of(kind)):
        raise InputError(f"{name} is not a stage of the kind {kind}; expected {', '.join(names)}")
    common: dict[str, Stage] = {"fetch": fetch, "sft": sft}
    stage: Stage = common.get(name) or part(kind, f"stages:{name}")
    return stage


def stages_of(kind: str) -> list[str]:
    """Names of the stages of a kind of experiment, in running order."""
    return ["fetch", *part(kind, "stages:STAGES"), "sft", "train"]


def validated(
    stage: Stage, settings: Mapping[str, Any], flags: Mapping[str, Sequence[str]], experiment: type[Experiment]
) -> dict[str, Any]:
    """Return the arguments of a stage, of their types. Raises `InputError` with a line per fault."""
    hints, parameters = get_type_hints(stage, include_extras=True), inspect.signature(stage).parameters
    arguments = {}
    known_flags = {name for name, parameter in parameters.items() if parameter.kind is parameter.KEYWORD_ONLY}
    known_settings = {"kind", "domain", *parameters} - known_flags
    faults = [f"{name} is not known; see --help" for name in settings if name not in known_settings]
    faults += [f"{flag_of(name)} is not known; see --help" for name in flags if name not in known_flags]
    for name, parameter in parameters.items():
        is_flag = name in known_flags
        given, label = (flags, flag_of(name)) if is_flag else (settings, name)
        if name not in given or (is_flag and not given[name] and parameter.default is parameter.empty):
            if parameter.default is parameter.empty:
                faults.append(f"{label} is missing; see --help")
            continue
        value, hint = given[name], hints[name]
        if is_flag and get_origin(_bare(hint)) is not tuple:
            if len(value) > 1:
                faults.append(f"{label} has {len(value)} values; expected one")
                continue
            value = value[0] if value else None
        try:
            arguments[name] = TypeAdapter(experiment.section_types().get(name, hint)).validate_python(value)
        except ValidationError as error:
            faults += [explain({**fault, "loc": (label, *fault["loc"])}) for fault in faults_of(error)]
    if faults:
        raise InputError("\n".join(f"stage {stage.__name__}: {fault}" for fault in faults))
    return arguments


def _bare(hint: Any) -> Any:
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def _json(where: str, words: Sequence[str]) -> dict[str, Any]:
    expected = "settings as one word of JSON: '{\"seed\": 0}'"
    if len(words) != 1:
        raise InputError(f"stage: {where} is missing; expected {expected}")
    settings: dict[str, Any] = decode_json(words[0], f"stage: {where}", expected, dict[str, Any])
    return settings


def _flags(words: Sequence[str]) -> dict[str, list[str]]:
    flags: dict[str, list[str]] = {}
    for word in words:
        if word.startswith("--"):
            name, is_pair, value = word[2:].partition("=")
            last = flags.setdefault(name.replace("-", "_"), [])
            last += [value] if is_pair else []
        elif flags:
            last.append(word)
        else:
            raise InputError(f"stage: {word!r:.100} is behind no flag; settings are one word, quoted for the shell")
    return flags


def usage(name: str = "") -> str:
    """Return the help of a stage, or of all."""
    lines = ["usage: arc-refinery stage <stage> '<settings as JSON>' [--tuning '<settings>'] [--<flag> <value>...]..."]
    for kind in KINDS:
        stages = [load(stage, kind) for stage in stages_of(kind) if stage == name or not name]
        lines += ["", f"kind: {kind}"] if stages else []
        for stage in stages:
            summary, _, more = (inspect.getdoc(stage) or "").partition("\n\n")
            lines.append(f"  {stage.__name__:20}{' '.join(summary.split())}")
            if name:
                names = inspect.getfullargspec(stage)
                flags, sections = map(flag_of, names.kwonlyargs), names.args
                lines += [*(f"  {line}" for line in more.splitlines()), f"  settings: {', '.join(sections)}"]
                lines.append(f"  flags: {', '.join(flags)}")
    return "\n".join(lines)


# Stages of every kind of experiment


def fetch(download: Download, *, output: Annotated[Path, Writes(links)]) -> None:
    """Download a repository of the hub, as far as it is not cached, and link its files into a folder.

    `<output>.json` records its commit, files and sizes.
    """
    fetch_repository(download, output)


def sft(
    model: ModelConfig,
    lora: Lora,
    sft: Imitation,
    seed: Seed,
    *,
    data: Files,
    output: Adapter,
    checkpoints: Checkpoints,
    measurements: Measurements,
    tensorboard: Curves,
) -> None:
    """Train a LoRA adapter on demonstrations or conversations; an interrupted job resumes from its last checkpoint."""
    keep_gpus(1)
    let_segments_grow()
    from arc_refinery.training.sft import train_sft

    train_sft(_rows(data, model.path), model, lora, sft, seed, output, checkpoints, measurements, tensorboard)


def _rows(paths: Sequence[Path], model_path: str) -> "Iterator[SftRow]":
    from arc_refinery import records
    from arc_refinery.models.tokenizers import load_tokenizer
    from arc_refinery.training.sft import SftRow

    if not sum(map(records.count, paths)):
        counts: Counter[str] = Counter()
        for path in paths:
            counts.update(records.notes(path))
        raise InputError(
            f"{' '.join(map(str, paths))}: there are no demonstrations to learn from: "
            f"{', '.join(f'{name} {n}' for name, n in sorted(counts.items())) or 'the files say no reason'}. "
            f"{NO_DEMONSTRATIONS}"
        )
    end = str(load_tokenizer(model_path).eos_token)
    if records.kind_of(paths[0]) == records.Conversation.KIND:
        for _, conversation in records.read_all(paths, records.Conversation):
            yield SftRow(conversation.question_id, conversation.segments)
    else:
        for _, demonstration in records.read_all(paths, records.Demonstration):
            yield SftRow(demonstration.demonstration_id, demonstration.segments(end))
