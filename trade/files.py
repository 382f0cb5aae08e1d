"""Files that are whole or absent, and that nobody else's are harmed by: the one place that writes to disk.

A file is written beside its place, synced, and renamed into it. What is written beside has a name of ours, and only
files of such a name are ever cleaned up. Settings and manifests are sealed: an edited one is recognised.
"""

import contextlib
import hashlib
import io
import json
import math
import os
import re
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import equinox as eqx

from trade.errors import TradeError

# The names in a run directory.
SETTINGS, METRICS, MANIFEST, CHECKPOINT = "run.json", "metrics.jsonl", "model.json", "checkpoint.json"
VERDICT, LOCK, REPORT, RESULTS, FINISHED = "verdict.json", "run.lock", "report.html", "results.json", "finished.json"
FIGURES, BASELINE = "figures", "baseline"
_NAMES = (SETTINGS, METRICS, MANIFEST, CHECKPOINT, VERDICT, LOCK, REPORT, RESULTS, FINISHED, FIGURES, BASELINE)
_OURS = re.compile("|".join(map(re.escape, _NAMES)) + r"|checkpoint-\d+\.eqx|(final|best)-\d+\.eqx")
_TEMPORARY = re.compile(r"\.trade-.+\.tmp")
SEAL = "sha256"  # the name under which a sealed file has its own checksum


@contextmanager
def in_words(doing: str, path: Path) -> Iterator[None]:
    """Say in one sentence what the operating system refuses."""
    try:
        yield
    except OSError as error:
        raise TradeError(f"{path} {doing}: {error.strerror or error}.") from error
    except RuntimeError as error:  # a loop of symbolic links, by pathlib
        raise TradeError(f"{path} {doing}: {error}.") from error


def as_path(value: object, name: str) -> Path:
    """A path, or one sentence on why it is none."""
    if not isinstance(value, str | PathLike) or not fspath(value) or "\0" in str(fspath(value)):
        raise TradeError(f"{name} must be the path of a directory, got {value!r}.")
    return Path(fspath(value))  # pyright: ignore


def temporary(path: Path) -> Path:
    """Where a file is written before it is renamed into its place."""
    return path.with_name(f".trade-{path.name}.{os.getpid()}.tmp")


def clean(directory: Path) -> None:
    """Remove what a killed run of ours left half-written, and nothing else."""
    for path in directory.iterdir():
        if _TEMPORARY.fullmatch(path.name) and path.is_file() and not path.is_symlink():
            path.unlink(missing_ok=True)


def write_bytes(path: Path, content: bytes) -> None:
    """Replace a file atomically: after a crash it holds the old content or the new one."""
    with in_words("could not be written", path):
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_symlink():
            raise TradeError(f"{path} is a symbolic link: nothing is written through it.")
        if path.is_dir():
            raise TradeError(f"{path} is a directory: a file of that name cannot be written.")
        beside = temporary(path)
        try:
            with beside.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)
        directory = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def append_text(path: Path, text: str) -> None:
    """Add to a file; a crash may cut the last line short."""
    with in_words("could not be written", path), path.open("a") as file:
        file.write(text)


def read_bytes(path: Path) -> bytes:
    """The content of a file."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise TradeError(f"{path} does not exist.") from None
    except (OSError, RuntimeError) as error:
        raise TradeError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}.") from error


_NUMBERS = re.compile(r"\[\n([-+.,\s\deE]+)\n\s*\]")


def plain(value: Any) -> Any:
    """Strict JSON: a number that is not finite becomes null."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return value


def write_json(path: Path, content: Any) -> None:
    """Write JSON atomically, a list of numbers on one line."""
    text = _NUMBERS.sub(lambda found: "[" + " ".join(found[1].split()) + "]", json.dumps(content, indent=2))
    write_bytes(path, (text + "\n").encode())


def read_json(path: Path) -> Any:
    """Read JSON, or say in one sentence why not."""
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        raise TradeError(f"{path} does not exist: is {path.parent} a run directory?") from None
    except (OSError, RuntimeError, UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise TradeError(f"{path} is damaged or not readable: {error}.") from None


def seal(content: dict[str, Any]) -> str:
    """A checksum of plain data, whatever the order and the layout of the file."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def write_sealed(path: Path, content: dict[str, Any]) -> str:
    """Write JSON with its own checksum in it; returns the checksum."""
    content = json.loads(json.dumps(content))
    checksum = seal(content)
    write_json(path, content | {SEAL: checksum})
    return checksum


def read_sealed(path: Path) -> dict[str, Any]:
    """Read what ``write_sealed`` wrote; refuse it if it was changed since."""
    content = read_json(path)
    if not isinstance(content, dict) or not isinstance(content.get(SEAL), str):
        raise TradeError(f"{path} was not written by this version of TRADE: it has no checksum of itself.")
    checksum = content.pop(SEAL)
    if seal(content) != checksum:
        raise TradeError(f"{path} is damaged: its checksum is not that of its content, which was changed.")
    return content


def save_tree(path: Path, tree: Any) -> str:
    """Write the arrays of a pytree; returns the SHA-256 of the file."""
    buffer = io.BytesIO()
    eqx.tree_serialise_leaves(buffer, eqx.filter(tree, eqx.is_array))
    write_bytes(path, buffer.getvalue())
    return hashlib.sha256(buffer.getvalue()).hexdigest()


def load_tree(path: Path, like: Any, checksum: str) -> Any:
    """Read arrays into the structure of ``like``, after comparing the checksum."""
    content = read_bytes(path)
    if hashlib.sha256(content).hexdigest() != checksum:
        raise TradeError(f"{path} is damaged: its checksum is not the one recorded when it was written.")
    arrays, static = eqx.partition(like, eqx.is_array)
    try:
        loaded = eqx.tree_deserialise_leaves(io.BytesIO(content), arrays)
    except Exception as error:
        raise TradeError(
            f"{path} does not fit the model or run it is loaded into: {str(error).splitlines()[0]}"
        ) from error
    return eqx.combine(loaded, static)


def foreign(directory: Path) -> list[str]:
    """What lies in a directory and is not of a run of ours: by name, and settings by their seal."""
    with in_words("cannot be read", directory):
        names = sorted(p.name for p in directory.iterdir())
    others = [n for n in names if not _OURS.fullmatch(n) and not _TEMPORARY.fullmatch(n)]
    try:
        if is_run(directory):
            read_sealed(directory / SETTINGS)
    except TradeError:
        others.insert(0, SETTINGS)  # anybody may call a file that, or have edited it
    return others


def is_run(directory: Path) -> bool:
    """Whether a directory holds a run of ours, begun or finished."""
    return (directory / SETTINGS).is_file()


def holds_run(directory: Path) -> bool:
    """Whether there is something in a directory to resume or to load."""
    with in_words("cannot be read", directory):
        return any((directory / name).exists() for name in (CHECKPOINT, MANIFEST))


def check_output(path: Path, *, overwrite: bool) -> Path:
    """Where a single file may be written: not over another without being told, and never over a run's own files."""
    with in_words("cannot be written", path):
        if path.is_symlink():
            raise TradeError(f"{path} is a symbolic link: nothing is written through it.")
        if path.is_dir():
            raise TradeError(f"{path} is a directory: give the name of a file.")
        if _OURS.fullmatch(path.name) and is_run(path.parent):
            raise TradeError(f"{path} belongs to the run in {path.parent}: choose another name.")
        if path.exists() and not overwrite:
            raise TradeError(f"{path} exists already: choose another name, or say that it may be overwritten.")
        if not path.parent.is_dir() and path.parent.exists():
            raise TradeError(f"{path.parent} is not a directory.")
    return path


def check_directory(directory: Path, *, overwrite: bool) -> None:
    """Where a whole run may be written: a new or empty directory, or, to be replaced, one with only a run in it."""
    with in_words("cannot be written", directory):
        if directory.is_symlink():
            raise TradeError(f"{directory} is a symbolic link: nothing is written through it.")
        if directory.exists() and not directory.is_dir():
            raise TradeError(f"{directory} is a file: a run needs a directory.")
        if not directory.exists() or all(p.name == LOCK or _TEMPORARY.fullmatch(p.name) for p in directory.iterdir()):
            return
        others = foreign(directory)
        if others or not is_run(directory):
            named = (
                f"{others[0]!r} and {len(others) - 1} more" if len(others) > 1 else repr(others[0]) if others else ""
            )
            what = f"holds {named}, which no run of ours wrote" if others else "is not empty but holds no run"
            raise TradeError(f"{directory} {what}: choose another directory.")
        if not overwrite:
            raise TradeError(f"{directory} already holds a run: choose another directory, or allow to overwrite it.")


@contextmanager
def moved_aside(directory: Path) -> Iterator[None]:
    """Make room for a new directory; what stood there is deleted last, and comes back if nothing took its place."""
    aside = directory.with_name(f".trade-{directory.name}.old.{os.getpid()}.tmp")
    if is_run(directory):
        with locked(directory):
            pass  # nobody writes there
    with in_words("could not be moved aside", directory):
        shutil.rmtree(aside, ignore_errors=True)
        if directory.exists():
            directory.rename(aside)
    try:
        yield
    finally:
        if aside.exists() and not holds_run(directory):
            shutil.rmtree(directory, ignore_errors=True)
            aside.rename(directory)
        shutil.rmtree(aside, ignore_errors=True)


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold a run directory for this process; another that holds it is named in one sentence.

    The operating system drops the lock of a process that ends, however it ends: what is left of one is no obstacle.
    """
    import fcntl  # noqa: PLC0415 (not on every system)

    path = directory / LOCK
    with in_words("could not be locked", directory):
        handle = _open_locked(path, fcntl)
        os.ftruncate(handle, 0)
        os.write(handle, json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode())
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
        os.close(handle)


def _open_locked(path: Path, fcntl: Any) -> int:
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if path.exists() and os.fstat(handle).st_ino == path.stat().st_ino:
                return handle  # and not a file that its owner removed in between
        except BlockingIOError:
            holder = _holder(handle)
            os.close(handle)
            raise TradeError(f"{path.parent} is in use by {holder}: wait for it, or end it first.") from None
        os.close(handle)


def _holder(handle: int) -> str:
    try:
        found = json.loads(os.pread(handle, 1000, 0))
        return f"process {int(found['pid'])} on {found['host']}"
    except (ValueError, KeyError, TypeError, OSError):
        return "another process"
