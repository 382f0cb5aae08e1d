"""Power posteriors: p(ψ|y, β) ∝ p(ψ) p(y|ψ)^β for every observation y and every power β (Section 5.2)."""

from collections.abc import Callable
from copy import copy

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from trade import check
from trade.abstract_condition import AbstractCondition
from trade.abstract_target import AbstractTarget
from trade.axes import Axes, check_axes
from trade.condition import Condition
from trade.errors import TradeError
from trade.states import Bound, as_shape, check_bounds, check_function

IMPOSSIBLE = -1e4  # log of a density that is zero; finite, so that residuals stay so
MARGIN = 2.0  # nats below the smallest prior of the data


class PowerPosterior(AbstractTarget):
    """q(ψ|y, β) = p(ψ) p(y|ψ)^β (Eq. 28), with or without a likelihood; or p(ψ)^α p(y|ψ)^β.

    Without one, train with ``EnergyFree()``: the likelihood is then rebuilt from the flow's own
    p_θ(ψ|y, β0) / p(ψ), as far as ψ can see it.

    Args:
        log_prior: ``f(ψ)``: log p(ψ), normalised or not; ``-inf`` outside its support.
        log_likelihood: ``f(y, ψ)``: log p(y|ψ), or ``f(ψ)`` for one fixed data set; None for a simulator
            whose likelihood is not known.
        shape: Shape of ψ.
        observation_shape: Shape of y, when one flow is to serve every observation; None for one fixed data set.
        condition: Range of β, with simulated pairs at β0 = 1 by default; or ``trade.Axes`` with the names ``alpha`` and
            ``beta``, the powers of prior and likelihood.
        bounds: The support of the prior, coordinate by coordinate, where it is bounded (see ``trade.Target``).
    """

    _log_prior: Callable[[Array], Array] = eqx.field(static=True)
    _log_likelihood: Callable[..., Array] | None = eqx.field(static=True)
    shape: tuple[int, ...] = eqx.field(static=True)
    _observation_shape: tuple[int, ...] | None = eqx.field(static=True)
    condition: AbstractCondition = eqx.field(static=True)
    _bounds: tuple[Bound, ...] = eqx.field(static=True)
    _least_prior: float = eqx.field(static=True)

    def __init__(
        self,
        log_prior: Callable[[Array], Array],
        log_likelihood: Callable[..., Array] | None = None,
        *,
        shape: tuple[int, ...],
        observation_shape: tuple[int, ...] | None = None,
        condition: AbstractCondition = Condition(0.5, 2.0, scale="log", boundary=(1.0,)),  # noqa: B008
        bounds: tuple[Bound, ...] = (),
    ) -> None:
        check.function(log_prior, "PowerPosterior log_prior")
        if log_likelihood is not None:
            check.function(log_likelihood, "PowerPosterior log_likelihood")
        check_axes(condition, "PowerPosterior", "alpha", "beta")
        self._log_prior, self._log_likelihood, self.condition = log_prior, log_likelihood, condition
        self._least_prior = IMPOSSIBLE
        self.shape = as_shape("shape", shape)
        self._bounds = check_bounds(bounds, self.shape)
        self._observation_shape = (
            None if observation_shape is None else as_shape("observation_shape", observation_shape)
        )
        x, _, y = self._inputs()
        check_function(log_prior, "log_prior", (x,))
        if log_likelihood is not None:
            check_function(log_likelihood, "log_likelihood", (x,) if y is None else (y, x), on="one data set")

    @property
    def observation_shape(self) -> tuple[int, ...] | None:
        """Shape of y, if it is not fixed."""
        return self._observation_shape

    @property
    def bounds(self) -> tuple[Bound, ...]:
        """The support of the prior."""
        return self._bounds

    @property
    def has_density(self) -> bool:
        """Whether there is a likelihood."""
        return self._log_likelihood is not None

    def log_likelihood(self, x: Array, y: Array | None) -> Array:
        """log p(y|ψ); refused without a likelihood.

        Args:
            x: The parameters ψ.
            y: The observation; not used for one fixed data set.

        Returns:
            A scalar.
        """
        if self._log_likelihood is None:
            raise TradeError("This PowerPosterior has no likelihood: train with Gradient(density=EnergyFree()).")
        return self._log_likelihood(x) if self._observation_shape is None else self._log_likelihood(y, x)

    def log_prior(self, x: Array) -> Array:
        """log p(ψ), finite also outside the support.

        Args:
            x: The parameters ψ.

        Returns:
            A scalar.
        """
        return jnp.maximum(self._log_prior(x), IMPOSSIBLE)

    def log_density(self, x: Array, c: Array, y: Array | None = None) -> Array:
        """α log p(ψ) + β log p(y|ψ), with α = 1 where it is not part of the condition."""
        alpha, beta = self._powers(c)
        return alpha * self.log_prior(x) + beta * self.log_likelihood(x, y)

    def _powers(self, c: Array) -> tuple[Array | float, Array]:
        """α and β of a condition."""
        at = self.condition.point(c)
        return (at.alpha, at.beta) if isinstance(self.condition, Axes) else (1.0, at)

    def condition_derivative(self, x: Array, c: Array, y: Array | None = None) -> Array:
        """∂_β log q = log p(y|ψ) (Eq. 33, where "∝" is "="), and ∂_α log q = log p(ψ)."""
        likelihood = self.log_likelihood(x, y)
        if not isinstance(self.condition, Axes):
            return likelihood
        found = {"alpha": self.log_prior(x), "beta": likelihood}
        return jnp.stack([found[name] for name in self.condition.names])

    def rebuild(self, log_p0: Array, x: Array, c: Array, c0: Array, y: Array | None = None) -> Array:
        """α log p(ψ) + (β/β0) (log p_θ(ψ|y, c0) - α0 log p(ψ)).

        Where the prior is zero, or less than at any of the data, there is no likelihood to rebuild: what the flow has
        there are its tails, and over a prior that falls faster they would be all the likelihood there is.
        """
        prior, (alpha, beta), (alpha0, beta0) = self.log_prior(x), self._powers(c), self._powers(c0)
        rebuilt = alpha * prior + (beta / beta0) * (log_p0 - alpha0 * prior)
        return jnp.where(prior > self._least_prior, rebuilt, -jnp.inf)

    def prepared(self, data: tuple[Array, ...]) -> "PowerPosterior":
        """The same target, which knows how small a prior the data reach."""
        least = min((float(jnp.min(jax.vmap(self.log_prior)(x))) for x in data), default=IMPOSSIBLE)
        other = copy(self)
        object.__setattr__(other, "_least_prior", max(least - MARGIN, IMPOSSIBLE))
        return other
