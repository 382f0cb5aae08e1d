"""Coupling layers and the scanned stack of them.

Orientation, as in flowjax: ``transform`` goes from latent to data (sampling),
``inverse`` from data to latent (density). The density direction is the one that the
loss differentiates, so there the spline is evaluated directly.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from flowjax.bijections import AbstractBijection
from jax import Array
from paramax import NonTrainable, non_trainable

from trade import check
from trade.errors import TradeError
from trade.flows import spline
from trade.flows.conditioner import Network, NetworkSpec, check_network

MAX_LOG_SCALE = 3.0
T = TypeVar("T")
GPU_LAYERS = 3  # in one body of the loop
LONGEST_PIECE = 16  # layers that are compiled as a whole for training, one or two seconds each
LONG_RUN = {"cpu": 2_000, "gpu": 30_000}  # steps that win this back


class Coupling(AbstractBijection):
    """One half of the coordinates, changed by what the other half and c say.

    From data to latent: the first ``d // 2`` coordinates pass; each of the others goes through a map with
    parameters of its own (``_forward``); then a fixed permutation brings the coordinates into the order of the next
    layer (``halves``).

    Args:
        key: A JAX random key.
        dim: Dimension of the states.
        cond_dim: Length of the condition vector that the network sees, or None.
        network: Spec of the network.
        interval: The network sees coordinates, and gives shifts, within (-interval, interval).
        permutation: A matrix; by default one that lets both sides change places.
    """

    network: Network
    permutation: Array | NonTrainable
    shape: tuple[int, ...] = eqx.field(static=True)
    cond_shape: tuple[int, ...] | None = eqx.field(static=True)
    interval: float = eqx.field(static=True)

    def __init__(
        self,
        key: Array,
        dim: int,
        cond_dim: int | None,
        *,
        network: NetworkSpec,
        interval: float = 4.0,
        permutation: Array | None = None,
    ) -> None:
        key_net = check.random_key(key)
        name = type(self).__name__
        check_network(network, f"{name} network")
        self.shape = (check.integer(dim, f"{name} dim"),)
        self.cond_shape = None if cond_dim is None else (check.integer(cond_dim, f"{name} cond_dim"),)
        self.interval = check.number(interval, f"{name} interval", 0, open_low=True)
        outputs = (dim - self.passive) * (self.shape_parameters + 2)
        self.network = network.build(key_net, self.features + (cond_dim or 0), outputs)
        if permutation is None:
            permutation = jnp.roll(jnp.eye(dim), -self.passive, axis=0)
        self.permutation = non_trainable(permutation)

    @property
    def passive(self) -> int:
        """How many coordinates pass unchanged."""
        return self.shape[0] // 2

    @property
    def features(self) -> int:
        """How many numbers the network sees of them."""
        return self.passive

    @property
    def shape_parameters(self) -> int:
        """How many parameters each map takes beside a scale and a shift."""
        return 0

    def _parameters(self, passive: Array, condition: Array | None) -> tuple[Array, ...]:
        """Of every map: shape, log scale and shift."""
        # The network sees bounded inputs, and its scale is bounded: otherwise a state far outside could push the
        # next layer's farther still, and training would run away. A shift must reach as far as a curved density does.
        inputs = self._seen(passive)
        if self.cond_shape is not None and condition is not None:  # a flow also passes what only its latent depends on
            inputs = jnp.concatenate([inputs, condition])
        raw = self.network(inputs).reshape(self.shape[0] - self.passive, -1)
        # Split and not sliced: the derivative joins the parts, where that of slices would pad and add them.
        count = self.shape_parameters
        raw, log_scale, shift = jnp.split(raw, [count, count + 1], axis=-1)
        return raw, *self._placed(log_scale[:, 0], shift[:, 0])

    def _placed(self, log_scale: Array, shift: Array) -> tuple[Array, Array]:
        """Log scale and shift from what the network says: the first bounded, the second ever slower."""
        return bounded(log_scale, MAX_LOG_SCALE), self.interval * jnp.arcsinh(shift / self.interval)

    def _seen(self, passive: Array) -> Array:
        return bounded(passive, self.interval)

    @abstractmethod
    def _forward(self, active: Array, *parameters: Array) -> tuple[Array, Array]:
        """Data to latent: the maps and the logarithms of their slopes, given ``_parameters``."""

    @abstractmethod
    def _backward(self, active: Array, *parameters: Array) -> tuple[Array, Array]:
        """Latent to data: the inverse maps and the logarithms of the *inverse's* slopes."""

    def inverse_and_log_det(self, y: Array, condition: Array | None = None) -> tuple[Array, Array]:
        """From data to latent: the maps, then the permutation."""
        passive, active = jnp.split(y, [self.passive])
        active, log_slope = self._forward(active, *self._parameters(passive, condition))
        return self._permute(jnp.concatenate([passive, active])), jnp.sum(log_slope)

    def transform_and_log_det(self, x: Array, condition: Array | None = None) -> tuple[Array, Array]:
        """From latent to data: the permutation undone, then the inverse maps."""
        x = self._permute(x, back=True)
        passive, active = jnp.split(x, [self.passive])
        active, log_slope = self._backward(active, *self._parameters(passive, condition))
        return jnp.concatenate([passive, active]), jnp.sum(log_slope)

    def _permute(self, x: Array, *, back: bool = False) -> Array:
        # A product with a 0/1 matrix at full precision is exact, and its transpose is
        # another product, where a gather would need a scatter.
        matrix: Array = self.permutation.T if back else self.permutation  # pyright: ignore
        return jnp.matmul(matrix, x, precision=jax.lax.Precision.HIGHEST)


class SplineCoupling(Coupling):
    """A coupling by rational-quadratic splines on (-interval, interval).

    After the spline come a scale and a shift, so that the tails are linear with a learned slope.

    Warning:
        Splines act only on (-interval, interval) in the coordinates of the layer.

    Args:
        key: A JAX random key.
        dim: Dimension of the states.
        cond_dim: Length of the condition vector that the network sees, or None.
        bins: Bins of each spline.
        squares: Show the network the squares of what it sees too: a curved density follows them, and a network comes
            to them by itself only as closely as it has units.
        options: Those of ``Coupling``.
    """

    bins: int = eqx.field(static=True)
    squares: bool = eqx.field(static=True)

    def __init__(
        self, key: Array, dim: int, cond_dim: int | None, *, bins: int = 10, squares: bool = False, **options: Any
    ) -> None:
        self.bins = check_bins(bins, type(self).__name__)
        self.squares = check.flag(squares, f"{type(self).__name__} squares")
        super().__init__(key, dim, cond_dim, **options)

    @property
    def features(self) -> int:
        """One for each passive coordinate, or two."""
        return self.passive * (1 + self.squares)

    def _seen(self, passive: Array) -> Array:
        seen = super()._seen(passive)
        return jnp.concatenate([seen, seen * seen / self.interval]) if self.squares else seen

    @property
    def shape_parameters(self) -> int:
        """Those of a spline."""
        return spline.parameter_count(self.bins)

    def _forward(self, active: Array, raw: Array, log_scale: Array, shift: Array) -> tuple[Array, Array]:
        active, log_slope = spline.forward(active, raw, self.interval)
        return active * jnp.exp(log_scale) + shift, log_slope + log_scale

    def _backward(self, active: Array, raw: Array, log_scale: Array, shift: Array) -> tuple[Array, Array]:
        active, log_slope = spline.inverse((active - shift) * jnp.exp(-log_scale), raw, self.interval)
        return active, log_slope - log_scale


def check_bins(bins: object, owner: str) -> int:
    """The number of bins of a spline, each of which has a least width."""
    found = check.integer(bins, f"{owner} bins", 2)
    if found * spline.MIN_BIN >= 1:
        raise TradeError(f"{owner} bins must be fewer than {1 / spline.MIN_BIN:.0f}, got {bins!r}.")
    return found


def bounded(x: Array, limit: float) -> Array:
    """x near zero, ±limit far away."""
    return limit * jnp.tanh(x / limit)


class Stack(AbstractBijection):
    """Layers of equal shape, scanned: compile time does not grow with depth.

    Only the results of matrix products are kept for the backward pass; activations and
    spline arithmetic are recomputed, which is faster than reading them back. Unrolled as a
    whole there is no loop to carry them out of, and nothing is recomputed.

    Args:
        layers: A bijection whose arrays have a leading layer axis.
        unroll: How many layers the compiled loop holds at once: more take longer to compile, and less time to run.
            0 decides by where it runs, and training also by the length of the run (``in_one_piece``).
    """

    layers: AbstractBijection
    shape: tuple[int, ...] = eqx.field(static=True)
    cond_shape: tuple[int, ...] | None = eqx.field(static=True)
    unroll: int = eqx.field(static=True)

    def __init__(self, layers: AbstractBijection, unroll: int = 0) -> None:
        check.instance(layers, AbstractBijection, "Stack layers", "a layer whose arrays have a first axis of layers")
        unroll = check.integer(unroll, "Stack unroll", 0)
        self.layers, self.unroll = layers, unroll
        self.shape, self.cond_shape = layers.shape, layers.cond_shape

    @property
    def depth(self) -> int:
        """Number of layers."""
        return len(jax.tree.leaves(eqx.filter(self.layers, eqx.is_array))[0])

    def inverse_and_log_det(self, y: Array, condition: Array | None = None) -> tuple[Array, Array]:
        """From data to latent: through the layers from the first to the last."""
        return self._scan(lambda layer, v: layer.inverse_and_log_det(v, condition), y, reverse=False)

    def transform_and_log_det(self, x: Array, condition: Array | None = None) -> tuple[Array, Array]:
        """From latent to data: through the layers from the last to the first."""
        return self._scan(lambda layer, v: layer.transform_and_log_det(v, condition), x, reverse=True)

    def _scan(
        self, apply: Callable[[AbstractBijection, Array], tuple[Array, Array]], x: Array, *, reverse: bool
    ) -> tuple[Array, Array]:
        arrays, static = eqx.partition(self.layers, eqx.is_array)

        def step(carry: tuple[Array, Array], layer: AbstractBijection) -> tuple[tuple[Array, Array], None]:
            value, log_det = apply(eqx.combine(layer, static), carry[0])
            return (value, carry[1] + log_det), None

        unroll = self.unroll or layers_in_loop(self.depth)
        if unroll < self.depth:
            step = jax.checkpoint(step, policy=jax.checkpoint_policies.dots_saveable)
        start = (x, jnp.zeros((), x.dtype))
        return jax.lax.scan(step, start, arrays, reverse=reverse, unroll=unroll)[0]


def layers_in_loop(depth: int) -> int:
    """A short loop body compiles fast; a GPU gains from a longer one."""
    return 1 if jax.default_backend() == "cpu" else min(GPU_LAYERS, depth)


def in_one_piece(flow: T, steps: int) -> T:
    """The flow as so many steps of training take least time: in a long run, with its layers compiled as a whole.

    A flow that says how many layers to compile at once stays as it is.
    """

    def whole(node: object) -> object:
        if isinstance(node, Stack) and not node.unroll and node.depth <= LONGEST_PIECE:
            return Stack(node.layers, node.depth)
        return node

    if steps < LONG_RUN.get(jax.default_backend(), LONG_RUN["gpu"]):
        return flow
    return jax.tree.map(whole, flow, is_leaf=lambda node: isinstance(node, Stack))
