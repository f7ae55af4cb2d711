"""The script with which bash completes commands, flags and files: `source <(arc-refinery --completion)`.

It holds all names, because starting this program at each press of Tab would take longer than typing.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from tyro.conf import Positional

from arc_refinery.cli import COMMANDS, load
from arc_refinery.config import KINDS
from arc_refinery.config.flags import flag_names

SCRIPT = """\
_arc_refinery() {{
  local before="${{COMP_WORDS[*]:1:COMP_CWORD-1}}" word="${{COMP_WORDS[COMP_CWORD]}}" choices=
  if [[ $word == -* ]]; then
    case "$before " in
{flags}
    esac
  else
    case "$before" in
{words}
    esac
  fi
  COMPREPLY=($(compgen -W "$choices" -- "$word"))
}}
complete -o default -F _arc_refinery arc-refinery"""


def script() -> str:
    words: dict[str, dict[str, None]] = defaultdict(dict, {"train --kind": dict.fromkeys(KINDS)})
    for name in COMMANDS:
        first, _, second = name.partition(" ")
        words[""][first] = None
        if second:
            words[first][second] = None
    words |= {f"help {before}".strip(): choices for before, choices in words.items() if "--" not in before}
    names = [*COMMANDS, *(f"train --kind {kind}" for kind in KINDS)]
    flags = {f"{name} ": _flags_of(name) for name in sorted(names, key=len, reverse=True)}  # longer names first
    flags[" "] = ["--help", "--version", "--completion"]
    return SCRIPT.format(flags=_cases(flags, "*"), words=_cases(words, ""))


def _flags_of(name: str) -> list[str]:
    kind = load(name)
    named = [field_name for field_name, field in kind.model_fields.items() if Positional not in field.metadata]
    return list(flag_names(kind, named))


def _cases(choices: Mapping[str, Iterable[str]], end: str) -> str:
    return "\n".join(f'      "{before}"{end}) choices="{" ".join(after)}" ;;' for before, after in choices.items())
