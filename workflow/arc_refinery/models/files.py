"""A model's or an adapter's folder, read through libraries: what these raise for a damaged file becomes one message."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from arc_refinery.errors import InputError, ModelError
from arc_refinery.files import check_regular, read_json

_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
_SMALL = 1_000_000  # bytes; settings are smaller, vocabularies are not


@contextmanager
def read_by_library(folder: str | Path, file: str) -> Iterator[None]:
    """Raise `ModelError` for anything that a library raises while it reads a file of a folder.

    transformers, peft and tokenizers check few keys and types: a wrong one ends in whatever its use raises.
    """
    _check_files(Path(folder))
    try:
        yield
    except InputError:
        raise
    except Exception as error:  # noqa: BLE001  # tokenizers raises nothing narrower
        reason = " ".join(str(error).split())
        if "ignore_mismatched_sizes" in reason:  # transformers prints the shapes as a table
            reason = "its weights have other shapes than config.json says"
        raise ModelError(
            f"{Path(folder, file)}: cannot be used ({type(error).__name__}: {reason:.300}); correct the path, or get "
            "the files again"
        ) from None


def _check_files(folder: Path) -> None:
    """Raise `InputError` for settings that are not valid JSON, and for pipes, which some libraries wait for."""
    if not folder.is_dir():
        if not _HUB_NAME.fullmatch(str(folder)):
            raise ModelError(f"{folder}: no such folder; expected one with a model, or a name on the hub: owner/name")
        return
    for path in sorted(folder.iterdir()):
        if path.suffix in (".json", ".safetensors", ".jinja"):
            check_regular(path)
        if path.suffix == ".json" and path.is_file() and path.stat().st_size < _SMALL:
            content = read_json(path, "settings or a vocabulary; download the model again")
            if not isinstance(content, dict):
                raise ModelError(f"{path}: is not an object; download the model again")
