"""All that differs between formats of tool calls.

The text around turns and results comes from the model's own chat template (rendering.py), so no format writes it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from arc_refinery.tool_use.config.tool_signatures import ToolSignature


class MalformedCall(Exception):
    """A call cannot be read; the message is for the model."""


@dataclass(frozen=True, slots=True)
class WrittenCall:
    """The text of a call, without the tags around it."""

    text: str
    is_closed: bool = True  # False: its end is missing, because the turn was cut off or the model forgot it
    span: tuple[int, int] = field(default=(0, 0), compare=False)  # in the text before the split, tags included


class CallFormat(Protocol):
    """A form of tool calls."""

    @property
    def name(self) -> str:
        """The value of `generation.call_format`."""

    @property
    def ends(self) -> tuple[str, ...]:
        """Tokens that end a turn."""

    @property
    def marks(self) -> re.Pattern[str]:
        """First characters of what no result may contain: special tokens and tags of the chat template."""

    @property
    def unclosed(self) -> str:
        """For the model: what a call without its end lacks, and what to do; a correct call follows."""

    def start(self, text: str) -> int:
        """Return where the first call begins; without any, the length of the text."""

    def split(self, text: str) -> tuple[str, tuple[WrittenCall, ...]]:
        """Return the text around the calls, and the calls; every text can be split."""

    def read(self, call: str, tools: Mapping[str, ToolSignature]) -> tuple[str, dict[str, Any]]:
        """Return name and arguments of a call's text, which need not fit a tool; raises `MalformedCall`."""

    def example(self, tool: ToolSignature) -> str:
        """Return the text of a correct call, as `read` takes it."""
