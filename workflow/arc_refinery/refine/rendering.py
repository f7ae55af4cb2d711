"""Conversations as the model's own chat template writes them, and how long they are."""

from collections.abc import Sequence

from transformers import AutoTokenizer

from arc_refinery.errors import InputError
from arc_refinery.prompts import Message


class ModelError(InputError):
    """A model's folder cannot be used; the message says what is missing."""


class Renderer:
    """`render` gives a conversation's text and its number of tokens; the text ends where the model answers."""

    def __init__(self, model_path: str) -> None:
        try:
            self.tokenizer = AutoTokenizer.from_pretrained(model_path)
        except (OSError, ValueError) as error:
            reason = str(error).partition("\n")[0]
            raise ModelError(f"{model_path}: no tokenizer could be loaded ({reason}); correct model.path") from None

    def render(self, messages: Sequence[Message]) -> tuple[str, int]:
        text: str = self.tokenizer.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=True)
        return text, len(self.tokenizer(text, add_special_tokens=False)["input_ids"])
