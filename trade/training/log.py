"""``metrics.jsonl``: one line per report, cut back on resume to what the checkpoint knows."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from trade import check, files
from trade.errors import TradeError

Callback = Callable[[dict[str, Any]], object]


class MetricsLog:
    """Rows in memory and, with a path, in a file. Losses are lists: one entry per seed.

    Args:
        path: The file, if there is one.
        resume_at: The step of the checkpoint that a run is continued from; later rows come again, and are dropped.
        callback: Told of every row once, after it is written: not of those that it was told of before a resume.
    """

    def __init__(self, path: Path | None, *, resume_at: int | None = None, callback: Callback | None = None) -> None:
        self.path, self.callback = path, callback
        self.rows: list[dict[str, Any]] = []
        self.told: set[tuple] = set()
        if path is None:
            return
        if resume_at is not None and path.exists():
            found = read_metrics(path)
            self.rows = [row for row in found if row["step"] <= resume_at]
            self.told = {_name(row) for row in found}
        write_metrics(path, self.rows)

    def append(self, row: dict[str, Any]) -> None:
        """Add a row."""
        row = files.plain(row)
        self.rows.append(row)
        if self.path is not None:
            files.append_text(self.path, json.dumps(row) + "\n")
        if self.callback is not None and _name(row) not in self.told:
            check.called("callback", self.callback, files.plain(row))  # a copy: the log is ours

    def newest(self, name: str, default: list[float]) -> list[float]:
        """The last values reported under a name, one per seed."""
        found = next((row[name] for row in reversed(self.rows) if row.get(name) is not None), default)
        return [float("nan") if v is None else v for v in found]


def _name(row: dict[str, Any]) -> tuple:
    """What tells a row from others: its step, and what it has."""
    return row["step"], *row


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


def ess_columns(rows: Iterable[dict[str, Any]]) -> list[str]:
    """Names of the columns that have the ESS at some condition, ``ess@C``, in the order of the conditions.

    Args:
        rows: Rows of metrics.

    Returns:
        The names.
    """
    found = {name for row in rows for name in row if name.startswith("ess@")}
    return sorted(found, key=lambda name: [float(v) for v in name.removeprefix("ess@").split(",")])
