"""Conversations as text: what the chat template puts around what the model writes.

A conversation grows by concatenation, as it does while it is played: the prompt, a turn of the model, the results of
its calls, the next turn, ... It is never rendered again as a whole, for templates such as Qwen3's then leave out
thoughts that the model did have before its eyes.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from jinja2 import TemplateError as JinjaError

from arc_refinery.errors import InputError
from arc_refinery.records.transcripts import Segment
from arc_refinery.tool_use.turns import CLOSE_THOUGHT, OPEN_THOUGHT, parse_turn

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Message = dict[str, Any]

_QUESTION: Message = {"role": "user", "content": "question"}


class TemplateError(InputError):
    """A model's chat template cannot carry calls of tools; the message says why."""


@dataclass(frozen=True)
class Renderer:
    """A model's chat template, and what it is told for all conversations."""

    tokenizer: "PreTrainedTokenizerBase"
    schemas: Sequence[dict[str, Any]]  # of the tools that are offered
    enable_thinking: bool
    stop_token: str  # ends a turn

    @cached_property
    def stop_id(self) -> int:
        """Raises `TemplateError` where the model has no such token."""
        stop = self.tokenizer.get_vocab().get(self.stop_token)
        if stop is None:
            raise TemplateError(f"{self._model}: generation.stop_token {self.stop_token!r} is no token of this model")
        return int(stop)

    def check(self) -> None:
        """Raise `TemplateError` unless the chat template carries calls, written as turns.py reads them, and results."""
        stop = self.stop_id
        call = {"type": "function", "function": {"name": "calculator", "arguments": {"expression": "1 + 1"}}}
        written = self.ids(self.turn({"role": "assistant", "content": "", "tool_calls": [call]}))
        read = parse_turn(str(self.tokenizer.decode([*written, stop], skip_special_tokens=True))).calls
        told = self.results(["7", "9"])
        if (
            [("1 + 1" in one.text, one.is_closed) for one in read] != [(True, True)]
            or "7" not in told
            or "9" not in told
        ):
            raise TemplateError(f"{self._model}: its chat template knows no calls of tools; use one such as Qwen3's")

    def prompt(self, question: str) -> str:
        """A question, up to where the model goes on."""
        return self._rendered([{"role": "user", "content": question}], add_generation_prompt=True)

    def turn(self, message: Message) -> str:
        """An assistant's message as the model would write it, without the stop token."""
        before = self._rendered([_QUESTION], add_generation_prompt=True, enable_thinking=True)
        whole = self._rendered([_QUESTION, _as_text(message)], enable_thinking=True)
        written, stop, _ = whole.removeprefix(before).rpartition(self.stop_token)
        if not whole.startswith(before) or not stop:
            raise TemplateError(f"{self._model}: its chat template does not write a turn after {before[-40:]!r}")
        return written if self.enable_thinking else written.rpartition(f"{CLOSE_THOUGHT}\n\n")[2]

    def results(self, texts: Sequence[str]) -> str:
        """What stands between a turn's stop token and the next turn: the results of its calls, in order."""
        call = {"type": "function", "function": {"name": "tool", "arguments": "{}"}}
        # With a thought, for Qwen3's template writes a turn without any in two ways.
        thought = f"{OPEN_THOUGHT}\nthought\n{CLOSE_THOUGHT}\n\n"
        said = [_QUESTION, {"role": "assistant", "content": thought, "tool_calls": [call]}]
        told = [{"role": "tool", "name": "tool", "content": text} for text in texts]
        before = self._rendered(said)
        whole = self._rendered([*said, *told], add_generation_prompt=True)
        known, stop, _ = before.rpartition(self.stop_token)
        if not stop or not whole.startswith(known + stop):
            raise TemplateError(f"{self._model}: its chat template does not put results of tools after {stop!r}")
        return whole.removeprefix(known + stop)

    def ids(self, text: str) -> list[int]:
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def segments(self, messages: Iterable[Message]) -> Iterator[Segment]:
        """A whole conversation, the first message a question; each sampled segment ends with the stop token."""
        question, *following = messages
        unsaid, results = self.prompt(question["content"]), list[str]()
        for message in following:
            if message["role"] == "tool":
                results.append(message["content"])
                continue
            yield Segment(self.results(results) if results else unsaid, False)
            yield Segment(self.turn(message) + self.stop_token, True)
            results = []

    def tokens(self, segments: Iterable[Segment]) -> tuple[list[int], list[int]]:
        """Ids and loss mask, (length,) each; segments are tokenised one by one, as an episode's are."""
        ids: list[int] = []
        mask: list[int] = []
        for segment in segments:
            new = self.ids(segment.text)
            ids += new
            mask += [int(segment.is_sampled)] * len(new)
        return ids, mask

    @property
    def _model(self) -> str:
        return self.tokenizer.name_or_path or "the tokenizer"

    def _rendered(self, messages: Sequence[Message], **named: Any) -> str:
        options = {"tools": list(self.schemas) or None, "enable_thinking": self.enable_thinking} | named
        try:
            return str(self.tokenizer.apply_chat_template(list(messages), tokenize=False, **options))
        except (ValueError, JinjaError) as error:
            raise TemplateError(
                f"{self._model}: its chat template cannot be used for calls of tools ({error})"
            ) from None


def _as_text(message: Message) -> Message:
    """Arguments of calls as JSON texts: Arrow would give each call the keys of all."""
    calls = [
        call | {"function": call["function"] | {"arguments": json.dumps(call["function"]["arguments"])}}
        for call in message.get("tool_calls", [])
    ]
    return message | {"tool_calls": calls} if calls else message
