"""Imports go one way: a room imports only from itself and from rooms on its left, as the map says."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MAP = re.search(r"```\n(.*?)```", (ROOT / "docs" / "architecture.md").read_text(), re.DOTALL)[1]
ROOMS = [[name.strip() for name in group.split(",")] for group in MAP.split("→")]
PLACE = {name: i for i, group in enumerate(ROOMS) for name in group}
APART = (ROOT / "trade" / "__init__.py", ROOT / "trade" / "__main__.py")
MODULES = [p for p in sorted((ROOT / "trade").rglob("*.py")) if p not in APART]


def room(parts):
    """The room of a module, given as its parts below ``trade``; those of ``trade`` itself are none."""
    return parts[0] if parts else None


def imported(path):
    """Rooms that a module imports from, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "trade":
            parts = node.module.split(".")[1:]
            yield from ([room(parts)] if parts else [alias.name for alias in node.names])
        elif isinstance(node, ast.Import):
            yield from (room(a.name.split(".")[1:]) for a in node.names if a.name.split(".")[0] == "trade")


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT / "trade")))
def test_imports_go_one_way(path):
    own = path.relative_to(ROOT / "trade").with_suffix("").parts[0]
    assert own in PLACE, f"{own} is not on the map in docs/architecture.md"
    for other in imported(path):
        if other in PLACE:
            assert PLACE[other] <= PLACE[own], f"{path.name} of {own} imports from {other}"
        else:
            assert own in ("cli",), f"{path.name} imports {other!r} from trade itself"


def test_every_room_on_the_map_exists():
    there = {p.stem for p in (ROOT / "trade").iterdir()}
    assert set(PLACE) <= there


def test_the_map_is_short():
    """A map; reasons and measurements have a page of their own."""
    assert len((ROOT / "docs" / "architecture.md").read_text().split()) <= 900
