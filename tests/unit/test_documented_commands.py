"""Commands, links and pages that README, docs, config, help texts and messages name exist; pictures are up to date."""

import argparse
import ast
import contextlib
import importlib
import importlib.util
import inspect
import io
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import yaml
from checkout import ROOT

from arc_refinery import cli, outputs, stages
from arc_refinery.cli.command import OTHER_NAMES
from arc_refinery.config import KINDS, validate_experiment

PROGRAMS = "arc-refinery|snakemake|make|trl|python"
INLINE = re.compile(rf"`((?:{PROGRAMS})(?: [^`\n]*)?)`")
YAML = re.compile(r"^```yaml\n(.*?)^```", re.MULTILINE | re.DOTALL)
FENCE = re.compile(r"^```[a-z]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINE = re.compile(rf"^(?:\$ )?((?:{PROGRAMS}) .*)")
RULE = re.compile(r"^\s*(?:rule|use rule \w+ as) (\w+)", re.MULTILINE)
NAMES = set(cli.COMMANDS)
OPEN = re.compile(r"[<{…]")  # a placeholder: results/<experiment>, {path}


def texts() -> dict[str, str]:
    files = [ROOT / "README.md", ROOT / "config/schema.json"]
    for pattern in (
        "docs/**/*.md",
        "config/*.md",
        "config/*.yaml",
        "profiles/**/*.yaml",
        "workflow/arc_refinery/**/*.py",
    ):
        files += sorted(ROOT.glob(pattern))
    return {str(path.relative_to(ROOT)): path.read_text() for path in files}


def commands(text: str) -> Iterator[str]:
    """Those between back ticks, and lines of blocks of code; a line may hold several, and a comment."""
    yield from INLINE.findall(text)
    for block in FENCE.findall(text):
        for line in block.replace("\\\n", " ").splitlines():
            for part in line.partition(" #")[0].split("&&"):
                if match := LINE.match(part.strip()):
                    yield match[1]


def fault(command: str) -> str | None:
    """The fault of a command; None where it exists."""
    program, *words = shlex.split(command)
    match program:
        case "arc-refinery":
            return fault_of_ours(words)
        case "snakemake":
            return fault_of_snakemake(words)
        case "make":
            targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
            return next(
                (f"make has no target {word}" for word in words if "=" not in word and word not in targets), None
            )
        case "trl" if words:  # alone it is a key
            return fault_of_trl(words)
        case _:
            return next((f"no file {word}" for word in words[:1] if word.endswith(".py") and not exists(word)), None)


def exists(path: str) -> bool:
    """Whether a file exists; those of a run and of the reader (`mine.yaml`, `mine/tasks`) need not."""
    parts = Path(path).with_suffix("").parts
    return bool(OPEN.search(path)) or parts[0] == "results" or "mine" in parts or (ROOT / path).exists()


def fault_of_ours(words: list[str]) -> str | None:
    words = words[words[:1] == ["help"] :]
    if not words or OPEN.search(words[0]) or words[0] in ("--help", "--version", "--completion"):
        return None
    if words[0] == "stage":
        return fault_of_stage(words[1:])
    name = next((" ".join(words[:n]) for n in (3, 2, 1) if " ".join(words[:n]) in NAMES), None)
    if name is None:
        groups = {name.split()[0] for name in NAMES}
        return f"arc-refinery has no command {' '.join(words[: 1 + (words[0] in groups)])!r}"
    words = words[len(name.split()) :]
    flags = {word.partition("=")[0] for word in words if word.startswith("--")}
    unknown = sorted(flags - flags_of(name) - OTHER_NAMES.keys())
    return f"arc-refinery {name} has no flag {unknown[0]}" if unknown else None


def fault_of_stage(words: list[str]) -> str | None:
    if not words or OPEN.search(words[0]) or words == ["--help"]:
        return None
    loaded = [stages.load(words[0], kind) for kind in KINDS if words[0] in stages.stages_of(kind)]
    if not loaded:
        return f"arc-refinery has no stage {words[0]!r}"
    known = {outputs.flag_of(name) for stage in loaded for name in inspect.signature(stage).parameters}
    unknown = [word for word in words if word.startswith("--") and word not in known | {"--help", "--tuning"}]
    return f"the stage {words[0]} has no flag {unknown[0]}" if unknown else None


@cache
def flags_of(name: str) -> frozenset[str]:
    """Those that begin a line of the command's help."""
    help_text = io.StringIO()
    with contextlib.redirect_stdout(help_text), pytest.raises(SystemExit):
        cli.parse([*name.split(), "--help"])
    lines = [line.strip("│ ") for line in help_text.getvalue().splitlines()]
    return frozenset(flag for line in lines if line.startswith("-") for flag in re.findall(r"--[a-z0-9.-]+", line))


def fault_of_snakemake(words: list[str]) -> str | None:
    try:
        arguments = snakemakes_parser().parse_args(words)
    except (SystemExit, argparse.ArgumentError) as error:
        return f"snakemake does not take these flags: {error}"
    files = [str(path) for path in [*(arguments.configfile or []), *(arguments.profile or [])]]
    if missing := [path for path in files if not exists(path)]:
        return f"no file {missing[0]}"
    rules = {
        name for path in (ROOT / "Snakefile", *ROOT.glob("rules/*.smk")) for name in RULE.findall(path.read_text())
    }
    targets = [str(word) for word in [*arguments.targets, *(arguments.forcerun or [])]]
    unknown = [
        word for word in targets if word not in rules and not word.startswith("results/") and not OPEN.search(word)
    ]
    return f"no rule {unknown[0]}" if unknown else None


@cache
def snakemakes_parser() -> argparse.ArgumentParser:
    from snakemake.cli import get_argument_parser

    parser: argparse.ArgumentParser = get_argument_parser()
    return parser


def fault_of_trl(words: list[str]) -> str | None:
    """TRL's server is looked up in its source: importing it takes vLLM."""
    package = importlib.util.find_spec("trl")
    assert package is not None and package.origin is not None
    script = Path(package.origin).with_name("scripts") / f"{words[0].replace('-', '_')}.py"
    if not script.exists():
        return f"trl has no command {words[0]}"
    classes = [node for node in ast.parse(script.read_text()).body if isinstance(node, ast.ClassDef)]
    fields = {
        ast.unparse(statement.target)
        for node in classes
        for statement in node.body
        if isinstance(statement, ast.AnnAssign)
    }
    unknown = [word for word in words if word.startswith("--") and word[2:].replace("-", "_") not in fields]
    return f"trl {words[0]} has no flag {unknown[0]}" if unknown else None


@pytest.mark.slow
def test_every_command_that_is_named_exists():
    named = {(index, command) for index, text in texts().items() for command in commands(text)}
    assert len(named) > 100
    faults = [f"{index}: `{command}`: {symptom}" for index, command in sorted(named) if (symptom := fault(command))]
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("arc-refinery serve", "arc-refinery has no command 'serve'"),
        ("arc-refinery stage judge", "arc-refinery has no stage 'judge'"),
        ("arc-refinery stage grade '{}' --programs a", "the stage grade has no flag --programs"),
        ("arc-refinery prompts teach", "arc-refinery has no command 'prompts teach'"),
        ("arc-refinery sample --base-model x", "arc-refinery sample has no flag --base-model"),
        ("snakemake --configfile config/none.yaml", "no file config/none.yaml"),
        ("snakemake --profile none all", "no file none"),
        ("snakemake --cores 2 -R trian all", "no rule trian"),
        ("make tests", "make has no target tests"),
        ("trl serve", "trl has no command serve"),
        ("trl vllm-serve --models m", "trl vllm-serve has no flag --models"),
        ("python benchmarks/none.py", "no file benchmarks/none.py"),
    ],
)
def test_a_command_that_does_not_exist_is_found(command: str, expected: str):
    assert [fault(named_command) for named_command in commands(f"Type `{command}`.")] == [expected]
    assert [fault(named_command) for named_command in commands(f"```\n{command}   # a try\n```")] == [expected]


def test_flags_that_snakemake_does_not_know_are_found():
    assert "does not take these flags" in str(fault("snakemake --corse 2"))


# links, and pages

LINK = re.compile(r"\]\(([^)\s#]*)(?:#([^)\s]+))?\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """Anchors of a page's headings, as GitHub and Forgejo make them."""
    titles = HEADING.findall(FENCE.sub("", page.read_text()))
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def broken_links(page: Path) -> Iterator[str]:
    for path, anchor in LINK.findall(FENCE.sub("", page.read_text())):
        target = page.parent / path if path else page
        if "://" not in path and not (
            target.exists() and (not anchor or target.suffix != ".md" or anchor in anchors(target))
        ):
            yield f"{page.name}: {path}#{anchor}"


def test_every_link_of_a_page_leads_somewhere():
    pages = [page for pattern in ("*.md", "docs/*.md", "config/*.md", "tests/gpu/*.md") for page in ROOT.glob(pattern)]
    assert [link for page in pages for link in broken_links(page)] == []


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path):
    page = tmp_path / "page.md"
    page.write_text(
        "# One `name`\n[a](#one-name) [b](#two) [c](page.md#one-name) [d](other.md)\n```\n[e](no.md)\n```\n"
    )
    assert [*broken_links(page)] == ["page.md: #two", "page.md: other.md#"]


def test_every_page_that_a_message_or_comment_names_exists():
    patterns = (
        "workflow/**/*.py",
        "rules/*.smk",
        "profiles/**/*",
        "config/**/*",
        "envs/*",
        "tests/**/*.py",
        "Makefile",
        "CHANGELOG.md",
    )
    texts = [path.read_text() for pattern in patterns for path in ROOT.glob(pattern) if path.is_file()]
    named = {page for text in texts for page in re.findall(r"\bdocs/[a-z-]+\.(?:md|py)\b", text)}
    assert len(named) > 5
    assert {page for page in named if not (ROOT / page).exists()} == set()


# pictures


def test_the_pictures_are_those_of_the_story_and_the_sample_report(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    pictures = importlib.import_module("pictures")
    first, second = (pictures.output(program).tolist() for program in pictures.story_programs())
    assert first != second
    drawn = pictures.pictures()
    assert drawn == {path.name: path.read_text() for path in (ROOT / "docs/pictures").glob("*.svg")}
    assert all(
        drawn[f"repair-{theme}.svg"].count("×") == 12 for theme in ("light", "dark")
    )  # the first program's wrong cells


def configs() -> dict[str, str]:
    """Whole configs in the docs, by page and line."""
    pages = [ROOT / "README.md", ROOT / "config/README.md", *sorted((ROOT / "docs").glob("*.md"))]
    found = ((page, match) for page in pages for match in YAML.finditer(page.read_text()))
    return {f"{page.name}-{n}": match[1] for n, (page, match) in enumerate(found) if "\nbase: " in f"\n{match[1]}"}


@pytest.mark.parametrize("place", configs())
def test_configs_of_the_docs_are_valid(place: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(ROOT)  # bases are relative
    validate_experiment(yaml.safe_load(configs()[place]), place)
