"""The command that fine-tunes on demonstrations."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

from arc_refinery import config
from arc_refinery.commands.flags import AdapterFlags, RuleFiles
from arc_refinery.config.flags import FLAT, NEEDED
from arc_refinery.sampling.gpus import divide, let_segments_grow

if TYPE_CHECKING:
    from arc_refinery.training.sft import SftRow


class FineTune(AdapterFlags):
    """Train a LoRA adapter on demonstrations; an interrupted run resumes from its last checkpoint."""

    dataset_path: RuleFiles = NEEDED  # demonstrations of refining, or conversations with tools
    training: Annotated[config.Imitation, FLAT]

    def run(self) -> None:
        divide(1, 0)
        let_segments_grow()
        from arc_refinery.training.sft import train_sft

        train_sft(
            self._rows(),
            self.model(window=1),  # it samples nothing
            self.lora,
            self.training,
            self.seed,
            self.output_dir,
            self.work,
            self.measurements,
            self.tensorboard,
        )

    def _rows(self) -> "Iterator[SftRow]":
        from arc_refinery import records
        from arc_refinery.models.tokenizers import load_tokenizer
        from arc_refinery.training.sft import SftRow

        end = str(load_tokenizer(self.model_path).eos_token)
        if records.kind_of(self.dataset_path[0]) == records.Conversation.KIND:
            for _, conversation in records.read_all(self.dataset_path, records.Conversation):
                yield SftRow(conversation.question_id, conversation.segments)
        else:
            for _, demonstration in records.read_all(self.dataset_path, records.Demonstration):
                yield SftRow(demonstration.demonstration_id, demonstration.segments(end))
