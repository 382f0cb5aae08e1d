"""What a run decides between chunks: which state is the best, whether the boundary is being lost, when to end."""

import math
import time
from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from trade import check
from trade.training.optimiser import Cooling

WHOLE = 0.999  # of the range


class Judged(NamedTuple):
    """What an evaluation found, one entry per seed.

    Args:
        values: Numbers to report, by name.
        score: What the best state has the least of; None leaves the last state the best.
        held_out: Negative log-likelihood of each held-out state at the boundary, of shape (seeds, n); may be empty.
        learned: The same of as many states of the training data.
        weighted: Whether there is a density that could shape the model where data cannot.
    """

    values: dict[str, np.ndarray]
    score: np.ndarray | None
    held_out: np.ndarray
    learned: np.ndarray
    weighted: bool = False


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
        significance: Standard errors that are more than noise.
        slack: Nats by which the boundary may get worse beyond its noise: the learning rate makes it rise and fall.
        ruin: Nats from which on a run goes back to its best state: what is damaged that far stays damaged. Infinity
            lets it go on as it is.
        damping: Factor on the trust in the propagation each time the boundary is being lost.
        least: The smallest trust; from it the way back is not too long.
        most: The largest trust, where data are memorised and the density must shape the model.
    """

    patience: float = 0.2
    gain: float = 0.001
    cooling: float = 0.35
    minutes: float | None = None
    significance: float = 3.0
    slack: float = 0.1
    ruin: float = 2.0
    damping: float = 0.5
    least: float = 0.05
    most: float = 10.0

    def __post_init__(self) -> None:
        check.numbers(self, "patience", "damping", "least", low=0, high=1, open_low=True)
        check.numbers(self, "cooling", low=0, high=1, open_low=True, open_high=True)
        check.numbers(self, "gain", "significance", "slack", low=0)
        if not (isinstance(self.ruin, float) and self.ruin == math.inf):
            check.numbers(self, "ruin", low=0)
        check.numbers(self, "most", low=1)
        if self.minutes is not None:
            minutes = check.number(self.minutes, "minutes", 0, open_low=True, takes="positive")
            object.__setattr__(self, "minutes", minutes)

    def begin(self, flows: Any, seeds: int, steps: int, judged: Judged) -> Watched:
        """What is remembered before the first step.

        Args:
            flows: The flows, with a first axis of seeds where there are several.
            seeds: Number of seeds.
            steps: The budget.
            judged: An evaluation of the flows, for its shapes.

        Returns:
            A record in which every score is infinite.
        """
        nothing = jnp.full(seeds, jnp.inf)
        begin = jnp.asarray(self._latest(steps), int)
        return Watched(
            best=flows,
            score=nothing,
            improved=jnp.zeros(seeds, int),
            mark=nothing,
            held_out=jnp.full(judged.held_out.shape, jnp.inf),
            learned=jnp.full(judged.learned.shape, jnp.inf),
            damped=jnp.zeros(seeds, int),
            cooling=Cooling(begin, jnp.asarray(steps, int)),
        )

    def _latest(self, steps: int) -> int:
        return int(np.ceil((1.0 - self.cooling) * steps))

    def compare(
        self, old: Watched, flows: Any, judged: Judged, step: int, *, begun: bool, reached: float, many: bool
    ) -> tuple[Watched, np.ndarray]:
        """Keep what is better, and say which seeds are losing their boundary.

        Args:
            old: What is remembered.
            flows: The flows now.
            judged: What was found of them.
            step: The step.
            begun: Whether the propagation has. Before, the boundary is what it is.
            reached: The part of the range that all seeds have reached; one where the objective has no such thing.
            many: Whether flows have a first axis of seeds.

        Returns:
            What is remembered now, and for each seed whether it is losing its boundary.
        """
        lost = begun & self._worse(judged.held_out, old.held_out) & self._worse(judged.learned, old.learned)
        lower = (_mean(judged.held_out) < _mean(np.asarray(old.held_out))) | (not begun)
        if judged.score is None:
            return eqx.tree_at(lambda w: (w.best, w.improved), old, (flows, jnp.full_like(old.improved, step))), lost
        better = judged.score < np.asarray(old.score)
        progress = judged.score < np.asarray(old.mark) - self.gain
        if not judged.weighted and "validation_nll" not in judged.values and reached <= WHOLE:
            better |= True  # the likelihood at the boundary knows nothing of the range
            progress |= True
        better &= ~lost
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
        if now.shape[1] < 2:
            return np.zeros(len(now), bool)
        with np.errstate(invalid="ignore"):
            change = now - before
            error = change.std(axis=1, ddof=1) / np.sqrt(change.shape[1])
            kept = change.mean(axis=1) <= np.maximum(self.significance * error, self.slack)
        return np.isfinite(before).all(axis=1) & ~kept

    def ruined(self, old: Watched, judged: Judged, lost: np.ndarray) -> np.ndarray:
        """Seeds whose boundary is lost beyond repair.

        Args:
            old: What was remembered before this evaluation.
            judged: What it found.
            lost: Seeds that are losing their boundary.

        Returns:
            A vector of booleans, one entry per seed.
        """
        with np.errstate(invalid="ignore"):
            return lost & ~(_mean(judged.held_out) - _mean(np.asarray(old.held_out)) <= self.ruin)

    def memorises(self, judged: Judged) -> np.ndarray:
        """Seeds that know their data better than others of the same kind, by more than noise.

        Args:
            judged: What was found of the flows.

        Returns:
            A vector of booleans, one entry per seed.
        """
        if judged.held_out.shape[1] < 2:
            return np.zeros(len(judged.held_out), bool)
        gap = _mean(judged.held_out) - _mean(judged.learned)
        each = [v.var(axis=1, ddof=1) / v.shape[1] for v in (judged.held_out, judged.learned)]
        return gap > self.significance * np.sqrt(sum(each))

    def trusted(self, trust: Array, lost: np.ndarray, memorises: np.ndarray) -> Array:
        """How far the propagation is trusted: less where the boundary is being lost, more where data are memorised.

        Otherwise it goes back to one by and by.

        Args:
            trust: The trust now, one entry per seed.
            lost: Seeds that are losing their boundary.
            memorises: Seeds that memorise their data.

        Returns:
            The new trust, of the same shape, between ``least`` and ``most``.
        """
        old = np.asarray(trust).reshape(-1)
        back = np.where(old < 1.0, np.minimum(old / self.damping**0.5, 1.0), np.maximum(old * self.damping**0.1, 1.0))
        new = np.where(lost, old * self.damping, np.where(memorises, np.maximum(old, 1.0) / self.damping**0.5, back))
        return jnp.asarray(np.clip(new, self.least, self.most).reshape(trust.shape), trust.dtype)

    def ends(
        self, watched: Watched, step: int, steps: int, reached: float, clock: "Stopwatch", *, may_end_early: bool
    ) -> Cooling:
        """When the learning rate falls: begun now if nothing more is gained, or if time is running out.

        Args:
            watched: What is remembered.
            step: The step.
            steps: The budget.
            reached: The part of the range that all seeds have reached.
            clock: Time in training.
            may_end_early: Whether the learning rate can fall at any time.

        Returns:
            From which step to which it falls.
        """
        begin, end = (int(v) for v in watched.cooling)
        if step >= begin or not may_end_early:
            return watched.cooling
        length = max(int(step * self.cooling / (1.0 - self.cooling)), 1)
        waited = step - int(np.max(np.asarray(watched.improved)))
        idle = reached > WHOLE and waited >= self.patience * steps
        late = self.minutes is not None and clock.seconds + length / clock.rate(step) >= 60.0 * self.minutes
        if idle or late:
            begin, end = step, min(step + length, end)
        return Cooling(jnp.asarray(begin, int), jnp.asarray(end, int))


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
        """Steps per second."""
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
