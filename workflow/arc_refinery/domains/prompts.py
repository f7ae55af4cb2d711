"""Conversations: the first turn, feedback from executing an answer, the program in an answer, and rendering.

    first turn   user       "\\ninput 1x2\\n1 10\\noutput 1x2\\n1 01"
    next turn    the same, the answer and its feedback:
                 assistant  "```python\\nfrom common import *\\n\\ndef transform(grid):\\n    return grid\\n```"
                 user       "Executing your program gave:\\npair 1 wrong, pixel similarity 0%, given 1x2\\n1 10\\n[...]"

They are lists of `{"role", "content"}` messages; the model's own chat template turns them into tokens. If a template
has an assistant prefix, a conversation that waits for an answer ends with it, as an assistant message: the rendered
text ends with the prefix, and the recorded completion is the prefix plus the sampled text. So code is extracted from
the whole answer, and the next turn shows the whole answer. Token counts cover only the sampled text. The same goes for
`<think>` where the chat template ends a prompt with it: a draft in a thought that is cut is not an answer.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from itertools import takewhile
from textwrap import dedent

from arc_refinery.errors import InputError
from arc_refinery.models.chat import SERVED, Message, load_chat, opened_thought, without_marks
from arc_refinery.programs import CLOSED_THOUGHT, OPENED_THOUGHT, last_block, last_program
from arc_refinery.records import Prompt

_PYTHON, _END = "```python", "```"
_SLOT = re.compile(r"\{(\w+)\}")  # in the texts of a wording


def split_prefix(conversation: Sequence[Message]) -> tuple[list[Message], str]:
    """Split a conversation into its messages and the prefix of the next answer, empty without a prefix."""
    *messages, last = conversation
    return (messages, last["content"]) if last["role"] == "assistant" else ([*messages, last], "")


def begun_answer(prompt: Prompt) -> str:
    """Return the beginning of the answer that a prompt's text ends with: a prefix, or a thought that is opened."""
    return split_prefix(prompt.messages)[1] or opened_thought(prompt.text)


def behind_thought(prompt: str, answer: str) -> str:
    """Return a whole answer to a rendered prompt, behind an empty thought if the prompt opens one that it lacks."""
    opened = opened_thought(prompt)
    if not opened or answer.startswith(opened):
        return answer
    return f"{opened}\n{opened.strip().replace('<', '</')}\n\n{answer}"


def rest_of_answer(answer: str, text: str, conversation: Sequence[Message]) -> str:
    """Return what of a whole answer follows a prompt, in text and in messages, which may end with its beginning."""
    return behind_thought(text, answer).removeprefix(opened_thought(text) or split_prefix(conversation)[1])


def opening(conversation: Sequence[Message]) -> list[Message]:
    """Return the first turn of a conversation that waits for an answer."""
    messages, prefix = split_prefix(conversation)
    first = list(takewhile(lambda message: message["role"] != "assistant", messages))
    return [*first, Message(role="assistant", content=prefix)] if prefix else first


def next_turn(conversation: Sequence[Message], completion: str, feedback: str) -> list[Message]:
    """Return the model's conversation so far, its whole answer, and the feedback on that answer.

    If the answer started with a prefix, the next answer does too.
    """
    messages, prefix = split_prefix(conversation)
    prefix_message = [Message(role="assistant", content=prefix)] if prefix else []
    answer_message = Message(role="assistant", content=completion)
    return [*messages, answer_message, Message(role="user", content=feedback), *prefix_message]


def has_closed_code(completion: str) -> bool:
    """Return whether the first `python` block ends and is not empty, as the published `valid code` counts."""
    code, end = _first_python_block(_after_thought(completion))
    return bool(end and code.strip())


def program_and_end(completion: str) -> tuple[str | None, bool]:
    """Return the program in an answer in any language, and whether it ends: as published if it is a `python` block."""
    answer = _after_thought(completion)
    return (extract_code(answer), has_closed_code(answer)) if _PYTHON in answer else last_block(answer)


def extract_code(completion: str, wanted: Collection[str] = ("transform",)) -> str | None:
    """Return the first `python` block (an unclosed one counts), as published, else that of `last_program`.

    Only the text after a thought counts. An indented block, as in a list, is dedented: as it is, it could not run.
    """
    answer = _after_thought(completion)
    if _PYTHON not in answer:
        return last_program(answer, wanted)
    code, _ = _first_python_block(answer)
    code = code.lstrip(" \t").removeprefix("\r").removeprefix("\n")
    return dedent(code) if code.lstrip("\r\n")[:1] in tuple(" \t") else code


def _after_thought(completion: str) -> str:
    """Return the text after the last thought, or before a thought that is never closed."""
    answer = CLOSED_THOUGHT.split(completion)[-1]
    before, *opened = OPENED_THOUGHT.split(answer, 1)
    return before if opened and _END not in before else answer


def _first_python_block(completion: str) -> tuple[str, str]:
    """Return the code of the first `python` block, and its closing fence; either may be empty."""
    _, _, after = completion.partition(_PYTHON)
    code, end, _ = after.partition(_PYTHON)[0].partition(_END)
    return code, end


def slots_of(text: str) -> list[str]:
    return _SLOT.findall(text)


def fill(text: str, values: Mapping[str, object]) -> str:
    """Fill a text's slots in one pass, so that slots inside values are not filled; slots without a value stay."""
    return _SLOT.sub(lambda slot: str(values.get(slot[1], slot[0])), text)


def check_slots(where: str, text: str, slots: Sequence[str], required: Sequence[str]) -> None:
    """Raise `InputError` if a text has a slot that nothing fills, which the model would read, or lacks a slot."""
    if wrong := [slot for slot in slots_of(text) if slot not in slots]:
        names = ", ".join(f"{{{slot}}}" for slot in slots) or "none"
        raise InputError(
            f"{where} has {{{wrong[0]}}}, which nothing fills; its slots: {names}. Correct it, or write other words in "
            "other brackets"
        )
    if missing := [slot for slot in required if slot not in slots_of(text)]:
        raise InputError(f"{where} has no {{{missing[0]}}}; add it where its text belongs")


class Renderer:
    """A model's chat template and tokenizer. For a served model, texts are for people, and have 0 tokens."""

    def __init__(self, model_path: str, enable_thinking: bool | None = None, is_served: bool = False) -> None:
        self._is_served = is_served
        self._chat = SERVED if is_served else load_chat(model_path, enable_thinking)

    def render(self, messages: Sequence[Message]) -> tuple[str, int]:
        """Return a conversation's text up to where the model continues, and its number of tokens.

        A last message of the assistant is the beginning of the answer.
        """
        conversation, prefix = split_prefix(self.masked(messages))
        text = self._chat.render(conversation)
        if prefix and self._is_served:
            raise InputError(
                f"the wording begins answers with {prefix!r:.100} (assistant_prefix), which servers do not continue: "
                "set model.template to a wording without one"
            )
        if prefix and opened_thought(text):
            raise InputError(
                "the chat template opens a thought, in which the prompts' assistant_prefix would begin the answer: set "
                "generation.enable_thinking to false, or model.template to a wording without one"
            )
        return text + prefix, self.count(text + prefix)

    def check_texts(self, texts: Mapping[str, str], longest: int) -> None:
        """Raise `InputError` if a text of the wording alone has more tokens than a prompt may have."""
        for name, text in texts.items():
            if (n_tokens := self.count(text)) > longest:
                raise InputError(
                    f"the template's text {name} alone has {n_tokens} tokens, but prompts have at most {longest}: "
                    "shorten it (docs/methods.md), or raise model.window"
                )

    def masked(self, messages: Sequence[Message]) -> list[Message]:
        """Return a conversation without the text of special tokens in its messages, except in the next answer's prefix.

        Messages that are rendered again later are stored in this form.
        """
        conversation, prefix = split_prefix(messages)
        plain = [Message(role=message["role"], content=self.plain(message["content"])) for message in conversation]
        return [*plain, Message(role="assistant", content=prefix)] if prefix else plain

    def plain(self, text: str) -> str:
        """Return a text without that of special tokens."""
        return without_marks(text, self._chat.marks)

    def count(self, text: str) -> int:
        """Return the number of tokens of a text that continues a conversation."""
        return self._chat.count(text)
