"""What a run decides between chunks: which state is the best, whether the boundary is being lost, when to end."""

import time
from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from trade.errors import TradeError
from trade.training.optimiser import Cooling


class Judged(NamedTuple):
    """What an evaluation found, one entry a seed.

    Args:
        values: Numbers to report, by name.
        score: What the best state has the least of; None leaves the last state the best.
        held_out: Negative log-likelihood of each held-out state at the boundary, of shape (seeds, n); may be empty.
        learned: The same of as many states of the training data.
    """

    values: dict[str, np.ndarray]
    score: np.ndarray | None
    held_out: np.ndarray
    learned: np.ndarray


class Watched(eqx.Module):
    """What is remembered from one evaluation to the next: part of a checkpoint.

    Args:
        best: The best flow of each seed.
        score: Its score.
        improved: The step of each seed's last improvement that was worth waiting for.
        mark: The score then.
        held_out: The lowest negative log-likelihoods so far, state by state.
        learned: Those of training data at the same step.
        damped: How often the propagation was damped.
        cooling: When the learning rate falls.
    """

    best: Any
    score: Array
    improved: Array
    mark: Array
    held_out: Array
    learned: Array
    damped: Array
    cooling: Cooling


@dataclass(frozen=True)
class Watch:
    """How a run is watched.

    Args:
        patience: Part of the budget that the run goes on without progress once the whole range is reached.
        gain: Nats by which the score must have fallen to be progress.
        cooling: Part of the whole run on which the learning rate falls to zero.
        minutes: Time after which the run ends, whatever is left of its steps; None sets no limit.
        significance: Standard errors by which held-out data may get worse before the propagation is damped.
        slack: Nats by which they may: the learning rate makes them rise and fall.
        damping: Factor on the trust in the propagation, each time.
    """

    patience: float = 0.12
    gain: float = 0.002
    cooling: float = 0.35
    minutes: float | None = None
    significance: float = 3.0
    slack: float = 0.05
    damping: float = 0.5

    def __post_init__(self) -> None:
        if not 0.0 < self.cooling < 1.0 or not 0.0 < self.patience <= 1.0 or not 0.0 < self.damping <= 1.0:
            raise TradeError("Watch cooling, patience and damping must be fractions in (0, 1].")
        if self.minutes is not None and not self.minutes > 0:
            raise TradeError(f"minutes must be positive, got {self.minutes!r}.")

    def begin(self, flows: Any, seeds: int, steps: int, judged: Judged) -> Watched:
        """Before the first step."""
        nothing = jnp.full(seeds, jnp.inf)
        begin = jnp.asarray(self._latest(steps))
        return Watched(
            best=flows,
            score=nothing,
            improved=jnp.zeros(seeds, int),
            mark=nothing,
            held_out=jnp.full(judged.held_out.shape, jnp.inf),
            learned=jnp.full(judged.learned.shape, jnp.inf),
            damped=jnp.zeros(seeds, int),
            cooling=Cooling(begin, jnp.asarray(steps)),
        )

    def _latest(self, steps: int) -> int:
        return int(np.ceil((1.0 - self.cooling) * steps))

    def compare(self, old: Watched, flows: Any, judged: Judged, step: int, *, many: bool) -> tuple[Watched, np.ndarray]:
        """Keep what is better; returns also which seeds are losing their boundary."""
        lost = self._worse(judged.held_out, old.held_out) & self._worse(judged.learned, old.learned)
        lower = _mean(judged.held_out) < _mean(np.asarray(old.held_out))
        if judged.score is None:
            return eqx.tree_at(lambda w: w.best, old, flows), lost
        better = (judged.score < np.asarray(old.score)) & ~lost
        progress = judged.score < np.asarray(old.mark) - self.gain
        new = Watched(
            best=choose(better, flows, old.best, many=many),
            score=jnp.where(better, judged.score, old.score),
            improved=jnp.where(progress, step, old.improved),
            mark=jnp.where(progress, judged.score, old.mark),
            held_out=jnp.where(lower[:, None], judged.held_out, old.held_out),
            learned=jnp.where(lower[:, None], judged.learned, old.learned),
            damped=old.damped + lost,
            cooling=old.cooling,
        )
        return new, lost

    def _worse(self, now: np.ndarray, then: Array) -> np.ndarray:
        """Seeds whose likelihood fell by more than noise: that of a paired difference, and a slack for the training."""
        before = np.asarray(then)
        if now.shape[1] < 2 or not np.isfinite(before).all():
            return np.zeros(len(now), bool)
        change = now - before
        error = change.std(axis=1, ddof=1) / np.sqrt(change.shape[1])
        return ~(change.mean(axis=1) <= np.maximum(self.significance * error, self.slack))

    def trusted(self, trust: Array, lost: np.ndarray) -> Array:
        """Less of the propagation for seeds that lose their boundary; it comes back while they do not."""
        return jnp.where(
            jnp.asarray(lost).reshape(trust.shape),
            self.damping * trust,
            jnp.minimum(trust / np.sqrt(self.damping), 1.0),
        )

    def ends(
        self, watched: Watched, step: int, steps: int, reached: float | None, clock: "Stopwatch", *, may_end_early: bool
    ) -> Cooling:
        """When the learning rate falls: begun now if nothing more is gained, or if time is running out."""
        begin, end = (int(v) for v in watched.cooling)
        if step >= begin or not may_end_early:
            return watched.cooling
        length = max(int(step * self.cooling / (1.0 - self.cooling)), 1)
        waited = step - int(np.max(np.asarray(watched.improved)))
        idle = reached is not None and reached > 0.999 and waited >= self.patience * steps
        late = self.minutes is not None and clock.seconds + length / clock.rate(step) >= 60.0 * self.minutes
        if idle or late:
            begin, end = step, min(step + length, end)
        return Cooling(jnp.asarray(begin), jnp.asarray(end))


class Stopwatch:
    """Time in training, without that of the first chunk, which is spent on compilation."""

    def __init__(self) -> None:
        self.first, self.began, self.compiling = 0, time.monotonic(), True

    def restart(self, step: int) -> None:
        """From a step on, which is compiled."""
        self.first, self.began, self.compiling = step, time.monotonic(), False

    @property
    def seconds(self) -> float:
        """Since it was started."""
        return time.monotonic() - self.began

    def rate(self, step: int) -> float:
        """Steps a second."""
        return max(step - self.first, 1) / max(self.seconds, 1e-9)


def choose(better: np.ndarray, new: Any, old: Any, *, many: bool) -> Any:
    """Seed by seed, the new tree where it is better and the old one elsewhere."""

    def pick(n: Any, o: Any) -> Any:
        if not eqx.is_array(n):
            return n
        mask = jnp.asarray(better).reshape(-1, *[1] * (n.ndim - 1)) if many else jnp.asarray(better[0])
        return jnp.where(mask, n, o)

    return jax.tree.map(pick, new, old)


def _mean(values: np.ndarray) -> np.ndarray:
    return values.mean(axis=1) if values.shape[1] else np.full(len(values), np.nan)
