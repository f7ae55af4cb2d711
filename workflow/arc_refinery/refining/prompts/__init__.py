"""Conversations of several turns, the program in an answer, and rendering, whatever is refined."""

from arc_refinery.models.chat import Message
from arc_refinery.refining.prompts.conversation import (
    Renderer,
    extract_code,
    has_closed_code,
    next_turn,
    opening,
    split_prefix,
)
