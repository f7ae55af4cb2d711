"""Conversations in the model's own chat template, and their lengths in tokens."""

from collections.abc import Sequence

from arc_refinery.chat import load_chat
from arc_refinery.prompts import Message, split_prefix


class Renderer:
    """A model's chat template and tokenizer."""

    def __init__(self, model_path: str) -> None:
        self._chat = load_chat(model_path)

    def render(self, messages: Sequence[Message]) -> tuple[str, int]:
        """Return a conversation's text up to where the model continues, and its number of tokens.

        A last message of the assistant is the beginning of the answer.
        """
        conversation, prefix = split_prefix(messages)
        text = self._chat.render(conversation) + prefix
        return text, self.count(text)

    def count(self, text: str) -> int:
        """Number of tokens of a text that continues a conversation."""
        return self._chat.count(text)
