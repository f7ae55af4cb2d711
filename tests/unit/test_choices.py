"""Tables by the names of a `Literal` have an entry for each; mypy checks the matches (`exhaustive-match`)."""

import ast
import importlib
from collections.abc import Iterator, Mapping
from typing import Any, Literal, get_args, get_origin, get_type_hints

from checkout import ROOT

PACKAGE = ROOT / "workflow/arc_refinery"


def tables() -> Iterator[tuple[str, Mapping[Any, Any], set[Any]]]:
    """Every table of a module with a `Literal` for its keys: (name, table, names)."""
    for path in sorted(PACKAGE.rglob("*.py")):
        annotated = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.AnnAssign)]
        names = [ast.unparse(node.target) for node in annotated if ast.unparse(node.annotation).startswith("dict[")]
        if names:
            module = importlib.import_module(".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts))
            for name in names:
                keys, _ = get_args(get_type_hints(module)[name])
                if get_origin(keys) is Literal:
                    yield f"{path.name}: {name}", getattr(module, name), set(get_args(keys))


def test_a_table_by_the_names_of_a_literal_has_all_of_them():
    all_tables = list(tables())
    assert len(all_tables) >= 4
    assert {name: names ^ table.keys() for name, table, names in all_tables if table.keys() != names} == {}
