"""Conversations as the model's own chat template writes them, and how long they are."""

from collections.abc import Sequence

from arc_refinery.chat import load_chat
from arc_refinery.prompts import Message, split_prefix


class Renderer:
    """`render` gives a conversation's text and its number of tokens; the text ends where the model answers."""

    def __init__(self, model_path: str) -> None:
        self._chat = load_chat(model_path)

    def render(self, messages: Sequence[Message]) -> tuple[str, int]:
        """A last message of the assistant is the beginning of the answer that the model goes on with."""
        asked, prefix = split_prefix(messages)
        text = self._chat.render(asked) + prefix
        return text, self.count(text)

    def count(self, text: str) -> int:
        """Number of tokens of a text that continues a conversation."""
        return self._chat.count(text)
