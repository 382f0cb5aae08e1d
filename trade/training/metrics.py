"""``metrics.jsonl``: one line a report, cut back on resume to what the checkpoint knows."""

import json
import math
from pathlib import Path
from typing import Any

from trade import files
from trade.errors import TradeError


def plain(value: Any) -> Any:
    """Strict JSON: a number that is not finite becomes null."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return value


class MetricsLog:
    """Rows in memory and, with a path, in a file. Losses are lists: one entry per seed."""

    def __init__(self, path: Path | None, *, resume_at: int | None = None) -> None:
        self.path = path
        self.rows: list[dict[str, Any]] = []
        if path is None:
            return
        if resume_at is not None and path.exists():
            self.rows = [row for row in read_metrics(path) if row["step"] <= resume_at]
        write_metrics(path, self.rows)

    def append(self, row: dict[str, Any]) -> None:
        """Add a row."""
        row = plain(row)
        self.rows.append(row)
        if self.path is not None:
            files.append_text(self.path, json.dumps(row) + "\n")

    def newest(self, name: str, default: list[float]) -> list[float]:
        """The last values reported under a name, one per seed."""
        found = next((row[name] for row in reversed(self.rows) if row.get(name) is not None), default)
        return [float("nan") if v is None else v for v in found]


def write_metrics(path: Path, rows: list[dict[str, Any]]) -> None:
    """All rows at once."""
    files.write_bytes(path, "".join(json.dumps(row) + "\n" for row in rows).encode())


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The rows of a metrics file; a last line cut short by a crash is dropped."""
    rows = []
    for line in files.read_bytes(path).decode(errors="replace").splitlines():
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            break
        if not isinstance(row, dict) or not isinstance(row.get("step"), int):
            raise TradeError(f"{path} is damaged: every line must be a row with its step.")
        rows.append(row)
    return rows
