"""Read YAML strictly: messages name file and line, and no key comes twice."""

from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from arc_refinery.config.base import ConfigError
from arc_refinery.files import in_words, read_text


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
