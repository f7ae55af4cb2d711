"""`arc-refinery stage fetch` with a hub on this machine: what it makes, and how it ends when something goes wrong."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hub import Hub, files_of
from messages import Wording
from processes import BIN

from arc_refinery.models.hub import Download, distinct

pytestmark = pytest.mark.slow  # each test starts commands

MODEL = {
    "config.json": b"{}",
    "model.safetensors": b"weights",
    "original/consolidated.pth": b"the same",
    "a.gguf": b"x",
}
ROWS = {"README.md": b"# rows", "data/test.jsonl": b"{}\n", "data/train.jsonl": b"{}\n{}\n"}


DATASET: dict[str, Any] = {"kind": "dataset"}
NO_VARIABLES: dict[str, str] = {}


class Fetcher:
    """Runs the command in a folder, with a cache of its own."""

    def __init__(self, hub: Hub, folder: Path) -> None:
        self.hub, self.folder, self.home = hub, folder, folder / "home"

    def run(self, repository: str, variables: dict[str, str], **download: Any) -> subprocess.CompletedProcess[str]:
        """Fetch a model, or what else is asked for."""
        settings = {"download": {"repository": repository, "kind": "model", **download}}
        command = [str(BIN / "arc-refinery"), "stage", "fetch", json.dumps(settings), "--output", "out/x"]
        environment = self.hub.environment(self.home, **variables)
        return subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True, check=False)

    def succeed(self, repository: str, variables: dict[str, str] = NO_VARIABLES, **download: Any) -> dict[str, bytes]:
        """The files that it links."""
        done = self.run(repository, variables, **download)
        assert done.returncode == 0, done.stderr
        return files_of(self.folder / "out/x")

    def fail(self, repository: str, variables: dict[str, str] = NO_VARIABLES, **download: Any) -> str:
        """The one message that it ends with; nothing is left that looks like a result."""
        done = self.run(repository, variables, **download)
        assert done.returncode == 1, done.stderr
        assert "Traceback" not in done.stderr
        (message,) = (line for line in done.stderr.splitlines() if line.startswith("arc-refinery: "))
        assert done.stderr.splitlines()[-1] == message
        assert not (self.folder / "out/x.json").exists()
        return message.removeprefix("arc-refinery: ")

    @property
    def record(self) -> dict[str, object]:
        content: dict[str, object] = json.loads((self.folder / "out/x.json").read_text())
        return content


@pytest.fixture
def fetcher(hub: Hub, tmp_path: Path) -> Fetcher:
    return Fetcher(hub, tmp_path)


def test_of_a_model_all_is_fetched_that_is_read(hub: Hub, fetcher: Fetcher):
    commit = hub.add("model", "someone/m", MODEL)
    assert fetcher.succeed("someone/m") == {"config.json": b"{}", "model.safetensors": b"weights"}
    assert fetcher.record == {
        "repository": "someone/m",
        "kind": "model",
        "revision": None,
        "commit": commit,
        "bytes": 9,
        "files": {"config.json": 2, "model.safetensors": 7},
    }
    assert sorted(hub.requests) == ["config.json", "model.safetensors"]


def test_of_a_data_set_only_the_named_files_are_fetched(hub: Hub, fetcher: Fetcher):
    hub.add("dataset", "someone/rows", ROWS)
    assert fetcher.succeed("someone/rows", **DATASET, patterns=["*test*"]) == {"data/test.jsonl": b"{}\n"}
    both = fetcher.succeed("someone/rows", **DATASET, patterns=["*test*", "data/train.jsonl"])
    assert sorted(both) == ["data/test.jsonl", "data/train.jsonl"]
    assert hub.requests == ["data/test.jsonl", "data/train.jsonl"]


def test_what_is_there_is_not_downloaded_again(hub: Hub, fetcher: Fetcher):
    hub.add("model", "someone/m", MODEL)
    fetcher.succeed("someone/m")
    first = (fetcher.folder / "out/x.json").read_bytes()
    hub.requests.clear()
    assert len(fetcher.succeed("someone/m")) == 2
    assert hub.requests == []
    assert (fetcher.folder / "out/x.json").read_bytes() == first


def test_another_commit_replaces_the_files_of_the_one_before(hub: Hub, fetcher: Fetcher):
    old = hub.add("model", "someone/m", {"config.json": b"{}", "model-1.safetensors": b"1"})
    fetcher.succeed("someone/m")
    new = hub.add("model", "someone/m", {"config.json": b"{}", "model.safetensors": b"2"})
    assert sorted(fetcher.succeed("someone/m")) == ["config.json", "model.safetensors"]
    assert fetcher.record["commit"] == new
    assert sorted(fetcher.succeed("someone/m", revision=old)) == ["config.json", "model-1.safetensors"]
    assert (fetcher.record["commit"], fetcher.record["revision"]) == (old, old)


def test_offline_or_without_the_hub_the_cache_is_enough(hub: Hub, fetcher: Fetcher):
    commit = hub.add("model", "someone/m", MODEL)
    fetcher.succeed("someone/m")
    hub.stop()
    for variables in ({"HF_HUB_OFFLINE": "1"}, {"HF_HUB_OFFLINE": "0"}):
        for revision in (None, commit):
            assert len(fetcher.succeed("someone/m", variables, revision=revision)) == 2


def test_a_file_that_the_cache_lacks_is_not_had_offline(hub: Hub, fetcher: Fetcher, wording: Wording):
    hub.add("dataset", "someone/rows", ROWS)
    fetcher.succeed("someone/rows", **DATASET, patterns=["data/test.jsonl"])
    (fetcher.folder / "out/x.json").unlink()
    message = fetcher.fail("someone/rows", {"HF_HUB_OFFLINE": "1"}, **DATASET, patterns=["data/train.jsonl"])
    assert message.startswith("datasets/someone/rows: ")
    assert f"{fetcher.home}/hub" in message and "HF_HUB_OFFLINE" in message
    wording(message)


def test_a_file_of_ones_own_is_not_replaced_by_a_link(hub: Hub, fetcher: Fetcher, wording: Wording):
    hub.add("model", "someone/m", MODEL)
    mine = fetcher.folder / "out/x/config.json"
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    message = fetcher.fail("someone/m")
    assert message.startswith("out/x/config.json: ") and "--output" in message
    wording(message)
    assert mine.read_text() == "mine"


# a connection that drops

LARGE = bytes(12 * 2**20)


def test_a_dropped_connection_is_resumed_where_it_was(hub: Hub, fetcher: Fetcher):
    hub.add("model", "someone/m", {"model.safetensors": LARGE})
    hub.dropped["model.safetensors"] = 1, 11 * 2**20
    assert fetcher.succeed("someone/m") == {"model.safetensors": LARGE}
    assert hub.requests == ["model.safetensors", "model.safetensors from 10485760"]  # in pieces of 10 MiB


def test_a_connection_that_never_holds_ends_with_a_message_and_the_next_run_continues(
    hub: Hub, fetcher: Fetcher, wording: Wording
):
    hub.add("model", "someone/m", MODEL)
    hub.dropped["model.safetensors"], hub.resets = (100, 3), True
    message = fetcher.fail("someone/m")
    assert message.startswith("someone/m: ") and message.endswith(f"{fetcher.home}/hub")
    wording(re.sub(r"\(.*\)", "(<the cause>)", message))
    hub.dropped.clear()
    hub.requests.clear()
    assert len(fetcher.succeed("someone/m")) == 2
    assert hub.requests == ["model.safetensors"]


def test_a_hub_that_is_not_there(hub: Hub, fetcher: Fetcher, wording: Wording):
    hub.stop()
    message = fetcher.fail("someone/m")
    assert message.startswith("someone/m: ") and "[Errno 111]" in message
    wording(message)


# names that are wrong, and what one may not have


def test_an_unknown_repository(hub: Hub, fetcher: Fetcher, wording: Wording):
    hub.add("model", "someone/m", MODEL)
    message = fetcher.fail("someone/else")
    assert message.startswith("someone/else: ") and " model" in message
    wording(message)
    message = fetcher.fail("someone/m", **DATASET, patterns=["x"])
    assert message.startswith("datasets/someone/m: ") and " dataset" in message
    wording(message)


@pytest.mark.parametrize("revision", ["v2", "0" * 40])
def test_an_unknown_revision(hub: Hub, fetcher: Fetcher, revision: str, wording: Wording):
    hub.add("model", "someone/m", MODEL)
    message = fetcher.fail("someone/m", revision=revision)
    assert message.startswith("someone/m: ") and f"revision {revision}" in message
    wording(message)


def test_a_name_that_is_none(fetcher: Fetcher, wording: Wording):
    message = fetcher.fail("a/b/c")
    assert "a/b/c" in message and "owner/name" in message
    wording(message)


def test_a_gated_repository(hub: Hub, fetcher: Fetcher, wording: Wording):
    hub.add("model", "someone/m", MODEL)
    hub.gated.add("someone/m")
    message = fetcher.fail("someone/m")
    assert message.startswith("someone/m: ") and re.search(r"http://127\.0\.0\.1:\d+/someone/m,", message)
    wording(re.sub(r"127\.0\.0\.1:\d+", "<hub>", message))


@pytest.mark.parametrize("offline", ["0", "1"])
@pytest.mark.parametrize("patterns", [["*test_sft*"], ["data/*", "*test_sft*"]])
def test_a_pattern_that_no_file_has_shows_the_files(
    hub: Hub, fetcher: Fetcher, patterns: list[str], offline: str, wording: Wording
):
    commit = hub.add("dataset", "someone/rows", ROWS)
    if offline == "1":
        fetcher.succeed("someone/rows", **DATASET, patterns=["data/*"])
        (fetcher.folder / "out/x.json").unlink()
    message = fetcher.fail("someone/rows", {"HF_HUB_OFFLINE": offline}, **DATASET, patterns=patterns)
    assert message.startswith("datasets/someone/rows: ")
    assert "*test_sft*" in message and commit in message
    assert ", ".join(sorted(ROWS)) in message
    wording(message)


# a disk that is full


def test_a_disk_that_fills_up_meanwhile(hub: Hub, fetcher: Fetcher):
    hub.add("model", "someone/m", {"model.safetensors": bytes(3 * 2**20)})
    fetcher.home.mkdir()
    mounted = [
        "unshare",
        "--map-root-user",
        "--mount",
        "sh",
        "-c",
        f'mount -t tmpfs -o size=2m none {fetcher.home} && "$@"',
    ]
    if subprocess.run([*mounted, "sh", "true"], capture_output=True, check=False).returncode:
        pytest.skip("no file system can be mounted here: unshare --map-root-user --mount is refused")
    command = [
        str(BIN / "arc-refinery"),
        *("stage", "fetch", json.dumps({"download": {"repository": "someone/m", "kind": "model"}})),
        "--output",
        str(fetcher.folder / "out/x"),
    ]
    done = subprocess.run(
        [*mounted, "sh", *command], env=hub.environment(fetcher.home), capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    message = done.stderr.splitlines()[-1]
    assert message.startswith("arc-refinery: someone/m: ")
    assert f"{fetcher.home}/hub is full" in message and "HF_HOME" in message


# what an experiment asks for


def test_a_repository_is_fetched_once_with_all_files_that_are_asked_of_it():
    downloads = [
        Download("a/rows", "dataset", None, ("train.jsonl",)),
        Download("a/rows", "model"),
        Download("a/rows", "dataset", None, ("test.jsonl", "train.jsonl")),
    ]
    assert distinct(downloads) == [
        Download("a/rows", "dataset", None, ("train.jsonl", "test.jsonl")),
        Download("a/rows", "model"),
    ]


def test_two_revisions_of_one_repository_are_refused(wording: Wording):
    with pytest.raises(ValueError) as caught:
        distinct([Download("a/m", "model"), Download("a/m", "model", "v2")])
    assert str(caught.value).startswith("a/m ") and "None and v2" in str(caught.value)
    wording(caught.value)
