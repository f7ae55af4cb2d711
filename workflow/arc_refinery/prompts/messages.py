"""One message of a chat."""

from typing import TypedDict


class Message(TypedDict):
    role: str
    content: str
