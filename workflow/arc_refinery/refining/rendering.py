"""Conversations in the model's own chat template, and their lengths in tokens."""

from collections.abc import Sequence
from dataclasses import asdict

from arc_refinery.errors import InputError
from arc_refinery.models.chat import Message, load_chat, without_marks
from arc_refinery.refining.prompts import Template, split_prefix


class Renderer:
    """A model's chat template and tokenizer."""

    def __init__(self, model_path: str) -> None:
        self._chat = load_chat(model_path)

    def render(self, messages: Sequence[Message]) -> tuple[str, int]:
        """Return a conversation's text up to where the model continues, and its number of tokens.

        A last message of the assistant is the beginning of the answer.
        """
        conversation, prefix = split_prefix(self.masked(messages))
        text = self._chat.render(conversation) + prefix
        return text, self.count(text)

    def check_template(self, template: Template, longest: int) -> None:
        """Raise `InputError` if a text of a template alone has more tokens than a prompt may have."""
        texts = {**asdict(template), **asdict(template.notation), **asdict(template.feedback)}
        for name, text in texts.items():
            if isinstance(text, str) and (n_tokens := self.count(text)) > longest:
                raise InputError(
                    f"the template's text {name} alone has {n_tokens} tokens, but prompts have at most {longest}: "
                    "shorten it (docs/prompts.md), or raise model.window"
                )

    def masked(self, messages: Sequence[Message]) -> list[Message]:
        """Return a conversation without the text of special tokens in its messages, except in the next answer's prefix.

        Whoever keeps messages to render them later keeps these.
        """
        conversation, prefix = split_prefix(messages)
        plain = [Message(role=one["role"], content=self.plain(one["content"])) for one in conversation]
        return [*plain, Message(role="assistant", content=prefix)] if prefix else plain

    def plain(self, text: str) -> str:
        """Return a text without that of special tokens."""
        return without_marks(text, self._chat.marks)

    def count(self, text: str) -> int:
        """Number of tokens of a text that continues a conversation."""
        return self._chat.count(text)
