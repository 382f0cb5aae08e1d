"""Which half each layer changes."""

import jax
import numpy as np
import pytest
from paramax import unwrap
from small_problems import KEY, TINY

from trade import Condition
from trade.flows import SplineFlow
from trade.flows.halves import layer_orders, permutations


def changed(orders, dim):
    """For each layer and coordinate whether it changes."""
    found = np.zeros(orders.shape, bool)
    np.put_along_axis(found, orders[:, dim // 2 :], True, axis=1)
    return found


@pytest.mark.parametrize("dim", [1, 2, 3, 4, 5, 8, 10, 33])
def test_layers_take_turns_and_divide_anew(dim):
    enough = max((dim - 1).bit_length(), 1)
    for key in jax.random.split(KEY, 3):
        orders = np.asarray(layer_orders(key, dim, 2 * enough))
        np.testing.assert_array_equal(np.sort(orders, axis=1), np.tile(np.arange(dim), (2 * enough, 1)))
        np.testing.assert_array_equal(orders[0], np.arange(dim))
        active = changed(orders, dim)
        for one, two in zip(active[::2], active[1::2], strict=True):
            assert np.all(one | two)  # a coordinate that passed is changed next
        parted = active[:, :, None] & ~active[:, None, :]
        np.fill_diagonal(both := (parted | parted.swapaxes(1, 2)).any(axis=0), True)
        assert both.all()  # log₂ d divisions have told any two apart


def test_divisions_go_on_after_all_are_parted():
    active = changed(np.asarray(layer_orders(KEY, 8, 40)), 8)[::2]
    parted = active[:, :, None] != active[:, None, :]
    often = parted.mean(axis=0)[~np.eye(8, dtype=bool)]
    assert often.min() > 0.25
    assert len({tuple(row) for row in active}) > 8  # not the same few again and again


@pytest.mark.parametrize("dim", [1, 2, 5])
def test_permutations_lead_from_each_order_to_the_next_and_back_to_the_first(dim):
    orders = layer_orders(KEY, dim, 5)
    state = np.arange(dim)
    for order, matrix in zip(np.asarray(orders), np.asarray(permutations(orders)), strict=True):
        np.testing.assert_array_equal(state, order)
        state = matrix @ state
    np.testing.assert_array_equal(state, np.arange(dim))


def test_two_layers_on_a_plane_change_places():
    np.testing.assert_array_equal(permutations(layer_orders(KEY, 2, 3))[:2], np.tile(np.eye(2)[::-1], (2, 1, 1)))


def test_seeds_divide_differently_and_a_flow_starts_as_the_identity():
    recipe = SplineFlow((6,), Condition(0.5, 1.0), blocks=5, network=TINY)
    flows = [recipe.build(k) for k in jax.random.split(KEY, 2)]
    one, two = (np.asarray(unwrap(f).bijection.bijections[0].layers.permutation) for f in flows)
    assert not np.array_equal(one, two)
    x = jax.random.normal(KEY, (6,))
    stack = unwrap(flows[0]).bijection.bijections[0]
    np.testing.assert_allclose(stack.inverse_and_log_det(x, np.zeros(1, np.float32))[0], x, atol=1e-5)
