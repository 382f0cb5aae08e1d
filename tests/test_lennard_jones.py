"""A crystal in a box: its energy against a loop over images, what a state means, and derivatives in T and P."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_problems import KEY, precision

from trade import Axes, Condition, TradeError
from trade.config import describe_target, from_json
from trade.targets import LennardJones
from trade.targets.lennard_jones import WIDTH, _crystal_symmetries

CRYSTAL = LennardJones()


def test_the_energy_is_that_of_all_pairs_of_near_sites():
    with precision(np.float64):
        x = np.asarray(jax.random.normal(KEY, CRYSTAL.shape))
        n, volume = CRYSTAL.particles, CRYSTAL.particles * np.exp(WIDTH * x[-1])
        place = CRYSTAL.sites.copy()
        place[:-1] += 2.0 * WIDTH * x[:-1].reshape(-1, 3)
        total, shifts = 0.0, list(itertools.product((-1, 0, 1), repeat=3))
        for i, j, shift in itertools.product(range(n), range(n), shifts):
            image = 2 * np.array(shift)
            at_rest = np.linalg.norm(CRYSTAL.sites[i] - CRYSTAL.sites[j] + image)
            if 0.0 < at_rest <= 1.5 + 1e-9:
                r = np.linalg.norm(place[i] - place[j] + image) * (4.0 * volume / n) ** (1.0 / 3.0)
                total += 0.5 * 4.0 * (r**-12 - r**-6)
        np.testing.assert_allclose(CRYSTAL.energy(jnp.asarray(x)), total, rtol=1e-10)
        np.testing.assert_allclose(CRYSTAL.volume(jnp.asarray(x)), volume, rtol=1e-12)
        at = CRYSTAL.log_density(jnp.asarray(x), jnp.array([0.5, 2.0]))
        np.testing.assert_allclose(at, -(total + 2.0 * volume) / 0.5 + (n + 1) * WIDTH * x[-1], rtol=1e-10)


def test_it_is_a_face_centred_cubic_crystal_at_density_one():
    assert CRYSTAL.particles == 32 and CRYSTAL.shape == (94,)
    away = CRYSTAL.sites[1:] - CRYSTAL.sites[0]
    near = np.sort(np.linalg.norm(away - 2.0 * np.round(0.5 * away), axis=1))
    np.testing.assert_allclose(near[:12], near[0])  # twelve neighbours
    assert near[12] > 1.1 * near[0]
    assert LennardJones((1, 1, 2)).particles == 8
    np.testing.assert_allclose(CRYSTAL.volume(jnp.zeros(94)), 32.0)


def test_at_their_sites_no_force_acts_and_a_clash_is_finite():
    assert np.isfinite(CRYSTAL.energy(jnp.full(94, 40.0)))
    far = [float(CRYSTAL.energy(jnp.zeros(94).at[0].set(x))) for x in (7.0, 10.0, 100.0)]
    assert far[0] < far[1] < far[2]  # none can leave its place
    slope = jax.grad(CRYSTAL.energy)(jnp.zeros(94))
    np.testing.assert_allclose(slope[:-1], 0.0, atol=2e-3)  # the volume is not at its best
    one, two, step = LennardJones(cells=1).bonds()
    assert np.sum(one == two) > 0  # images of itself, in a small box
    np.testing.assert_allclose(np.sort(np.linalg.norm(step, axis=1))[:24], np.sqrt(0.5))  # 4 x 12 neighbours, once


def test_derivatives_are_the_enthalpy_and_the_volume():
    with precision(np.float64):
        x, c = 0.5 * jax.random.normal(KEY, CRYSTAL.shape), jnp.array([0.4, 2.0])
        automatic = jax.grad(lambda t: CRYSTAL.log_density(x, t))(c)
        np.testing.assert_allclose(CRYSTAL.condition_derivative(x, c), automatic, rtol=1e-9)
        one = LennardJones(condition=Condition(0.3, 0.6), pressure=2.0)
        np.testing.assert_allclose(one.log_density(x, c[0]), CRYSTAL.log_density(x, c), rtol=1e-12)
        np.testing.assert_allclose(one.condition_derivative(x, c[0]), automatic[0], rtol=1e-9)


def test_it_is_saved_by_its_arguments():
    again = from_json(describe_target(CRYSTAL))
    assert isinstance(again, LennardJones) and again.condition == CRYSTAL.condition


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cells": 0}, "LennardJones cells"),
        ({"cells": (1, 2)}, "one integer or three"),
        ({"pressure": "high"}, "LennardJones pressure"),
        ({"condition": Condition(-1.0, 1.0, scale="linear")}, "temperature"),
        ({"condition": Axes({"T": Condition(0.3, 0.6), "mu": Condition(1.0, 2.0)})}, "names T, P, got T, mu"),
    ],
)
def test_bad_arguments_are_refused(options, message):
    with pytest.raises(TradeError, match=message):
        LennardJones(**options)


@pytest.mark.parametrize(("cells", "turns"), [((2, 2, 2), 48), ((1, 2, 2), 16), ((1, 2, 3), 8)])
def test_symmetries_of_the_crystal_leave_the_energy(cells, turns):
    """All turns of the box; the energy of a state far from its sites, wall and images among it; and they differ."""
    target = LennardJones(cells)
    assert len(_crystal_symmetries(cells)[0]) == turns
    with precision(np.float64):
        x = 2.5 * jax.random.normal(KEY, target.shape).at[-1].set(0.3)
        moved = jax.vmap(lambda k: target.symmetry(k, x))(jax.random.split(KEY, 50))
        np.testing.assert_allclose(jax.vmap(target.energy)(moved), target.energy(x), rtol=1e-9)
        assert len(np.unique(np.round(moved[:, 0], 8))) > 20
        jacobian = jax.jacobian(lambda v: target.symmetry(KEY, v))(x)
        np.testing.assert_allclose(abs(np.linalg.det(jacobian)), 1.0)
