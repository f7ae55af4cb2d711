"""Read YAML strictly: messages name file and line, no key comes twice, and aliases cannot grow without end."""

from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from arc_refinery.config.base import ConfigError
from arc_refinery.files import in_words, read_text

MAX_VALUES = 100_000  # in a config; aliases count each time


class _Loader(yaml.SafeLoader):
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen = set()
        for key, _ in node.value:
            if key.tag != "tag:yaml.org,2002:merge" and isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise yaml.MarkedYAMLError(problem=f"{key.value} is there twice", problem_mark=key.start_mark)
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def read_yaml(path: Path, where: str = "") -> dict[str, Any]:
    """Return the keys of a YAML file; `where` precedes its name in messages. Raises `ConfigError`."""
    text = read_text(path, "a config in YAML")
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        _check_size(node)
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
        found = "nothing" if content is None else in_words(content)
        raise ConfigError(f"{where}{path}: expected a mapping of keys, found {found}")
    return content


def _check_size(root: yaml.Node | None) -> None:
    waiting, n_values = [root], 0
    while waiting:
        node = waiting.pop()
        n_values += 1
        if n_values > MAX_VALUES:
            raise ValueError(f"it has more than {MAX_VALUES} values; are there aliases inside aliases?")
        match node:
            case yaml.MappingNode():
                waiting += [one for pair in node.value for one in pair]
            case yaml.SequenceNode():
                waiting += node.value
            case yaml.ScalarNode():
                node.value.encode()  # raises ValueError for half a surrogate pair, which no file can hold
            case _:
                pass
