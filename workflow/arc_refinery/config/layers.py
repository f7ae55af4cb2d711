"""Read a config and its bases, which are merged section by section; a wrong key is blamed on the file that set it.

mine.yaml   base: config/config.yaml, experiment: mine, evaluation: {arms: [...]}
a fault     config/config.yaml: evaluation.comparisons: refine-base is not an arm; expected two of independent, own.
            mine.yaml inherits this key: change it there (null drops it)
"""

import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from os.path import exists
from pathlib import Path
from typing import Any

import yaml

from arc_refinery.config.base import ConfigError
from arc_refinery.files import in_words, read_json, read_text

_MISSING = object()
MOST_VALUES = 100_000  # in a file, with those of its aliases; the largest of ours has hundreds


@dataclass(frozen=True, slots=True)
class Layers:
    """A config, its base, that one's base, and so on, with their files."""

    contents: Sequence[Mapping[str, Any]]
    files: Sequence[str]

    @classmethod
    def of(cls, config: Mapping[str, Any], origin: str) -> "Layers":
        """Read the bases of a config from the file `origin`. Raises `ConfigError`."""
        if "base" in config and "experiment" not in config:
            raise ConfigError(
                f"{origin}: experiment is missing; name this experiment, or its results would replace those of its base"
            )
        layers, files = [config], [origin]
        while "base" in layers[-1]:
            base = layers[-1]["base"]
            if not isinstance(base, str) or not base:
                raise ConfigError(f"{files[-1]}: base is {base!r}; expected the path of a config file")
            layers.append(read_config(Path(base), f"{files[-1]}: base: "))
            if base in files:
                raise ConfigError(f"{origin}: the bases {', '.join([*files[1:], base])} form a circle; remove one")
            files.append(base)
        return cls([{key: value for key, value in layer.items() if key != "base"} for layer in layers], files)

    def merged(self) -> Mapping[str, Any]:
        return reduce(merged, reversed(self.contents))

    @property
    def origin(self) -> str:
        """All files, for a fault of none in particular."""
        bases = f" (or its base {', '.join(self.files[1:])})" if len(self.files) > 1 else ""
        return f"{self.files[0]}{bases}"

    def blamed(self, fault: str) -> str:
        """Return a line on a fault, which begins with a key, after the topmost file that has the key."""
        keys = re.split(r"[^\w.]", fault, maxsplit=1)[0].split(".")
        for file, layer in zip(self.files, self.contents, strict=True):
            value: Any = layer
            for key in keys:
                if isinstance(value, list):
                    break
                value = value.get(key, _MISSING) if isinstance(value, Mapping) else _MISSING
            if value is _MISSING:
                continue
            if file == self.files[0]:
                return f"{file}: {fault}"
            end = "" if fault.endswith("?") else "."
            return f"{file}: {fault}{end} {self.files[0]} inherits this key: change it there (null drops it)"
        return f"{self.origin}: {fault}"


def merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Section by section; anything else, a list too, is replaced. `key: null` removes the base's key.

    >>> merged({"grpo": {"beta": 0.02, "epochs": 1}, "compare": ["a", "b"]}, {"grpo": {"beta": 0.0}, "compare": None})
    {'grpo': {'beta': 0.0, 'epochs': 1}}
    """
    result = dict(base)
    for key, value in changes.items():
        if value is None and key in result:
            del result[key]
        elif isinstance(value, Mapping) and isinstance(result.get(key), Mapping):
            result[key] = merged(result[key], value)
        else:
            result[key] = value
    return result


def read_config(path: Path, where: str = "") -> dict[str, Any]:
    if not exists(path):
        advice = "give a config with --configfile" if not where else "expected a config, relative to this folder"
        raise ConfigError(f"{where}{path}: no such file; {advice}")
    if path.suffix != ".json":
        return read_yaml(path, where)
    content = read_json(path, "the settings of an experiment")
    if not isinstance(content, dict):
        raise ConfigError(f"{where}{path}: expected an object, found {in_words(content)}")
    return content


class _Loader(yaml.SafeLoader):
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen = set()
        for key, _ in node.value:
            if key.tag != "tag:yaml.org,2002:merge" and isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise yaml.MarkedYAMLError(problem=f"{key.value} appears twice", problem_mark=key.start_mark)
                seen.add(key.value)
        return super().construct_mapping(node, deep)

    def construct_scalar(self, node: yaml.ScalarNode | yaml.MappingNode) -> str:
        str(node.value).encode()  # raises ValueError for half a surrogate pair, which no file can hold
        return str(super().construct_scalar(node))


def _n_values(node: yaml.Node | None, known: dict[int, int]) -> int:
    """Return the number of values in a part of a file, with those of its aliases as often as they are named."""
    if isinstance(node, yaml.CollectionNode) and id(node) not in known:
        known[id(node)] = 0  # of a part that contains itself
        known[id(node)] = sum(
            _n_values(inner, known) for item in node.value for inner in (item if isinstance(item, tuple) else [item])
        )
    return known.get(id(node), 1)


def read_yaml(path: Path, where: str = "") -> dict[str, Any]:
    """Return the keys of a YAML file; `where` precedes its name in messages. Raises `ConfigError`."""
    text = read_text(path, "a config in YAML")
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if _n_values(node, {}) > MOST_VALUES:
            raise ConfigError(f"{where}{path}: its aliases expand to more than {MOST_VALUES:,} values; write fewer")
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
