"""Whether every file in ``results/`` came out of a run: ``python tools/results_check.py``.

A file says by which command, on what hardware, with which JAX and at which commit it was made; so does every row and
entry that was run by itself. The commit is an ancestor of this one, the command can be typed, and nothing was added by
hand. Nothing but the standard library is imported.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
ORIGIN = ("command", "hardware", "jax", "commit")
TYPED = re.compile(r"(trade (demo|reproduce \S+)|python -m benchmarks\.\w+|python examples/\w+\.py)( |$)")
# Made before these rules. No name may be added; one that has been run again must be taken out.
TO_RUN_AGAIN = {
    "results/gaussian_mixture/results.json",
    "results/multiwell/results.json",
    "results/multiwell_ablation/results.json",
    "results/o_rings/results.json",
    "results/scalar_field/results.json",
    "results/scalar_field_16/results.json",
    "results/two_moons/results.json",
    "results/two_moons_uniform/results.json",
}


def mappings(value: Any) -> Iterator[dict[str, Any]]:
    """Every JSON object in a file."""
    if isinstance(value, dict):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from mappings(inner)


def ancestors() -> set[str] | None:
    """The commits that led to this one, or None where the history is not here."""
    try:
        shallow = _git("rev-parse", "--is-shallow-repository") != "false"
        return None if shallow else set(_git("rev-list", "HEAD").split())
    except (OSError, subprocess.CalledProcessError):
        return None


def complaints(content: Any, commits: set[str] | None) -> list[str]:
    """What is wrong with the content of one file.

    Args:
        content: As JSON gave it.
        commits: What a commit may be; not asked for if None.
    """
    objects = list(mappings(content))
    found = []
    if not any("command" in o for o in objects):
        found.append("no command")
    for o in objects:
        if "note" in o:
            found.append("a note by hand")
        if "command" in o:
            found += [f"no {key} beside {o['command']!r}" for key in ORIGIN if key not in o]
            if not TYPED.match(o["command"]):
                found.append(f"{o['command']!r} cannot be typed")
        commit = o.get("commit")
        if commit is not None and (not re.fullmatch("[0-9a-f]{7,40}", commit) or not _known(commit, commits)):
            found.append(f"{commit} is no commit before this one")
    return list(dict.fromkeys(found))


def check(root: Path) -> list[str]:
    """A line for each file that breaks a rule, and for each that is excused and need not be."""
    commits, lines = ancestors(), []
    for file in sorted((root / "results").rglob("*.json")):
        name = file.relative_to(root).as_posix()
        found = complaints(json.loads(file.read_text()), commits)
        if found and name not in TO_RUN_AGAIN:
            lines.append(f"{name}: {'; '.join(found)}.")
        if not found and name in TO_RUN_AGAIN:
            lines.append(f"{name} keeps the rules: take it out of TO_RUN_AGAIN.")
    gone = [name for name in sorted(TO_RUN_AGAIN) if not (root / name).exists()]
    return lines + [f"{name} is not there: take it out of TO_RUN_AGAIN." for name in gone]


def _known(commit: str, commits: set[str] | None) -> bool:
    return commits is None or any(full.startswith(commit) for full in commits)


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


if __name__ == "__main__":
    if found := check(ROOT):
        sys.exit("\n".join(found))
