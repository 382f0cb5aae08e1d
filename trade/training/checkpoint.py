"""Files that are whole or absent: written beside, synced, renamed; read back only if the checksum holds."""

import hashlib
import io
import json
import os
import re
from pathlib import Path
from typing import Any

import equinox as eqx

from trade.errors import TradeError


def write_bytes(path: Path, content: bytes) -> None:
    """Replace a file atomically: after a crash it holds the old content or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
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


_NUMBERS = re.compile(r"\[\n([-+.,\s\deE]+)\n\s*\]")


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
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise TradeError(f"{path} is damaged or not readable: {error}.") from None


def save_tree(path: Path, tree: Any) -> str:
    """Write the arrays of a pytree; returns the SHA-256 of the file."""
    buffer = io.BytesIO()
    eqx.tree_serialise_leaves(buffer, eqx.filter(tree, eqx.is_array))
    write_bytes(path, buffer.getvalue())
    return hashlib.sha256(buffer.getvalue()).hexdigest()


def load_tree(path: Path, like: Any, checksum: str) -> Any:
    """Read arrays into the structure of ``like``, after comparing the checksum."""
    try:
        content = path.read_bytes()
    except OSError:
        raise TradeError(f"{path} does not exist or cannot be read.") from None
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


class Checkpoints:
    """The newest checkpoint of a run directory, and the one before it until the newest is safe.

    The manifest ``checkpoint.json`` names the file that counts; it is replaced last.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.manifest = directory / "checkpoint.json"

    def save(self, step: int, tree: Any) -> None:
        """Write the state at ``step`` and drop older ones."""
        name = f"checkpoint-{step:09d}.eqx"
        checksum = save_tree(self.directory / name, tree)
        write_json(self.manifest, {"step": step, "file": name, "sha256": checksum})
        for pattern in ("checkpoint-*.eqx", ".*.tmp"):  # a killed run may have left a half-written file
            for old in self.directory.glob(pattern):
                if old.name != name:
                    old.unlink(missing_ok=True)

    def load(self, like: Any) -> tuple[int, Any]:
        """The newest state and its step."""
        manifest = read_json(self.manifest)
        try:
            step, name, checksum = int(manifest["step"]), str(manifest["file"]), str(manifest["sha256"])
        except (KeyError, TypeError, ValueError):
            raise TradeError(f"{self.manifest} is damaged: it must name step, file and sha256.") from None
        return step, load_tree(self.directory / Path(name).name, like, checksum)
