"""A user's problem file: run, hashed, and run again only where the user has done so before."""

import difflib
import hashlib
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from trade import files
from trade.errors import TradeError
from trade.run import Run, load
from trade.saved import read_settings
from trade.training.compilation import cache_directory

_TRAINING = ("steps", "minutes", "optimiser", "validation", "held_out", "schedule", "seeds", "resident", "callback")
_OPTIONS = ("flow", "objective", *_TRAINING)
PROBLEM_NAMES = ("target", "data", *_OPTIONS)
_NEARLY = 0.85  # how alike two names are of which one is a slip


class ProblemFile(NamedTuple):
    """A user's problem file, as it was run.

    Args:
        file: Where it is.
        sha256: Checksum of what was run.
        content: The names in it that matter.
    """

    file: Path
    sha256: str
    content: dict[str, Any]

    def check_hash(self, directory: Path, recorded: str | None) -> None:
        """Refuse another file than the one a run was started with."""
        if recorded is not None and self.sha256 != recorded:
            raise TradeError(f"{self.file} is not the file that {directory} was started with: its content has changed.")

    def remember(self) -> None:
        """Note that this user has run this file from this place, so that ``trade resume`` may do so unasked."""
        mark = _mark(self.file, self.sha256)
        if not mark.exists():
            try:
                files.write_bytes(mark, b"")
            except TradeError:  # a home that cannot be written: resume will ask for --problem
                return


def _mark(file: Path, sha256: str) -> Path:
    name = hashlib.sha256(f"{file.resolve()}\0{sha256}".encode()).hexdigest()
    return cache_directory() / "problems" / name


def read_again(directory: Path, file: Path, sha256: str) -> ProblemFile:
    """The problem file that a run directory names: run only if it is what this user ran before, and not of the run."""
    if directory.resolve() in file.resolve().parents:
        raise TradeError(f"{file} lies inside the run directory, and is not run unasked: give --problem {file}.")
    content = problem_bytes(file)
    if hashlib.sha256(content).hexdigest() != sha256:
        raise TradeError(f"{file} is not the file that {directory} was started with: its content has changed.")
    if not _mark(file, sha256).exists():
        raise TradeError(f"{directory} names {file}, which you have not run from there: give --problem {file}.")
    return _run_problem(file, content)


def problem_bytes(file: Path) -> bytes:
    """The file as it is, or one sentence on why it cannot be read."""
    with files.in_words("cannot be read", file):
        if not file.is_file():
            raise TradeError(f"{file} does not exist: the problem must be a Python file.")
    return files.read_bytes(file)


def read_problem(file: Path) -> ProblemFile:
    """Run a user's problem file.

    Args:
        file: Where it is.

    Returns:
        What it defines.
    """
    return _run_problem(file, problem_bytes(file))


def _run_problem(file: Path, content: bytes) -> ProblemFile:
    """Run a user's problem file, as it was read and hashed, and keep the names that matter."""
    names: dict[str, Any] = {"__name__": "__problem__", "__file__": str(file)}
    try:
        exec(compile(content, str(file), "exec"), names)
    except TradeError as error:
        raise TradeError(f"{file}: {error}") from error
    except (Exception, SystemExit) as error:
        lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == str(file)]
        line = lines[-1] if lines else error.lineno if isinstance(error, SyntaxError) else None
        where = "" if line is None else f" on line {line}"
        what = " ".join(f"{type(error).__name__}: {error}".split())
        raise TradeError(f"{file} failed{where}: {what}") from error
    for name, value in names.items():
        if name.startswith("_") or name in PROBLEM_NAMES or isinstance(value, ModuleType):
            continue
        meant = [n for n in difflib.get_close_matches(name, PROBLEM_NAMES, 1, _NEARLY) if n not in names]
        if meant:
            raise TradeError(f"{file} defines `{name}`, which is nearly `{meant[0]}`: call it that, or otherwise.")
    if "target" not in names:
        raise TradeError(f"{file} must define `target` (a trade.Target); it defines no such name.")
    found = {name: names[name] for name in PROBLEM_NAMES if name in names}
    return ProblemFile(file, hashlib.sha256(content).hexdigest(), found)


def load_with(directory: Path, problem: Path | None) -> tuple[Run, ProblemFile | None]:
    """A saved run, with the target and the flow of a problem file, if it is the one the run was started with."""
    recorded = read_settings(directory).get("notes", {}).get("sha256")
    content = read_problem(problem) if problem else None
    if content is None:
        return load(directory), None
    content.check_hash(directory, recorded)
    return load(directory, target=content.content["target"], flow=content.content.get("flow")), content
