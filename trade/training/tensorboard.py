"""Metrics for TensorBoard, as an example of a callback."""

import time
from pathlib import Path
from typing import Any

from trade import check, files


class TensorBoard:
    """A callback of ``fit`` that writes every metric as a scalar: ``tensorboard --logdir DIRECTORY`` shows them.

    With several seeds, each metric has a curve for each, such as ``forward_kl/0``. What is not finite is left out.
    A run that is resumed adds a file to the directory, with new rows only.

    Args:
        directory: Where the files go.

    Example:
        >>> run = trade.fit(target, data, callback=trade.training.TensorBoard("logs"))  # doctest: +SKIP
    """

    def __init__(self, directory: str | Path) -> None:
        self.directory = files.as_path(directory, "directory")
        self._file = check.library("tensorboard.summary.writer.event_file_writer")
        self._event = check.library("tensorboard.compat.proto.event_pb2").Event
        self._summary = check.library("tensorboard.compat.proto.summary_pb2").Summary
        self._writer: Any = None

    def __call__(self, row: dict[str, Any]) -> None:
        """Write a row of metrics.

        Args:
            row: Its step, and lists of numbers by name, one for each seed.
        """
        if self._writer is None:
            self._writer = self._file.EventFileWriter(str(self.directory))
        values = [
            self._summary.Value(tag=name if len(numbers) == 1 else f"{name}/{seed}", simple_value=number)
            for name, numbers in row.items()
            if isinstance(numbers, list)
            for seed, number in enumerate(numbers)
            if number is not None
        ]
        self._writer.add_event(
            self._event(wall_time=time.time(), step=row["step"], summary=self._summary(value=values))
        )
        self._writer.flush()  # a run that is killed keeps what was reported
