"""Checkpoints of a run directory: the newest state of training, from which a killed run goes on."""

import re
from pathlib import Path
from typing import Any

from trade import files
from trade.errors import TradeError


class Checkpoints:
    """The newest checkpoint of a run directory, and the one before it until the newest is safe.

    The manifest ``checkpoint.json`` names the file that counts; it is replaced last.

    Args:
        directory: The run directory.
        run: Checksum of the settings it was begun with; a checkpoint of other settings is refused.
    """

    def __init__(self, directory: Path, run: str = "") -> None:
        self.directory, self.run = directory, run
        self.manifest = directory / files.CHECKPOINT

    def save(self, step: int, tree: Any) -> None:
        """Write the state at ``step`` and drop older ones."""
        name = f"checkpoint-{step:09d}.eqx"
        checksum = files.save_tree(self.directory / name, tree)
        files.write_sealed(self.manifest, {"step": step, "file": name, "arrays": checksum, "run": self.run})
        with files.in_words("could not be cleaned up", self.directory):
            files.clean(self.directory)  # a killed run may have left a half-written file
            for old in self.directory.iterdir():
                if re.fullmatch(r"checkpoint-\d+\.eqx", old.name) and old.name != name:
                    old.unlink(missing_ok=True)

    def load(self, like: Any) -> tuple[int, Any]:
        """The newest state and its step."""
        manifest = files.read_sealed(self.manifest)
        try:
            step, name, checksum = int(manifest["step"]), str(manifest["file"]), str(manifest["arrays"])
        except (KeyError, TypeError, ValueError):
            raise TradeError(f"{self.manifest} is damaged: it must name step, file and arrays.") from None
        if manifest.get("run") != self.run:
            raise TradeError(f"{self.manifest} is of a run with other settings than those in {self.directory}.")
        return step, files.load_tree(self.directory / Path(name).name, like, checksum)
