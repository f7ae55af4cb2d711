"""The golden file of messages: tests hold their facts, this file their wording.

`make messages` rewrites it; read the difference as a user reads the messages.
"""

import sys
from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from itertools import groupby
from pathlib import Path

import pytest
from checkout import ROOT

GOLDEN = ROOT / "tests/messages.txt"
HEADER = "The wording of messages, by the test that sees them. `make messages` writes this file.\n"
COLLECTED = pytest.StashKey[set[str]]()  # names of the tests that see messages
_WRITTEN = pytest.StashKey[dict[str, list[str]]]()


class Wording:
    """Compares the messages of a test, one call each, with the golden file; their paths may be below `tmp_path`."""

    def __init__(self, test: str, folder: Path, is_new: bool) -> None:
        self.seen: list[str] = []
        self._expected = None if is_new else read().get(test, [])
        self._places = {str(folder): "<folder>", str(ROOT): "<root>"}

    def __call__(self, message: object) -> None:
        text = str(message)
        for place, name in self._places.items():
            text = text.replace(place, name)
        self.seen.append(text.strip())
        if self._expected is not None:
            expected = self._expected[: len(self.seen)]
            assert self.seen == expected, f"not the wording in {GOLDEN.name}: a mistake, or `make messages`"


@pytest.fixture
def wording(request: pytest.FixtureRequest, tmp_path: Path) -> Wording:
    test, config = name_of(request.node), request.config
    is_new = bool(config.getoption("write_messages"))
    fixture = Wording(test, tmp_path, is_new)
    if is_new:
        config.stash[_WRITTEN][test] = fixture.seen
    return fixture


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--write-messages", action="store_true", help=f"rewrite {GOLDEN.name}; runs the tests that see messages"
    )


def collect(config: pytest.Config, items: list[pytest.Item]) -> None:
    see = [item for item in items if "wording" in getattr(item, "fixturenames", ()) and not _has_its_own(item)]
    config.stash[COLLECTED] = set(map(name_of, see))
    if config.getoption("write_messages"):
        config.stash[_WRITTEN] = {}
        items[:] = see


def _has_its_own(item: pytest.Item) -> bool:
    """Return whether `wording` is a parameter of the test."""
    return "wording" in getattr(getattr(item, "callspec", None), "params", {})


def write(session: pytest.Session, exitstatus: int) -> None:
    """Replace what the golden file has of the tests that ran, and remove what it has of tests that are gone."""
    config = session.config
    if config.getoption("write_messages") and not exitstatus:
        gone = {module_of(test) for test in read() if not (ROOT / "tests" / module_of(test)).exists()}
        collected, ran = config.stash[COLLECTED], config.stash[_WRITTEN]
        modules = set(map(module_of, collected))
        others = {
            test: texts
            for test, texts in read().items()
            if test not in ran and (test in collected or module_of(test) not in modules | gone)
        }
        seen = {test: texts for test, texts in ran.items() if texts}
        GOLDEN.write_text(written(others | seen))


def line_with(text: str, words: str) -> str:
    """The only line that has them."""
    (line,) = (line for line in text.splitlines() if words in line)
    return line


def name_of(item: pytest.Item) -> str:
    return item.nodeid.removeprefix("tests/")


def module_of(test: str) -> str:
    return test.partition("::")[0]


def written(messages: dict[str, list[str]]) -> str:
    """Headings for modules and tests; messages begin with a dash, and their further lines are indented."""
    lines = [HEADER]
    for module, tests in groupby(sorted(messages), module_of):
        lines += [f"# {module}", ""]
        for test in tests:
            lines += [f"## {test.removeprefix(f'{module}::')}"]
            lines += ["- " + text.replace("\n", "\n  ") for text in messages[test]] + [""]
    return "\n".join(lines)


@cache
def read() -> dict[str, list[str]]:
    texts: dict[str, list[str]] = defaultdict(list)
    module = test = ""
    for line in GOLDEN.read_text().splitlines() if GOLDEN.exists() else []:
        if line.startswith("# "):
            module = line.removeprefix("# ")
        elif line.startswith("## "):
            test = f"{module}::{line.removeprefix('## ')}"
        elif line.startswith("- "):
            texts[test].append(line.removeprefix("- "))
        elif line.startswith("  "):
            texts[test][-1] += f"\n{line.removeprefix('  ')}"
    return dict(texts)


def run(monkeypatch: pytest.MonkeyPatch, words: str | Sequence[str]) -> object:
    """Run the command line in this process; return its exit code, or its message where the code is 1."""
    from arc_refinery import cli

    monkeypatch.setattr(sys, "argv", ["arc-refinery", *(words.split() if isinstance(words, str) else words)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return ended.value.code
