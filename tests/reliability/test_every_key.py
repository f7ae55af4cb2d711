"""Every key of a configuration with every mistake: one message that names the key, or a value that is right."""

import math
import re
from copy import deepcopy
from typing import Any

import pytest
from checkout import SMALL, TOOLS
from experiments import REFINING, TOOL_USE, Changes, contents, put, settings

from arc_refinery.config import ConfigError, validate_experiment

# Never right, whatever the key
WRONG = [math.nan, math.inf, -math.inf, 2**70, -(2**70), 1e300, "\ud800", "x" * 200_000, [None], {"x": 1}, b"x"]
# Right for the keys that `ALLOWED` names
RARE = [-1, 1e-300, "", " ", "\x00", "a\nb"]
# Right for many keys: anything but a crash
MAYBE: list[Any] = [None, True, 0, 1.5, "x", "1", [], {}]
TEXTS = {"", " ", "\x00", "a\nb"}
ALLOWED: dict[str, set[Any]] = {
    "caveat": TEXTS,
    "system": TEXTS,
    "stop_token": TEXTS - {""},
    "max_steps": {-1},  # no limit
    "weight": {-1, 1e-300},  # weight of a reward: a penalty
    "template": {""},  # the usual one
    "form": {""},
    "requirements": {""},  # none
    "venv": {""},
}

OF_ANY_KEYS = {"extra_body"}

Case = tuple[Changes, str, Any]  # a config, the place of a key, a mistake


def cases() -> list[Case]:
    """Every key of all kinds and variants, once, with every mistake."""
    keys: dict[tuple[str, str], Changes] = {}
    for base, variants in ((SMALL, REFINING), (TOOLS, TOOL_USE)):
        for content in contents(base, variants):
            for place, *_ in settings(validate_experiment(deepcopy(content), base)):
                words = place.split(".")
                for n_words in range(1, len(words) + 1):  # its sections, too
                    keys.setdefault((base, ".".join(words[:n_words])), content)
    return [(content, place, mistake) for (_, place), content in keys.items() for mistake in WRONG + RARE + MAYBE]


def refusal(content: Changes, place: str, value: Any) -> str | None:
    """The message on a value of a key; None: it is accepted."""
    mistaken = deepcopy(content)
    put(mistaken, place, value)
    try:
        validate_experiment(mistaken, "mistaken.yaml")
    except ConfigError as error:
        return str(error)
    return None


def wrongs(some: list[Case]) -> list[str]:
    wrong = []
    for content, place, mistake in some:
        name = re.sub(r"\.\d+", "", place).rpartition(".")[2]
        message = refusal(content, place, mistake)
        if message is not None:
            is_right = message.startswith("mistaken.yaml") and name in message and len(message) < 1000
        elif mistake == 1e-300 and name not in ALLOWED:
            is_right = refusal(content, place, 0) is None  # as little as nothing
        elif any(mistake is value for value in RARE):
            is_right = mistake in ALLOWED.get(name, ())
        else:
            is_right = not any(mistake is value for value in WRONG) or (name in OF_ANY_KEYS and mistake == {"x": 1})
        if not is_right:
            wrong.append(f"{place} = {mistake!r:.40}: {message or 'accepted'}")
    return wrong


@pytest.mark.slow
def test_every_mistake_in_every_key() -> None:
    assert wrongs(cases()) == []
