"""Conversations as the model's own chat template writes them, and how long they are."""

from collections.abc import Sequence

from arc_refinery.prompts import Message, split_prefix
from arc_refinery.tokenizers import ModelError, load_tokenizer


class Renderer:
    """`render` gives a conversation's text and its number of tokens; the text ends where the model answers."""

    def __init__(self, model_path: str) -> None:
        self.tokenizer = load_tokenizer(model_path)
        if self.tokenizer.chat_template is None:
            raise ModelError(
                f"{model_path}: its tokenizer has no chat template; give a model that was made to converse"
            )

    def render(self, messages: Sequence[Message]) -> tuple[str, int]:
        """A last message of the assistant is the beginning of the answer that the model goes on with."""
        asked, prefix = split_prefix(messages)
        text = str(self.tokenizer.apply_chat_template(asked, tokenize=False, add_generation_prompt=True)) + prefix
        return text, len(self.tokenizer(text, add_special_tokens=False)["input_ids"])
