"""A kind of experiment from outside the package: its config is validated, and its training has flags of its own."""

import sys
from pathlib import Path
from textwrap import dedent

import pytest
from checkout import TINY

from arc_refinery import cli
from arc_refinery.commands import stages
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
            resources: config.Resources = config.Resources()

            @property
            def rules(self):
                return ["letter_kind/stages.smk"]
        """,
    "stages": """
        from arc_refinery.commands.stages import training_settings
        from .commands import Train

        def train(experiment, adapter):
            return Train(**training_settings(experiment, adapter), window=experiment.model.window)
        """,
    "commands": """
        from typing import Annotated
        from arc_refinery import config
        from arc_refinery.commands.flags import GrpoFlags, RuleFiles
        from arc_refinery.config.flags import FLAT, NEEDED
        from arc_refinery.training.job import train

        class Train(GrpoFlags):
            dataset_path: RuleFiles = NEEDED
            training: Annotated[config.PolicyGradient, FLAT]
            window: int  # longest prompt and completion together

            def run(self):
                train(self.job(self.training, self.window), self.environment)

            def environment(self):
                from letter_environment import Letters

                words = [word for path in self.dataset_path for word in path.read_text().split()]
                yield Letters(words, self.training, self.seed)
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


@pytest.mark.training
def test_the_command_of_its_stage_trains(tmp_path: Path):
    (tmp_path / "words.txt").write_text("one two three four five six seven eight nine")
    words = stages.training_job(validate_experiment(CONFIG, "mine.yaml"), "trained").words()
    files = ["--dataset-path", str(tmp_path / "words.txt"), "--output", str(tmp_path / "trained")]
    command = cli.parse(["train", "--kind", "letter_kind", *words, *files])
    assert command.window == 64
    command.run()
    assert (tmp_path / "trained/adapter_model.safetensors").exists()
