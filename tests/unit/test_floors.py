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
    {"branch_files", "errors", "programs", "seeding"},
    {"files", "runs"},
    {"rows"},
    {"arc"},
    {"models", "sandbox"},
    {"asserts"},
    {"records"},
    {"config"},
    {"barc", "evaluation", "sampling"},
    {"training"},
    {"jobs", "outputs", "reporting"},
    {"stages"},
    {"refining", "tool_use"},
    {"doctor"},
    {"cli"},
)
FLOOR_OF = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}


def imported_rooms(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.ImportFrom(module="arc_refinery"):
                yield from (alias.name for alias in node.names)
            case ast.ImportFrom(module=str(module)) if module.startswith("arc_refinery."):
                yield module.split(".")[1]
            case ast.Import():
                names = (alias.name for alias in node.names)
                yield from (name.split(".")[1] for name in names if name.startswith("arc_refinery."))


def test_every_room_has_a_floor() -> None:
    rooms = {path.stem for path in PACKAGE.glob("*.py")} | {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert rooms - {"__init__", "__main__"} == FLOOR_OF.keys()


def test_the_floors_are_drawn_as_they_are() -> None:
    page = (ROOT / "docs/development.md").read_text().partition("## The package's floors")[2]
    lines = page.split("```")[1].replace(",", "").split("\n")[1:-1]
    assert tuple(set(takewhile(FLOOR_OF.__contains__, line.split())) for line in reversed(lines)) == FLOORS


def test_no_import_leads_upward() -> None:
    upward = {
        f"{path.relative_to(PACKAGE)} imports {there}"
        for path in PACKAGE.rglob("*.py")
        if (here := path.relative_to(PACKAGE).parts[0].removesuffix(".py")) not in ("__init__", "__main__")
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


def test_the_engine_of_refining_imports_no_domain() -> None:
    """It loads domains by their names, `arc_refinery.domains.arc` among them."""
    engine = {*(PACKAGE / "refining").rglob("*.py")} - {*(PACKAGE / "domains").rglob("*.py")}
    upward = {
        f"{path.relative_to(PACKAGE)} imports {module}"
        for path in engine
        for module in modules_imported(path)
        if module.startswith("arc_refinery.domains")
    }
    assert upward == set()


def test_domains_do_not_import_each_other() -> None:
    domains = PACKAGE / "domains"
    across = {
        f"{path.relative_to(domains)} imports {module}"
        for path in domains.rglob("*.py")
        for module in modules_imported(path)
        if module.startswith("arc_refinery.domains.") and module.split(".")[3] != path.relative_to(domains).parts[0]
    }
    assert across == set()
