"""Conversations as the model's own chat template writes them, and how long they are."""

from collections.abc import Sequence
from pathlib import Path

from transformers import AutoTokenizer

from arc_refinery.prompts import Message


class ModelError(ValueError):
    """A model's folder cannot be used; the message says what is missing."""


class Renderer:
    """`render` gives a conversation's text and its number of tokens; the text ends where the model answers."""

    def __init__(self, model_path: str) -> None:
        if not Path(model_path, "tokenizer_config.json").exists():
            raise ModelError(
                f"{model_path}: has no tokenizer_config.json; model.path must be a folder with a tokenizer"
            )
        self.tokenizer = AutoTokenizer.from_pretrained(model_path)

    def render(self, messages: Sequence[Message]) -> tuple[str, int]:
        text: str = self.tokenizer.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=True)
        return text, len(self.tokenizer(text, add_special_tokens=False)["input_ids"])
