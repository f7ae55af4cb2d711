"""Fetch the Hugging Face repositories of an experiment before its jobs, which never call the hub; upload a folder.

    results/x/fetched/owner/model/             links to the model's files in the hub's cache
    results/x/fetched/owner/model.json         repository, commit, files with their sizes
    results/x/fetched/datasets/owner/rows/     links to the requested files of a data set

huggingface_hub keeps each finished file in its cache, and resumes a file after a dropped connection.
"""

import errno
import json
import logging
import shlex
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Literal, TypeAlias

from pydantic import BaseModel
from tqdm import tqdm

from arc_refinery.errors import InputError
from arc_refinery.files import atomic_write, read_json

RepositoryKind: TypeAlias = Literal["model", "dataset"]

# Model files that neither transformers nor vLLM reads: weights for other programs, and copies of the same weights
UNREAD = ("original/*", "consolidated*", "*.pth", "*.gguf", "*.onnx", "*.msgpack", "*.h5", "*.tflite")
MAX_LISTED = 20  # files of a repository in a message

# For jobs done by hand with the source `hub`: the rules pass the fetched file instead
FETCH_FIRST = (
    "rows of the hub are fetched first: `arc-refinery stage fetch --help`; then give the file with the source `file`"
)

logger = logging.getLogger(__name__)
logging.getLogger("httpx").setLevel(logging.WARNING)  # it logs every URL, and URLs of large files are signed


class _Record(BaseModel):
    files: dict[str, int]  # with their sizes


@dataclass(frozen=True)
class Download:
    """Files of one repository. `revision` is a branch, tag or commit; by default the default branch.

    `patterns` are names or globs of files, in which `*` also matches `/`; without them, all but `UNREAD`.
    """

    repository: str
    kind: RepositoryKind
    revision: str | None = None
    patterns: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        """Path under the hub's address, and under `fetched/`."""
        return self.repository if self.kind == "model" else f"datasets/{self.repository}"


def distinct(downloads: Iterable[Download]) -> list[Download]:
    """Merge downloads into one per repository; raise `ValueError` for two revisions of the same repository."""
    merged: dict[str, Download] = {}
    for download in downloads:
        earlier = merged.setdefault(download.path, download)
        if earlier.revision != download.revision:
            raise ValueError(
                f"{download.repository} is asked for with the revisions {earlier.revision} and {download.revision}; "
                "give the same `revision` wherever it is named"
            )
        merged[download.path] = replace(earlier, patterns=tuple(dict.fromkeys(earlier.patterns + download.patterns)))
    return list(merged.values())


def fetch_repository(download: Download, folder: Path) -> None:
    """Download files missing from the hub's cache and link them into `folder`; `<folder>.json` lists them.

    If the hub cannot be reached, or with HF_HUB_OFFLINE=1, a complete copy in the cache is used. Raises `InputError`.
    """
    snapshot = _snapshot(download)
    sizes = {name: (snapshot / name).stat().st_size for name in _wanted(download, snapshot)}
    record = record_of(folder)
    if record.exists():  # possibly of an earlier commit
        for name in _recorded(record):
            (folder / name).unlink(missing_ok=True)
    for name in sizes:
        _link(folder / name, snapshot / name)
    content: dict[str, Any] = {
        "repository": download.repository,
        "kind": download.kind,
        "revision": download.revision,
        "commit": snapshot.name,
        "bytes": sum(sizes.values()),
        "files": sizes,
    }
    with atomic_write(record) as path:
        path.write_text(json.dumps(content, indent=1) + "\n")
    logger.info("%s: %d files, %s, commit %s", folder, len(sizes), readable_size(content["bytes"]), snapshot.name)


def upload_folder(folder: Path, repository: str, is_private: bool, may_overwrite: bool) -> str:
    """Upload a folder as a model repository, which is made if there is none; return its address.

    Raises `InputError`, also if it is there already: to be private, and public, or not to be overwritten.
    """
    import httpx
    from huggingface_hub import HfApi

    api = HfApi()
    try:
        if api.repo_exists(repository):
            is_public = not api.model_info(repository).private
            lacking = ["--public"] * (is_public and is_private) + ["--overwrite"] * (not may_overwrite)
            if lacking:
                visibility = "public" if is_public else "private"
                raise InputError(
                    f"{repository}: is there already, and {visibility}; to replace its files of these names, give "
                    f"{' '.join(lacking)}; or name another"
                )
        address = api.create_repo(repository, private=is_private, exist_ok=True)
        api.upload_folder(
            repo_id=repository, folder_path=folder, commit_message="Upload an adapter with its model card"
        )
    except InputError:
        raise
    except (httpx.HTTPError, OSError, ValueError, RuntimeError) as error:  # hf_xet raises RuntimeError
        raise InputError(
            f"{repository}: cannot be uploaded ({_first_line(error)}). {folder} is complete: `hf auth login` on this "
            "machine with a token that may write, then "
            f"`hf upload {repository} {shlex.quote(str(folder))} .{' --private' if is_private else ''}`"
        ) from None
    return str(address)


def fetched_folder(results: Path, download: Download) -> Path:
    """Return the folder of a repository's files, below an experiment's results."""
    return results / "fetched" / download.path


def record_of(folder: Path) -> Path:
    """Return the file that lists the contents of a folder of links."""
    return folder.with_name(f"{folder.name}.json")


def _link(link: Path, file: Path) -> None:
    link.parent.mkdir(parents=True, exist_ok=True)
    if link.is_symlink():
        link.unlink()
    try:
        link.symlink_to(file)
    except FileExistsError:
        raise InputError(f"{link}: exists and is not a link; choose another --output") from None


def out_of_reach(folder: Path) -> list[str]:
    """Return the files of a folder that are missing on this machine or have another size."""

    def is_there(name: str, size: int) -> bool:
        return (folder / name).is_file() and (folder / name).stat().st_size == size

    return [name for name, size in _recorded(record_of(folder)).items() if not is_there(name, size)]


def _recorded(record: Path) -> dict[str, int]:
    """Return the files that a record lists, with their sizes."""
    return dict(read_json(record, "what the stage `fetch` wrote; remove it, and fetch again", _Record)["files"])


def _snapshot(download: Download) -> Path:
    """Return the folder of a commit in the hub's cache, with all wanted files."""
    import httpx
    from huggingface_hub import constants, snapshot_download

    try:
        return Path(
            snapshot_download(
                download.repository,
                repo_type=download.kind,
                revision=download.revision,
                allow_patterns=list(download.patterns) or None,
                ignore_patterns=None if download.patterns else list(UNREAD),
                local_files_only=constants.HF_HUB_OFFLINE,
            )
        )
    except (httpx.HTTPError, OSError, ValueError, RuntimeError) as error:  # hf_xet raises RuntimeError
        raise InputError(f"{download.path}: {_reason(error, download)}") from None


def _wanted(download: Download, snapshot: Path) -> list[str]:
    """Return the names of the requested files of a snapshot, which may contain files of other downloads."""
    present = sorted(str(path.relative_to(snapshot)) for path in snapshot.rglob("*") if path.is_file())
    for pattern in download.patterns:
        if not any(fnmatch(name, pattern) for name in present):
            names = ", ".join((_listed(download, snapshot.name) or present)[:MAX_LISTED])
            raise InputError(
                f"{download.path}: no file is called {pattern} at commit {snapshot.name}; there are {names}"
            )
    if download.patterns:
        return [name for name in present if any(fnmatch(name, pattern) for pattern in download.patterns)]
    return [name for name in present if not any(fnmatch(name, pattern) for pattern in UNREAD)]


def _listed(download: Download, commit: str) -> list[str]:
    """Return the names of all files of a commit; empty if an older huggingface_hub filled the cache without a list."""
    from huggingface_hub import get_cached_repo_tree
    from huggingface_hub.errors import CachedRepoTreeNotFoundError

    try:
        tree = get_cached_repo_tree(download.repository, repo_type=download.kind, revision=commit)
    except CachedRepoTreeNotFoundError:
        return []
    return sorted(file.path for file in tree)


def _reason(error: Exception, download: Download) -> str:
    """Return why a repository cannot be fetched, and what to do."""
    from huggingface_hub import constants, errors

    cache, log_in = constants.HF_HUB_CACHE, "`hf auth login` on this machine, or a token in $HF_HOME/token"
    if getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT) or "No space left" in str(error):
        return f"the disk of {cache} is full; make room, or set HF_HOME to a folder on a larger disk"
    match error:
        case errors.HFValidationError():
            return f"is not the name of a repository ({_first_line(error)}); expected owner/name"
        case errors.GatedRepoError():
            return f"is gated: accept its terms on {constants.ENDPOINT}/{download.path}, then {log_in}"
        case errors.RepositoryNotFoundError():
            return f"there is no such {download.kind}, or it is private; correct the name, or {log_in}"
        case errors.RevisionNotFoundError():
            return f"there is no revision {download.revision}; give a branch, a tag or a whole commit hash"
        case errors.LocalEntryNotFoundError() if constants.HF_HUB_OFFLINE:
            return (
                f"not all of it is in {cache}, and HF_HUB_OFFLINE is set; unset it, or fetch where there is a network "
                "and copy that folder"
            )
        case _:
            cause = _first_line(error.__cause__ or error)  # LocalEntryNotFoundError hides why the hub is out of reach
            return f"cannot be downloaded ({cause}); try again: files that are complete are kept in {cache}"


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__


def readable_size(n_bytes: int) -> str:
    return str(tqdm.format_sizeof(n_bytes, "B"))
