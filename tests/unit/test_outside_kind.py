"""A kind of experiment from outside the package: its config is validated, and its stage trains."""

import sys
from pathlib import Path
from textwrap import dedent

import pytest
from checkout import TINY
from experiments import do, settings_of

from arc_refinery import cli, jobs
from arc_refinery.config import ConfigError, validate_experiment

MODULES = {
    "__init__": "",
    "config": """
        from typing import Literal
        from arc_refinery import config

        class Experiment(config.Experiment):
            kind: Literal["letter_kind"]
            sandbox: config.Sandbox = config.Sandbox()
            training: config.Methods

            @property
            def rules(self):
                return ["letter_kind/stages.smk"]
        """,
    "jobs": """
        from arc_refinery.jobs import trained_model

        def training(experiment, run):
            return {"model": trained_model(experiment, experiment.model.window, run)}
        """,
    "stages": """
        from pathlib import Path
        from arc_refinery.config import Guard, Lora, ModelConfig, PolicyGradient, PositiveInt, Sandbox, Seed
        from arc_refinery.stages import Adapter, Checkpoints, Curves, Files, Measurements
        from arc_refinery.training.job import TrainingJob
        from arc_refinery.training.job import train as train_in_processes

        STAGES = ()

        def train(
            model: ModelConfig,
            lora: Lora,
            grpo: PolicyGradient,
            guard: Guard,
            sandbox: Sandbox,
            seed: Seed,
            until_step: PositiveInt | None = None,
            *,
            data: Files,
            start: Path | None = None,
            before: Path | None = None,
            output: Adapter,
            checkpoints: Checkpoints,
            measurements: Measurements,
            tensorboard: Curves,
        ):
            def environment():
                from letter_environment import Letters

                assert model.window == 64
                yield Letters([word for path in data for word in path.read_text().split()], grpo, seed)

            job = TrainingJob(
                model=model,
                lora=lora,
                training=grpo,
                guard=guard,
                sandbox=sandbox,
                seed=seed,
                start=start,
                until_step=until_step,
                before=before,
                output=output,
                work=checkpoints,
                measurements=measurements,
                tensorboard=tensorboard,
            )
            train_in_processes(job, environment)
        """,
    "report": """
        from arc_refinery.reporting import kind, provenance

        class Reported(kind.Reported):
            def compose(self, files):
                return ["# Experiment letters", *provenance.section(self.experiment, self.folder)]
        """,
}
CONFIG = {
    "kind": "letter_kind",
    "experiment": "letters",
    "model": {"path": TINY, "window": 64},
    "training": {"lora": {"lora_r": 2}, "grpo": {"learning_rate": 1e-3, "num_generations": 4, "max_steps": 1}},
}


@pytest.fixture(autouse=True)
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "letter_kind").mkdir()
    for name, source in MODULES.items():
        (tmp_path / f"letter_kind/{name}.py").write_text(dedent(source))
    monkeypatch.syspath_prepend(tmp_path)
    for name in [name for name in sys.modules if name.startswith("letter_kind")]:
        monkeypatch.delitem(sys.modules, name)


def test_its_config_has_its_own_keys():
    experiment = validate_experiment(CONFIG, "mine.yaml")
    assert (experiment.kind, experiment.rules) == ("letter_kind", ["letter_kind/stages.smk"])
    with pytest.raises(ConfigError, match="evaluation"):
        validate_experiment(CONFIG | {"evaluation": {}}, "mine.yaml")


def test_its_report_is_its_own(tmp_path: Path):
    experiment = validate_experiment(CONFIG, "mine.yaml")
    assert experiment.report_tables == {}  # it has no arms, and so no table of attempts
    (tmp_path / "settings.json").write_text(experiment.model_dump_json())
    words = f"report --configfile {tmp_path}/settings.json --results {tmp_path} --output {tmp_path}/letters.md"
    cli.parse(words.split()).run()
    assert "## How to reproduce" in (tmp_path / "letters.md").read_text()


@pytest.mark.training
def test_its_stage_trains(tmp_path: Path):
    (tmp_path / "words.txt").write_text("one two three four five six seven eight nine")
    job = jobs.train(validate_experiment(CONFIG, "mine.yaml"), "trained")
    written = {name: tmp_path / name for name in ("checkpoints", "measurements", "tensorboard")}
    do("train", settings_of(job), data=tmp_path / "words.txt", output=tmp_path / "trained", **written)
    assert (tmp_path / "trained/adapter_model.safetensors").exists()
