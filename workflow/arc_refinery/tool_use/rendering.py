"""Render conversations with tool calls in the model's chat template.

A conversation is concatenated, as in an episode: the prompt, a turn of the model, the results of its calls, the next
turn, ... It is never rendered as a whole, because templates such as Qwen3's then drop thoughts that the model did see.
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

ChatMessage = dict[str, Any]

_QUESTION: ChatMessage = {"role": "user", "content": "question"}


class ToolTemplateError(InputError):
    """A model's chat template does not support tool calls; the message says why."""


@dataclass(frozen=True)
class ToolRenderer:
    """A model's chat template and its options, shared by all conversations."""

    tokenizer: "PreTrainedTokenizerBase"
    schemas: Sequence[dict[str, Any]]  # of the available tools
    enable_thinking: bool
    stop_token: str  # ends a turn
    system: str = ""  # message before each question

    @cached_property
    def stop_id(self) -> int:
        """Id of `stop_token`; raises `ToolTemplateError` if the model has no such token."""
        stop = self.tokenizer.get_vocab().get(self.stop_token)
        if stop is None:
            raise ToolTemplateError(
                f"{self._model}: generation.stop_token {self.stop_token!r} is not a token of this model"
            )
        return int(stop)

    def check(self) -> None:
        """Raise `ToolTemplateError` unless the chat template writes calls as turns.py parses them, and results."""
        stop = self.stop_id
        call = {"type": "function", "function": {"name": "calculator", "arguments": {"expression": "1 + 1"}}}
        written = self.ids(self.turn({"role": "assistant", "content": "", "tool_calls": [call]}))
        calls = parse_turn(str(self.tokenizer.decode([*written, stop], skip_special_tokens=True))).calls
        results = self.results(["7", "9"])
        if (
            [("1 + 1" in one.text, one.is_closed) for one in calls] != [(True, True)]
            or "7" not in results
            or "9" not in results
        ):
            raise ToolTemplateError(
                f"{self._model}: its chat template does not support tool calls; use one such as Qwen3's"
            )

    def prompt(self, question: str) -> str:
        """Return a question's prompt, up to where the model continues."""
        return self._rendered(self.opening(question), add_generation_prompt=True)

    def opening(self, question: str) -> list[ChatMessage]:
        """Return the messages of a question's prompt."""
        before: list[ChatMessage] = [{"role": "system", "content": self.system}] if self.system else []
        return [*before, {"role": "user", "content": question}]

    def turn(self, message: ChatMessage) -> str:
        """Return an assistant's message as the model would write it, without the stop token."""
        before = self._rendered([_QUESTION], add_generation_prompt=True, enable_thinking=True)
        whole = self._rendered([_QUESTION, _as_text(message)], enable_thinking=True)
        written, stop, _ = whole.removeprefix(before).rpartition(self.stop_token)
        if not whole.startswith(before) or not stop:
            raise ToolTemplateError(f"{self._model}: its chat template does not write a turn after {before[-40:]!r}")
        return written if self.enable_thinking else written.rpartition(f"{CLOSE_THOUGHT}\n\n")[2]

    def results(self, texts: Sequence[str]) -> str:
        """Return the text between a turn's stop token and the next turn: the results of its calls, in order."""
        call = {"type": "function", "function": {"name": "tool", "arguments": "{}"}}
        # With a thought, because Qwen3's template renders a turn without one in two ways.
        thought = f"{OPEN_THOUGHT}\nthought\n{CLOSE_THOUGHT}\n\n"
        conversation = [_QUESTION, {"role": "assistant", "content": thought, "tool_calls": [call]}]
        results = [{"role": "tool", "name": "tool", "content": text} for text in texts]
        before = self._rendered(conversation)
        whole = self._rendered([*conversation, *results], add_generation_prompt=True)
        kept, stop, _ = before.rpartition(self.stop_token)
        if not stop or not whole.startswith(kept + stop):
            raise ToolTemplateError(f"{self._model}: its chat template does not put tool results after {stop!r}")
        return whole.removeprefix(kept + stop)

    def ids(self, text: str) -> list[int]:
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def segments(self, messages: Iterable[ChatMessage]) -> Iterator[Segment]:
        """Yield the segments of a conversation that begins with a question; sampled ones end with the stop token."""
        question, *following = messages
        prompt, results = self.prompt(question["content"]), list[str]()
        for message in following:
            if message["role"] == "tool":
                results.append(message["content"])
                continue
            yield Segment(self.results(results) if results else prompt, False)
            yield Segment(self.turn(message) + self.stop_token, True)
            results = []

    def tokens(self, segments: Iterable[Segment]) -> tuple[list[int], list[int]]:
        """Return ids and loss mask, (length,) each; segments are tokenised one by one, as in an episode."""
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

    def _rendered(self, messages: Sequence[ChatMessage], **named: Any) -> str:
        options = {"tools": list(self.schemas) or None, "enable_thinking": self.enable_thinking} | named
        try:
            return str(self.tokenizer.apply_chat_template(list(messages), tokenize=False, **options))
        except (ValueError, JinjaError) as error:
            raise ToolTemplateError(f"{self._model}: its chat template does not support tool calls ({error})") from None


def _as_text(message: ChatMessage) -> ChatMessage:
    """Return a message with call arguments as JSON texts: as objects, Arrow would give each call the keys of all."""
    calls = [
        call | {"function": call["function"] | {"arguments": json.dumps(call["function"]["arguments"])}}
        for call in message.get("tool_calls", [])
    ]
    return message | {"tool_calls": calls} if calls else message
