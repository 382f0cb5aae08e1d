"""Power posteriors: p(ψ|y, β) ∝ p(ψ) p(y|ψ)^β for every observation y and every power β (Section 5.2)."""

from collections.abc import Callable

import equinox as eqx
from jax import Array

from trade.condition import Condition
from trade.errors import TradeError
from trade.target import AbstractTarget, as_shape


class PowerPosterior(AbstractTarget):
    """q(ψ|y, β) = p(ψ) p(y|ψ)^β (Eq. 28), with or without a likelihood.

    Without one, train with ``EnergyFree()``: the likelihood is then rebuilt from the flow's own
    p_θ(ψ|y, β0) / p(ψ), as far as ψ can see it.

    Args:
        log_prior: ``f(ψ)``: log p(ψ), normalised or not.
        log_likelihood: ``f(y, ψ)``: log p(y|ψ); None for a simulator whose likelihood is not known.
        shape: Shape of ψ.
        observation_shape: Shape of y.
        condition: Range of β, with simulated pairs at β0 = 1 by default.
    """

    _log_prior: Callable[[Array], Array] = eqx.field(static=True)
    _log_likelihood: Callable[[Array, Array], Array] | None = eqx.field(static=True)
    shape: tuple[int, ...] = eqx.field(static=True)
    _observation_shape: tuple[int, ...] = eqx.field(static=True)
    condition: Condition = eqx.field(static=True)

    def __init__(
        self,
        log_prior: Callable[[Array], Array],
        log_likelihood: Callable[[Array, Array], Array] | None = None,
        *,
        shape: tuple[int, ...],
        observation_shape: tuple[int, ...],
        condition: Condition = Condition(0.5, 2.0, scale="log", boundary=(1.0,)),  # noqa: B008
    ) -> None:
        for name, function in (("log_prior", log_prior), ("log_likelihood", log_likelihood)):
            if not callable(function) and (name == "log_prior" or function is not None):
                raise TradeError(f"PowerPosterior {name} must be a function, got {function!r}.")
        self._log_prior, self._log_likelihood, self.condition = log_prior, log_likelihood, condition
        self.shape, self._observation_shape = as_shape("shape", shape), as_shape("observation_shape", observation_shape)

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """Shape of y."""
        return self._observation_shape

    @property
    def has_density(self) -> bool:
        """Whether there is a likelihood."""
        return self._log_likelihood is not None

    def log_likelihood(self, x: Array, y: Array | None) -> Array:
        """log p(y|ψ)."""
        if self._log_likelihood is None:
            raise TradeError("This PowerPosterior has no likelihood: train with Gradient(density=EnergyFree()).")
        assert y is not None
        return self._log_likelihood(y, x)

    def log_density(self, x: Array, c: Array, y: Array | None = None) -> Array:
        """log p(ψ) + β log p(y|ψ)."""
        return self._log_prior(x) + c * self.log_likelihood(x, y)

    def condition_derivative(self, x: Array, c: Array, y: Array | None = None) -> Array:
        """∂_β log q = log p(y|ψ) (Eq. 33, where "∝" is "=")."""
        return self.log_likelihood(x, y)

    def rebuild(self, log_p0: Array, x: Array, c: Array, c0: Array, y: Array | None = None) -> Array:
        """log p(ψ) + (β/β0) (log p_θ(ψ|y, β0) - log p(ψ))."""
        prior = self._log_prior(x)
        return prior + (c / c0) * (log_p0 - prior)
