"""A flow read as the conditional density p_θ(x|c): the only place that builds its condition vector."""

from collections.abc import Callable
from functools import partial
from math import prod

import equinox as eqx
import jax
import jax.numpy as jnp
from flowjax.distributions import AbstractDistribution, AbstractTransformed
from jax import Array
from jax.typing import ArrayLike
from paramax import unwrap

from trade import check
from trade.abstract_condition import AbstractCondition, ConditionLike
from trade.condition import check_condition
from trade.errors import TradeError
from trade.flows.latent import scaled
from trade.states import as_shape

CHUNK = 65_536  # states evaluated at once by the public, batched methods


def flow_condition(flow: AbstractDistribution, u: Array, y: Array | None = None) -> Array | None:
    """The vector a flow is conditioned on: u(c), then the observation if there is one."""
    if flow.cond_shape is None:
        return None
    u = jnp.ravel(u)
    return u if y is None else jnp.concatenate([u, jnp.ravel(y)])


def log_prob(flow: AbstractDistribution, x: Array, u: Array, y: Array | None = None) -> Array:
    """log p_θ(x|u) of one state, Eq. 1."""
    flow = unwrap(flow)
    return flow._log_prob(x, flow_condition(flow, u, y))


def draw(flow: AbstractDistribution, key: Array, u: Array, y: Array | None = None) -> tuple[Array, Array]:
    """One state from p_θ(x|u) and its log density, in one pass through the flow."""
    flow = unwrap(flow)
    return flow._sample_and_log_prob(key, flow_condition(flow, u, y))


def draw_from_mixture(
    flow: AbstractDistribution, key: Array, u: Array, y: Array | None, wide: Array, factor: Array
) -> tuple[Array, Array, Array]:
    """One state of p_θ(x|u), or, if ``wide``, one from a latent that is wider by a factor.

    Returns the state, log p_θ(x|u), and the log ratio of its density under the wider latent to that. A latent that
    cannot be widened is left as it is (see ``flows.latent.scaled``), and the ratio is one.
    """
    flow = unwrap(flow)
    condition = flow_condition(flow, u, y)
    if not isinstance(flow, AbstractTransformed):
        return *flow._sample_and_log_prob(key, condition), jnp.zeros(())
    latent = flow.base_dist
    z, dim = scaled(latent, latent._sample(key, condition), jnp.where(wide, factor, 1.0))
    log_own = latent._log_prob(z, condition)
    log_wider = latent._log_prob(scaled(latent, z, 1.0 / factor)[0], condition) - dim * jnp.log(factor)
    x, log_det = flow.bijection.transform_and_log_det(z, condition)
    return x, log_own - log_det, log_wider - log_own


def log_prob_and_score(
    flow: AbstractDistribution, x: Array, u: Array, y: Array | None = None, direction: Array | None = None
) -> tuple[Array, Array]:
    """log p_θ(x|u) and its derivative in u along a direction, upward by default, of one state: one ``jvp`` for both."""
    along = jnp.ones_like(u) if direction is None else direction
    return jax.jvp(lambda v: log_prob(flow, x, v, y), (u,), (along,))


class Model(eqx.Module):
    """A flow with the condition it was trained for: what a user samples and scores.

    Args:
        flow: Any flowjax distribution whose condition vector is (u(c), observation...).
        condition: The condition with its range and chart.
        observation_shape: Shape of an observation, if the flow takes one.
    """

    flow: AbstractDistribution
    condition: AbstractCondition = eqx.field(static=True)
    observation_shape: tuple[int, ...] | None = eqx.field(
        static=True, default=None, converter=lambda s: None if s is None else as_shape("observation_shape", s)
    )

    def __check_init__(self) -> None:
        check_condition(self.condition)
        check_flow(self.flow, self.condition, self.observation_shape)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one state."""
        return self.flow.shape

    def sample(self, key: Array, n: int, c: ConditionLike, observation: ArrayLike | None = None) -> Array:
        """Draw n states at condition c.

        Args:
            key: A JAX random key.
            n: How many.
            c: The condition.
            observation: The observation, for a model that takes one.

        Returns:
            States of shape (n, *shape).
        """
        return self.sample_and_log_prob(key, n, c, observation)[0]

    def sample_and_log_prob(
        self, key: Array, n: int, c: ConditionLike, observation: ArrayLike | None = None
    ) -> tuple[Array, Array]:
        """Draw n states at condition c, with log p_θ(x|c), in one pass.

        Args:
            key: A JAX random key.
            n: How many.
            c: The condition.
            observation: The observation, for a model that takes one.

        Returns:
            States of shape (n, *shape), and their log densities, of shape (n,).
        """
        key, n = check.random_key(key), check.count(n, self.shape)
        u, y = self._chart(c), self._observation(observation)
        if n <= CHUNK:
            return _draw_many(self.flow, key, n, u, y)
        parts = [_draw_batch(self.flow, keys, u, y) for keys in _split(jax.random.split(key, n))]
        return _join([p[0] for p in parts]), _join([p[1] for p in parts])

    def log_prob(self, x: ArrayLike, c: ConditionLike, observation: ArrayLike | None = None) -> Array:
        """log p_θ(x|c) for a state or a batch of states.

        Args:
            x: States, of shape (..., *shape).
            c: The condition.
            observation: The observation, for a model that takes one.

        Returns:
            Log densities, of shape (...).
        """
        return self._batched(_log_prob_batch, x, c, observation)

    def condition_score(self, x: ArrayLike, c: ConditionLike, observation: ArrayLike | None = None) -> Array:
        """∂_c log p_θ(x|c) for a state or a batch of states, in the unit of c; the gradient where c has several axes.

        Args:
            x: States, of shape (..., *shape).
            c: The condition.
            observation: The observation, for a model that takes one.

        Returns:
            Derivatives, of shape (...), or (..., axes).
        """
        u = self._chart(c)

        def along(direction: Array) -> Array:
            slope = jax.jvp(self.condition.unchart, (u,), (direction,))[1].sum()  # of an axis on its own
            return self._batched(partial(_score_batch, direction=direction), x, c, observation) / slope

        return along(jnp.ones(())) if u.ndim == 0 else jnp.stack([along(v) for v in jnp.eye(len(u))], axis=-1)

    def _chart(self, c: ConditionLike) -> Array:
        return _chart(self.condition, jnp.asarray(self.condition.check(c), jnp.result_type(float)))

    def _observation(self, observation: ArrayLike | None) -> Array | None:
        if self.observation_shape is None:
            if observation is not None:
                raise TradeError("This model takes no observation, but one was given.")
            return None
        if observation is None:
            raise TradeError(f"This model needs an observation of shape {self.observation_shape}.")
        y = check.array(observation, "The observation", self.observation_shape, finite=True)
        return jnp.asarray(y, dtype=jnp.result_type(float))

    def _batched(
        self, function: Callable[..., Array], x: ArrayLike, c: ConditionLike, observation: ArrayLike | None
    ) -> Array:
        x = jnp.asarray(check.array(x, "x"), dtype=jnp.result_type(float))
        lead = x.shape[: x.ndim - len(self.shape)]
        if x.ndim < len(self.shape) or x.shape[len(lead) :] != self.shape:
            raise TradeError(f"x must have shape (..., {', '.join(map(str, self.shape))}), got {x.shape}.")
        u, y = self._chart(c), self._observation(observation)
        flat = x.reshape(-1, *self.shape)
        parts = [function(self.flow, part, u, y) for part in _split(flat)]
        return _join(parts).reshape(lead)


def _join(parts: list[Array]) -> Array:
    return parts[0] if len(parts) == 1 else jnp.concatenate(parts)


def _split(array: Array) -> list[Array]:
    if len(array) <= CHUNK:
        return [array]
    return [array[i : i + CHUNK] for i in range(0, len(array), CHUNK)]


_chart = jax.jit(lambda condition, c: condition.chart(c), static_argnums=0)  # compiled: one dispatch, not five


@eqx.filter_jit
def _draw_many(flow: AbstractDistribution, key: Array, n: int, u: Array, y: Array | None) -> tuple[Array, Array]:
    return _draw_batch(flow, jax.random.split(key, n), u, y)


@eqx.filter_jit
def _draw_batch(flow: AbstractDistribution, keys: Array, u: Array, y: Array | None) -> tuple[Array, Array]:
    with jax.default_matmul_precision("highest"):
        return jax.vmap(lambda k: draw(flow, k, u, y))(keys)


@eqx.filter_jit
def _log_prob_batch(flow: AbstractDistribution, x: Array, u: Array, y: Array | None) -> Array:
    with jax.default_matmul_precision("highest"):
        return jax.vmap(lambda v: log_prob(flow, v, u, y))(x)


@eqx.filter_jit
def _score_batch(flow: AbstractDistribution, x: Array, u: Array, y: Array | None, direction: Array) -> Array:
    with jax.default_matmul_precision("highest"):
        return jax.vmap(lambda v: log_prob_and_score(flow, v, u, y, direction)[1])(x)


def check_flow(flow: object, condition: AbstractCondition, observation_shape: tuple[int, ...] | None) -> None:
    """Refuse what is not a flow conditioned on (u(c), observation...)."""
    if not isinstance(flow, AbstractDistribution):
        raise TradeError(f"flow must be a flowjax distribution, got {type(flow).__name__}.")
    expected = (len(condition.names) + (0 if observation_shape is None else prod(observation_shape)),)
    if flow.cond_shape is not None and flow.cond_shape != expected:
        raise TradeError(
            f"flow must be conditioned on a vector of shape {expected}"
            f" (the condition{'' if observation_shape is None else ' and the observation'}),"
            f" got cond_shape {flow.cond_shape}."
        )
