"""The user of an episode in tool use: a built-in one, or a function of one's own.

user: check-again
user: users.py:reply
"""

from typing import Annotated, Literal, get_args

from pydantic import AfterValidator

from arc_refinery.config.own_code import OwnCode

BuiltInUser = Literal["check-again"]


def _is_known(user: str) -> str:
    known = get_args(BuiltInUser)
    if user not in known and OwnCode.parse(user) is None:
        raise ValueError(f"{user!r:.100} is not a user; expected {', '.join(known)}, or `file.py:name`")
    return user


User = Annotated[str, AfterValidator(_is_known)]
