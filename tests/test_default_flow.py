"""The flow that a target and its data ask for."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_problems import KEY

from trade import Condition, Model, Target, TradeError
from trade.config import is_registered
from trade.flows import CircularFlow, ContinuousLatticeFlow, SplineFlow, adapt_to_data, default_flow
from trade.model import check_flow
from trade.targets import PowerPosterior, ScalarField

CONDITION = Condition(0.5, 1.0, boundary=(1.0,))
RANDOM = np.random.default_rng(0)


def target_of(*shape, **options):
    def log_density(x, c, y=None):
        return -(x**2).sum() / c + (0.0 if y is None else y.sum())

    return Target(log_density, shape, CONDITION, **options)


def around(centre, width, n=2000):
    """Angles around a centre, wrapped into [-π, π)."""
    return np.mod(centre + width * RANDOM.standard_normal(n) + np.pi, 2 * np.pi) - np.pi


def circle(n=2000):
    return RANDOM.uniform(-np.pi, np.pi, n)


def columns(*values):
    return jnp.asarray(np.stack(values, axis=1), float)


# --- The family


@pytest.mark.parametrize("shape", [(1,), (2,), (8,), (9,), (24,), (25,), (100,), (3, 4)])
def test_a_plain_target_gets_splines_of_its_size(shape, monkeypatch):
    """More layers and wider networks for more coordinates; vectors are whitened, one number or a matrix is not."""
    recipe = default_flow(target_of(*shape))
    dim = int(np.prod(shape))
    assert isinstance(recipe, SplineFlow)
    assert (recipe.blocks, recipe.network.width) == (6, 64)  # on a CPU; elsewhere it grows
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    larger = default_flow(target_of(*shape))
    assert (larger.blocks, larger.network.width) == ((6, 64) if dim <= 8 else (8, 64) if dim <= 24 else (8, 128))
    assert recipe.whiten == (len(shape) == 1 and dim > 1)
    assert recipe.adapter == 32
    assert recipe.steep
    assert recipe.squares
    assert recipe.bounds == ()


def test_bounds_are_walls_of_the_flow():
    bounds = ((0.0, 1.0), None, (2.0, None))
    assert default_flow(target_of(3, bounds=bounds)).bounds == bounds
    posterior = PowerPosterior(lambda x: 0.0 * x.sum(), lambda x: -(x**2).sum(), shape=(2,), bounds=((0, 1), (0, 1)))
    assert default_flow(posterior).bounds == ((0, 1), (0, 1))


@pytest.mark.parametrize("bounds", [(), (None, None, (0.0, None))])
def test_a_coordinate_that_widths_follow_is_a_source(bounds):
    """A logarithm of a width, or a width that is bounded by zero; found by the data, none without them."""
    log_width, *rest = RANDOM.standard_normal((3, 5000))
    data = columns(*(np.exp(log_width) * r for r in rest), np.exp(log_width) if bounds else log_width)
    target = target_of(3, bounds=bounds)
    recipe = default_flow(target, data)
    assert isinstance(recipe, SplineFlow)
    assert recipe.sources == (2,)
    assert default_flow(target).sources == ()
    assert default_flow(target, columns(*rest, RANDOM.standard_normal(5000))).sources == ()
    flow = adapt_to_data(recipe.build(KEY), data)
    # Untrained it is the density: a log-normal or normal width, and two normals of that width.
    exact = -1.5 * np.log(2.0 * np.pi) - 0.5 * np.sum([v**2 for v in (log_width, *rest)], axis=0)
    exact -= (3.0 if bounds else 2.0) * log_width
    found = Model(flow, CONDITION).log_prob(data, 1.0)
    assert abs(np.mean(exact - found)) < (0.1 if bounds else 0.01)


def test_a_tail_of_the_data_is_one_of_the_flow():
    """As of the logarithm of a scale: by the data, and as what a source leaves."""
    normal, other = RANDOM.standard_normal((2, 5000))
    target = target_of(2)
    assert not default_flow(target).tails
    assert not default_flow(target, columns(normal, other)).tails
    data = columns(normal, np.log(np.abs(other)))
    recipe = default_flow(target, data)
    assert recipe.tails and recipe.sources == ()
    exact = 0.5 * np.log(2.0 / np.pi) - 0.5 * np.log(2.0 * np.pi) - 0.5 * (normal**2 + other**2) + np.log(np.abs(other))
    found = Model(adapt_to_data(recipe.build(KEY), data), CONDITION).log_prob(data, 1.0)
    assert abs(np.mean(exact - found)) < 0.05
    funnel = default_flow(target, columns(normal * np.exp(other), other))
    assert funnel.sources == (1,) and not funnel.tails


def test_an_observation_is_seen():
    recipe = default_flow(target_of(2, observation_shape=(3, 2)))
    assert recipe.observation_size == 6


@pytest.mark.parametrize("shape", [(4, 4), (2, 4, 4), (3, 3)])
def test_a_lattice_of_any_lengths_gets_a_flow_with_its_symmetries(shape):
    assert type(default_flow(target_of(*shape, lattice=True))) is ContinuousLatticeFlow
    assert isinstance(default_flow(target_of(*shape)), SplineFlow)


def test_a_scalar_field_is_a_lattice():
    assert isinstance(default_flow(ScalarField(4)), ContinuousLatticeFlow)


# --- Angles


def test_angles_that_turn_are_on_the_circle_and_others_are_cut():
    """One all round, one in a narrow range across ±π, one in two wide basins; then a length."""
    basins = np.concatenate([around(-1.5, 0.6, 1000), around(1.5, 0.6, 1000)])
    data = columns(circle(), around(3.1, 0.2), basins, RANDOM.standard_normal(2000))
    recipe = default_flow(target_of(4, angles=(0, 1, 2)), data)
    assert isinstance(recipe, CircularFlow)
    assert (recipe.angles, recipe.cut) == ((0, 2), (1,))
    assert recipe.rescale == 32


@pytest.mark.parametrize(("empty", "turns"), [(0.4 * np.pi, True), (0.6 * np.pi, False)])
@pytest.mark.parametrize("where", [0.0, 2.0, np.pi])
def test_an_empty_arc_of_a_quarter_circle_decides(empty, turns, where):
    """Wherever on the circle it lies."""
    angle = np.mod(where + np.linspace(0.5 * empty, 2 * np.pi - 0.5 * empty, 2000) + np.pi, 2 * np.pi) - np.pi
    recipe = default_flow(target_of(2, angles=(0, 1)), columns(circle(), angle))
    assert recipe.angles == ((0, 1) if turns else (0,))


def test_angles_alone_have_nothing_to_rescale():
    recipe = default_flow(target_of(2, angles=(0, 1)), columns(circle(), circle()))
    assert (recipe.angles, recipe.cut, recipe.rescale) == ((0, 1), (), 0)


def test_without_data_every_angle_turns():
    assert default_flow(target_of(3, angles=(0, 2))).angles == (0, 2)


def test_turns_of_an_angle_make_no_difference_to_the_choice():
    angle = circle()
    turned = angle + 2 * np.pi * RANDOM.integers(-3, 4, len(angle))
    assert default_flow(target_of(2, angles=(0,)), columns(turned, angle)).angles == (0,)
    narrow = around(0.3, 0.2) + 2 * np.pi * RANDOM.integers(-3, 4, 2000)
    assert default_flow(target_of(2, angles=(0, 1)), columns(narrow, angle)).cut == (0,)


def test_angles_none_of_which_turns_are_not_on_the_circle():
    data = columns(around(0.3, 0.2), around(-1.0, 0.3), RANDOM.standard_normal(2000))
    assert isinstance(default_flow(target_of(3, angles=(0, 1)), data), SplineFlow)


def test_an_angle_at_the_edge_of_its_range_is_one_peak_though_none_turns():
    """The density is periodic in it, says the target: data at ±π are not torn apart, and turns make no difference."""
    data = columns(around(np.pi, 0.2), RANDOM.standard_normal(2000))
    flow = adapt_to_data(default_flow(target_of(2, angles=(0,)), data).build(KEY), data)
    model = Model(flow, CONDITION)
    turned = data + jnp.array([2 * np.pi, 0.0])
    np.testing.assert_allclose(model.log_prob(turned, 1.0), model.log_prob(data, 1.0), atol=1e-3)


# --- Whatever is chosen can be built, trained and saved

CHOICES = {
    "one number": lambda: (target_of(1), None),
    "matrix": lambda: (target_of(2, 3), None),
    "bounds": lambda: (target_of(2, bounds=((0.0, None), None)), None),
    "observation": lambda: (target_of(2, observation_shape=(3,)), None),
    "lattice": lambda: (target_of(4, 4, lattice=True), None),
    "odd lattice": lambda: (target_of(3, 3, lattice=True), None),
    "angles": lambda: (target_of(2, angles=(0, 1)), None),
    "angles beside a length": lambda: (target_of(3, angles=(1,)), None),
    "one angle": lambda: (target_of(1, angles=(0,)), None),
    "an angle and an observation": lambda: (target_of(2, angles=(0,), observation_shape=(1,)), None),
    "a lattice and an observation": lambda: (target_of(4, 4, lattice=True, observation_shape=(1,)), None),
}


@pytest.mark.parametrize("name", CHOICES)
def test_what_is_chosen_is_a_flow_for_the_target(name):
    """Of its shape, conditioned on c and the observation, and of a recipe that a file may name."""
    target, data = CHOICES[name]()
    try:
        recipe = default_flow(target, data)
    except TradeError as error:
        pytest.fail(f"no flow for a target that is allowed: {error}")
    flow = eqx.filter_eval_shape(recipe.build, KEY)
    assert flow.shape == target.shape
    check_flow(flow, target.condition, target.observation_shape)
    assert is_registered(recipe)


def test_a_bound_beside_an_angle_is_kept():
    """A length is positive, also beside a torsion."""
    target = target_of(2, angles=(0,), bounds=(None, (0.0, None)))
    data = columns(circle(), np.exp(0.5 * RANDOM.standard_normal(2000)))
    flow = adapt_to_data(default_flow(target, data).build(KEY), data)
    assert float(Model(flow, CONDITION).sample(KEY, 5000, 1.0)[:, 1].min()) >= 0.0
