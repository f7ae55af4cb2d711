"""The command that trains."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

from arc_refinery import config
from arc_refinery.commands.flags import GrpoFlags, RuleFiles
from arc_refinery.config.flags import FLAT, NEEDED
from arc_refinery.training.launch import train

if TYPE_CHECKING:
    from .environment import Letters


class Train(GrpoFlags):
    """Train a LoRA adapter with GRPO to write words with the letter e."""

    dataset_path: RuleFiles = NEEDED  # text files with one prompt per line
    training: Annotated[config.PolicyGradient, FLAT]
    window: int  # longest prompt and completion together, in tokens

    def run(self) -> None:
        train(self.job(self.training, self.window), self.environment)

    def environment(self) -> "Iterator[Letters]":
        from .environment import Letters

        words = [word for path in self.dataset_path for word in path.read_text().split()]
        yield Letters(words, self.training, self.seed)
