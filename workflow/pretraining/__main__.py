"""Train an embedded model from scratch; an interrupted training resumes: `python -m pretraining --help`."""

import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from tyro.conf import OmitArgPrefixes

from arc_refinery.cli.command import Command, read
from arc_refinery.errors import InputError
from arc_refinery.outputs import Outputs, folder_of_files, torch_file
from arc_refinery.runs.ending import end_at_sigterm, end_with_snakemake
from pretraining.train import PretrainingSettings, pretrain


class Pretrain(Command):
    """Train an embedded model from scratch on generated problems; an interrupted run resumes."""

    output: Path  # folder to write the model to
    checkpoint: Path  # file outside any rule's outputs
    settings: Annotated[PretrainingSettings, OmitArgPrefixes]

    def writes(self) -> Outputs:
        folder = folder_of_files(self.output, "a pretrained model", ["pretraining.jsonl", "config.json"])
        return {"output": [folder], "checkpoint": [torch_file(self.checkpoint)]}


def main(words: Sequence[str] | None = None) -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", stream=sys.stderr)
    end_at_sigterm()
    end_with_snakemake()
    command = read(Pretrain, sys.argv[1:] if words is None else words, "python -m pretraining")
    try:
        command.check_outputs()
        pretrain(command.settings, command.output, command.checkpoint)
    except InputError as error:
        sys.exit(f"pretraining: {error}")


if __name__ == "__main__":
    main()
