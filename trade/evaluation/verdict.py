"""How far a run can be trusted: one verdict, with its reasons and what to try next."""

from dataclasses import asdict, dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
from jax import Array

from trade.evaluation.belonging import Finding
from trade.evaluation.weights import Quality
from trade.files import plain

Level = Literal["good", "usable with weights", "not usable", "not checked"]
States = tuple[Array, Array | None]
FEW = 2  # intervals that are still named one by one


@dataclass(frozen=True)
class Verdict:
    """What a run is good for.

    Args:
        level: ``good`` (samples can be used as they are), ``usable with weights``, ``not usable``, or ``not checked``
            where there is no density to check against.
        usable: Where weights can be used: intervals of the condition, or with several axes points of the table; empty
            of ``not usable``.
        reasons: Why it is not better, one sentence each, the worst first.
        advice: What to try next.
        table: By condition (c, or the names of several axes): ess, ess_error, largest (weight), khat, log_z (absolute),
            log_z_error.
    """

    level: Level
    usable: tuple[tuple[float, ...], ...] = ()
    reasons: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()
    table: dict[str, list[float]] = field(default_factory=dict, repr=False)

    @property
    def axes(self) -> tuple[str, ...]:
        """The columns of the table that are the condition."""
        return tuple(name for name in self.table if name not in Quality._fields)

    @property
    def conditions(self) -> np.ndarray:
        """The conditions of the table: of shape (n,), or (n, axes) where there are several."""
        found = np.stack([self.table[name] for name in self.axes], axis=-1)
        return found[:, 0] if self.axes == ("c",) else found

    @property
    def summary(self) -> str:
        """The verdict in one line."""
        if not self.table:
            return self.level
        count = len(self.table["ess"])
        if self.axes == ("c",):
            fine = sum(any(a <= c <= b for a, b in self.usable) for c in self.table["c"])
        else:
            fine = len(self.usable)
        whole = fine == count
        if self.axes == ("c",) and len(self.usable) <= FEW:
            where = " and ".join(f"from c = {a:.4g} to {b:.4g}" if a < b else f"at c = {a:.4g}" for a, b in self.usable)
        else:
            where = f"at {fine} of {count} conditions"
        text = self.level if whole or self.level != "usable with weights" else f"{self.level} {where} only"
        i = int(np.argmin(self.table["ess"]))
        at = ", ".join(f"{name} = {self.table[name][i]:.4g}" for name in self.axes)
        return f"{text}; smallest ESS {self.table['ess'][i]:.1%} ± {self.table['ess_error'][i]:.1%} at {at}"

    def __str__(self) -> str:
        lines = [f"Verdict: {self.summary}."]
        lines += [f"  - {reason}" for reason in self.reasons]
        lines += [f"  Try: {text}" for text in self.advice]
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """The verdict as plain data.

        Returns:
            Its fields by name; a number that is not finite is None.
        """
        return plain(asdict(self))

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> "Verdict":
        """What ``to_json`` gave; a number that was not finite is infinite again.

        Args:
            content: The fields by name.

        Returns:
            The verdict.
        """
        table = {k: [np.inf if v is None else float(v) for v in values] for k, values in content["table"].items()}
        usable = tuple(tuple(map(float, part)) for part in content["usable"])
        return cls(content["level"], usable, tuple(content["reasons"]), tuple(content["advice"]), table)


class Witness(NamedTuple):
    """What a verdict is based on beside the model and its target.

    Args:
        held_out: Data at the boundary values that were not trained on, in their order; may be empty.
        findings: What was found before the training.
        skipped: Part of the steps that were skipped because something was not finite.
        damped: How often the boundary was being lost.
    """

    held_out: tuple[States, ...] = ()
    findings: tuple[Finding, ...] = ()
    skipped: float = 0.0
    damped: int = 0
