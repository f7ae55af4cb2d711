"""Files that are given as configs and are none."""

import json
from pathlib import Path

import pytest
import yaml
from checkout import ROOT
from messages import Wording

from arc_refinery.config import check_files, load_experiment
from arc_refinery.config.docs import write_docs
from arc_refinery.domains.arc.config import ArcExperiment
from arc_refinery.errors import InputError

CONTENT = yaml.safe_load((ROOT / "tests/refining.yaml").read_text())
SETTINGS = json.dumps(CONTENT)
NO_CONFIG = {
    "UTF-16": SETTINGS.encode("utf-16"),
    "Latin-1": SETTINGS.replace('"seed"', '"seéd"').encode("latin-1"),
    "binary": bytes(range(256)),
    "5000 digits": (SETTINGS[:-1] + ', "more": ' + "1" * 5000 + "}").encode(),
    "lists nested deep": b"[" * 100_000,
    "empty": b"",
    "null": b"null",
    "cut": SETTINGS[:100].encode(),
    "list": b"[1]",
    "half a surrogate pair": (SETTINGS[:-1] + ', "more": "\\ud800"}').encode(),
    "a key twice": (SETTINGS[:-1] + ', "seed": 1}').encode(),
}


@pytest.mark.parametrize("ending", ["json", "yaml"])
@pytest.mark.parametrize("content", NO_CONFIG.values(), ids=NO_CONFIG.keys())
def test_a_file_that_is_no_config_is_named_in_one_line(content: bytes, ending: str, tmp_path: Path, wording: Wording):
    path = tmp_path / f"mine.{ending}"
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        load_experiment(path)
    assert str(path) in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
    wording(caught.value)


@pytest.mark.parametrize(
    "taken",
    ["results", "logs", "results/{}", "logs/{}", "results/{}/settings.json/", "results/{}.md/", "results/{}.html/"],
)
def test_a_place_of_results_or_logs_that_is_taken_is_named_while_planning(
    taken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wording: Wording
):
    (tmp_path / "workflow").symlink_to(ROOT / "workflow")
    (tmp_path / "config").symlink_to(ROOT / "config")
    experiment = ArcExperiment.model_validate(CONTENT)
    monkeypatch.chdir(tmp_path)
    check_files(experiment, "mine.yaml")
    path = Path(taken.format(experiment.experiment))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.mkdir() if taken.endswith("/") else path.touch()
    with pytest.raises(InputError) as caught:
        check_files(experiment, "mine.yaml")
    assert f"mine.yaml: {path} is a " in str(caught.value)
    wording(caught.value)


@pytest.mark.parametrize("readme", [None, "# Mine\n"])
def test_reference_pages_are_written_only_into_their_own(readme: str | None, tmp_path: Path):
    if readme:
        (tmp_path / "README.md").write_text(readme)
    with pytest.raises(InputError, match=f"{tmp_path}/README.md"):
        write_docs(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == (["README.md"] if readme else [])


@pytest.mark.training
@pytest.mark.parametrize("content", [{"a": 1}, [1]])
def test_a_file_that_is_no_checkpoint_of_a_pretraining_is_named(content: object, tmp_path: Path):
    import torch

    from pretraining.__main__ import main

    torch.save(content, tmp_path / "checkpoint")
    words = ["--output", str(tmp_path / "model"), "--checkpoint", str(tmp_path / "checkpoint"), "--no-compile"]
    with pytest.raises(SystemExit, match=f"{tmp_path}/checkpoint"):
        main(words)


@pytest.mark.training
@pytest.mark.parametrize(
    ("words", "flag"), [(["--start", "mine"], "--output"), (["--seed", "-1"], "--seed"), ([], "--output")]
)
def test_flags_of_a_pretraining_are_checked_before_anything_is_written(
    words: list[str], flag: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    from pretraining.__main__ import main

    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/notes.txt").touch()
    words = [str(tmp_path / word) if word == "mine" else word for word in words]
    with pytest.raises(SystemExit) as ended:
        main(["--output", str(tmp_path / "mine"), "--checkpoint", str(tmp_path / "work"), *words])
    assert flag in str(ended.value) + capsys.readouterr().err
    assert [path.name for path in tmp_path.rglob("*")] == ["mine", "notes.txt"]
