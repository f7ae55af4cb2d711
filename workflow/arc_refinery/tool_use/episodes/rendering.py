"""Render conversations with tool calls in the model's chat template.

A conversation is concatenated, as in an episode: the prompt, a turn of the model, the results of its calls, the next
turn, ... It is never rendered as a whole, because templates such as Qwen3's then drop thoughts that the model did see.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from arc_refinery.errors import InputError, ModelError
from arc_refinery.models.chat import folder_template, opened_thought, render_limit, special_marks, without_marks
from arc_refinery.records.tool_use import Segment
from arc_refinery.tool_use.calls.formats import FORMATS, HERMES, CallFormat, MalformedCall
from arc_refinery.tool_use.calls.turns import CLOSE_THOUGHT, OPEN_THOUGHT, ParsedTurn, parse_turn
from arc_refinery.tool_use.config import Generation
from arc_refinery.tool_use.config.tool_signatures import ToolSignature

ChatMessage = dict[str, Any]

_QUESTION: ChatMessage = {"role": "user", "content": "question"}
# A call that every template must write so that its format reads it back
MAKE_ROOM = "Raise model.window, or lower generation.max_episode_tokens"
_TOOL = ToolSignature(
    "order",
    "Order something.",
    {
        "note": {"type": "string", "description": "A text"},
        "number": {"type": "integer", "description": "A whole number"},
        "is_gift": {"type": "boolean", "description": "True or false"},
        "colours": {"type": "array", "items": {"type": "string"}, "description": "A list"},
    },
    ("note", "number", "is_gift", "colours"),
    {"note": 'a "red" hat,\n1 + 1', "number": 7, "is_gift": True, "colours": ["red", "blue"]},
)


@dataclass(frozen=True)
class ToolRenderer:
    """A model's chat template and its options, shared by all conversations."""

    tokenizer: Any  # of transformers, or one that only has the chat template
    schemas: Sequence[dict[str, Any]]  # JSON schemas of the available tools
    enable_thinking: bool
    stop_token: str  # ends a turn
    system: str = ""  # message before each question
    call_format: CallFormat = HERMES

    def __post_init__(self) -> None:
        if match := self.special.search(described := json.dumps(list(self.schemas), ensure_ascii=False)):
            raise InputError(
                f"{self._model}: the description of a tool contains the text of a special token of this model: "
                f"{described[match.start() :][:20]!r}; write it with a space inside"
            )

    @cached_property
    def special(self) -> re.Pattern[str]:
        """The special tokens of the tokenizer, for `without_marks`."""
        return special_marks(self.tokenizer.added_tokens_decoder)

    @cached_property
    def _marks(self) -> re.Pattern[str]:
        """The same, and the tags of calls and thoughts."""
        return special_marks(self.tokenizer.added_tokens_decoder, self.call_format.marks.pattern)

    def masked(self, text: str) -> str:
        """Return a text from outside the model, such as a result, as the model may read it."""
        return without_marks(text, self._marks)

    @cached_property
    def stop_id(self) -> int:
        """Id of `stop_token`; raises `InputError` if the model has no such token."""
        stop = self.tokenizer.get_vocab().get(self.stop_token)
        if stop is None:
            raise InputError(f"{self._model}: generation.stop_token {self.stop_token!r} is not a token of this model")
        return int(stop)

    def check_stop_token(self) -> None:
        """Raise `InputError` if the model has no such token."""
        _ = self.stop_id

    def check(self) -> None:
        """Raise `InputError` unless template and tokenizer carry calls of this format, and results."""
        stop = self.stop_id
        self.check_template()
        written = self.turn(_call_message())
        if not self._is_call(self.text_of_turn([*self.ids(written), stop])):
            raise InputError(f"{self._model}: its tokenizer does not give back a call: {written!r:.200}")

    def check_template(self) -> None:
        """Raise `InputError` unless the chat template writes calls of this format, and results."""
        written = self.turn(_call_message())
        if not self._is_call(self._opened_thought + written):
            raise InputError(
                f"{self._model}: its chat template does not support tool calls of the format "
                f"{self.call_format.name}: it writes one as {written!r:.200}"
            )
        results = self.results(["7", "9"])
        if "7" not in results or "9" not in results:
            raise InputError(
                f"{self._model}: its chat template does not support tool calls, because it writes their results as "
                f"{results!r:.200}"
            )

    def text_of_turn(self, ids: Sequence[int]) -> str:
        """Return the text of a sampled turn, with the `<think>` of the prompt, without special tokens."""
        return self._opened_thought + str(self.tokenizer.decode(list(ids), skip_special_tokens=True))

    def parse(self, text: str) -> ParsedTurn:
        """Parse the text of a turn."""
        return parse_turn(text, self.call_format)

    def offering(self, schemas: Sequence[dict[str, Any]]) -> Self:
        """Return a renderer for a set of questions with these tools."""
        return self if schemas == self.schemas else replace(self, schemas=schemas)

    def prompt(self, question: str) -> str:
        """Return a question's prompt, up to where the model continues."""
        return self._rendered(self.opening(question), add_generation_prompt=True)

    def opening(self, question: str) -> list[ChatMessage]:
        """Return the messages of a question's prompt."""
        system = without_marks(self.system, self.special)  # may speak of tags, such as `<think>`
        before: list[ChatMessage] = [{"role": "system", "content": system}] if system else []
        return [*before, {"role": "user", "content": self.masked(question)}]

    def turn(self, message: ChatMessage) -> str:
        """Return an assistant's message as the model would write it, without the stop token."""
        before = self._rendered([_QUESTION], add_generation_prompt=True, enable_thinking=True)
        if before.rstrip().endswith(OPEN_THOUGHT):  # Qwen3.8's template takes thoughts from their own field only
            message = _with_reasoning(message)
        whole = self._rendered([_QUESTION, message], enable_thinking=True)
        written, stop, _ = whole.removeprefix(before).rpartition(self.stop_token)
        if not whole.startswith(before) or not stop:
            raise InputError(
                f"{self._model}: its chat template does not write a turn after {before[-40:]!r} that ends with "
                f"generation.stop_token {self.stop_token!r}; it writes {whole[-80:]!r}"
            )
        return written if self.enable_thinking else written.rpartition(f"{CLOSE_THOUGHT}\n\n")[2]

    def results(self, texts: Sequence[str]) -> str:
        """Return the text between a turn's stop token and the next turn: the results of its calls, in order."""
        call = {"type": "function", "function": {"name": "tool", "arguments": {}}}
        # With a thought, because Qwen3's template renders a turn without one in two ways.
        thought = f"{OPEN_THOUGHT}\nthought\n{CLOSE_THOUGHT}\n\n"
        conversation = [_QUESTION, {"role": "assistant", "content": thought, "tool_calls": [call]}]
        results = [{"role": "tool", "name": "tool", "content": text} for text in texts]
        before = self._rendered(conversation)
        whole = self._rendered([*conversation, *results], add_generation_prompt=True)
        prefix, stop, _ = before.rpartition(self.stop_token)
        if not stop or not whole.startswith(prefix + stop):
            raise InputError(f"{self._model}: its chat template does not put tool results after {stop!r}")
        return whole.removeprefix(prefix + stop)

    def ids(self, text: str) -> list[int]:
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def segments(self, messages: Iterable[ChatMessage]) -> Iterator[Segment]:
        """Yield the segments of a conversation that begins with a question; sampled ones end with the stop token."""
        question, *following = messages
        prompt, results = self.prompt(question["content"]), list[str]()
        for message in following:
            if message["role"] == "tool":
                results.append(self.masked(message["content"]))
                continue
            yield Segment(self.results(results) if results else prompt, False)
            yield Segment(self.turn(self._tokenised_again(message)) + self.stop_token, True)
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

    def _tokenised_again(self, message: ChatMessage) -> ChatMessage:
        """Return an assistant's message without the text of special tokens, which the model could not write either."""
        plain = message | {"content": without_marks(message["content"], self.special)}
        if "tool_calls" in message:
            plain["tool_calls"] = [
                call | {"function": {"name": function["name"], "arguments": self._plain_texts(function["arguments"])}}
                for call in message["tool_calls"]
                for function in [call["function"]]
            ]
        return plain

    def _plain_texts(self, arguments: dict[str, Any]) -> dict[str, Any]:
        return {
            name: without_marks(value, self.special) if isinstance(value, str) else value
            for name, value in arguments.items()
        }

    @cached_property
    def _opened_thought(self) -> str:
        """`<think>` if prompts end with it, as Qwen3.5's do: parsers of turns expect the tag."""
        return opened_thought(self.prompt("question"))

    def _is_call(self, text: str) -> bool:
        """Return whether a turn is the call that every template must write, and nothing else."""
        turn = self.parse(text)
        try:
            read = [self.call_format.read(call.text, {_TOOL.name: _TOOL}) for call in turn.calls if call.is_closed]
        except MalformedCall:
            return False
        return not turn.text and read == [(_TOOL.name, _TOOL.example)]

    @property
    def _model(self) -> str:
        return self.tokenizer.name_or_path or "the tokenizer"

    def _rendered(self, messages: Sequence[ChatMessage], **named: Any) -> str:
        options = {"tools": list(self.schemas) or None, "enable_thinking": self.enable_thinking} | named
        try:
            with render_limit(self._model):
                return str(self.tokenizer.apply_chat_template(list(messages), tokenize=False, **options))
        except ModelError:
            raise
        except Exception as error:  # noqa: BLE001  # whatever its expressions raise
            raise InputError(f"{self._model}: its chat template does not support tool calls ({error})") from None


def check_folder(folder: Path, settings: Generation) -> None:
    """Raise `InputError` as a job with this model would, where the chat template can be read without loading it.

    Otherwise the first job checks it.
    """
    template: Any = folder_template(folder)
    if template is not None:
        thinking, stop, system = settings.enable_thinking, settings.stop_token, settings.system
        with_call_format(ToolRenderer(template, (_TOOL.schema,), thinking, stop, system), settings.call_format)


def with_call_format(renderer: ToolRenderer, name: str) -> ToolRenderer:
    """Return the renderer with the format of this name; with `auto`, with the one that the chat template writes.

    Raise `InputError` if the template does not write calls of the format, or of any.
    """
    candidates = [replace(renderer, call_format=call_format) for call_format in FORMATS.values()]
    if name != "auto":
        candidate = next(candidate for candidate in candidates if candidate.call_format.name == name)
        candidate.check_template()
        return candidate
    written = renderer.turn(_call_message())
    for candidate in candidates:
        if candidate._is_call(candidate._opened_thought + written):
            candidate.check_template()
            return candidate
    raise InputError(
        f"{renderer._model}: its chat template does not support tool calls of any known format "
        f"({', '.join(FORMATS)}): it writes one as {written!r:.200}"
    )


def _with_reasoning(message: ChatMessage) -> ChatMessage:
    """Return a message with its thought, if there is one, in a field of its own."""
    opened, tag, rest = message["content"].partition(OPEN_THOUGHT)
    thought, closed, text = rest.partition(CLOSE_THOUGHT)
    if opened.strip() or not tag or not closed:
        return message
    return message | {"content": text.lstrip("\n"), "reasoning_content": thought.strip("\n")}


def _call_message() -> ChatMessage:
    call = {"type": "function", "function": {"name": _TOOL.name, "arguments": _TOOL.example}}
    return {"role": "assistant", "content": "", "tool_calls": [call]}
