"""The package's floors: a module imports from its own room and from lower floors, never upward."""

import ast
import re
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

from checkout import ROOT

PACKAGE = ROOT / "workflow/arc_refinery"
# From the ground up; rooms of one floor do not import each other
FLOORS = (
    {"answers", "branch_files", "calculator", "errors", "programs", "seeding"},
    {"files", "runs"},
    {"rows"},
    {"arc"},
    {"models", "sandbox"},
    {"asserts", "grades"},
    {"records"},
    {"config"},
    {"barc", "evaluation", "sampling"},
    {"training"},
    {"jobs", "outputs", "reporting"},
    {"stages"},
    {"refining.config"},
    {"domains"},
    {"refining", "tool_use"},
    {"doctor"},
    {"cli"},
)
FLOOR_OF = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}


def room_of(words: list[str]) -> str:
    """The room of a module; `refining.config`, on which domains build theirs, is one of its own."""
    return ".".join(words[:2] if words[:2] == ["refining", "config"] else words[:1])


def imported_rooms(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.ImportFrom(module="arc_refinery"):
                yield from (alias.name for alias in node.names)
            case ast.ImportFrom(module=str(module)) if module.startswith("arc_refinery."):
                names = [alias.name for alias in node.names]
                yield from (room_of([*module.split(".")[1:], name]) for name in names)
            case ast.Import():
                names = [alias.name for alias in node.names]
                yield from (room_of(name.split(".")[1:]) for name in names if name.startswith("arc_refinery."))


def test_every_room_has_a_floor() -> None:
    rooms = {path.stem for path in PACKAGE.glob("*.py")} | {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert rooms - {"__init__", "__main__"} == {room for room in FLOOR_OF if "." not in room}


def test_the_floors_are_drawn_as_they_are() -> None:
    page = (ROOT / "docs/development.md").read_text().partition("## The package's floors")[2]
    lines = page.split("```")[1].replace(",", "").split("\n")[1:-1]
    assert tuple(set(takewhile(FLOOR_OF.__contains__, line.split())) for line in reversed(lines)) == FLOORS


def test_no_import_leads_upward() -> None:
    upward = {
        f"{path.relative_to(PACKAGE)} imports {there}"
        for path in PACKAGE.rglob("*.py")
        if (here := room_of(list(path.relative_to(PACKAGE).with_suffix("").parts))) not in ("__init__", "__main__")
        for there in imported_rooms(path)
        if here != there and FLOOR_OF[here] <= FLOOR_OF[there]
    }
    assert upward == set()


def test_the_rooms_of_tool_use_import_from_those_before_them() -> None:
    rooms = ["calls", "grading", "questions", "tools", "episodes", "training", "report"]
    backward = {
        f"{path.name} imports {module}"
        for number, room in enumerate(rooms)
        for path in (PACKAGE / "tool_use" / room).rglob("*.py")
        for module in re.findall(r"from arc_refinery\.tool_use\.(\w+)", path.read_text())
        if module in rooms[number + 1 :]
    }
    assert backward == set()


def modules_imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.ImportFrom(module=str(module)):
                yield from (f"{module}.{alias.name}" for alias in node.names)
            case ast.Import():
                yield from (alias.name for alias in node.names)


def test_kinds_import_no_domain() -> None:
    """They load domains by their names."""
    upward = {
        f"{path.relative_to(PACKAGE)} imports {module}"
        for kind in ("refining", "tool_use")
        for path in (PACKAGE / kind).rglob("*.py")
        for module in modules_imported(path)
        if module.startswith(tuple(f"arc_refinery.domains.{name}" for name in ("arc", "code", "gsm8k", "text")))
    }
    assert upward == set()


def test_domains_do_not_import_each_other() -> None:
    domains = PACKAGE / "domains"
    names = {path.parent.name for path in domains.glob("*/__init__.py")}
    across = {
        f"{path.relative_to(domains)} imports {module}"
        for path in domains.rglob("*.py")
        for module in modules_imported(path)
        if module.startswith("arc_refinery.domains.")
        and (there := module.split(".")[2]) in names
        and there != path.relative_to(domains).parts[0]
    }
    assert across == set()
