"""Benchmarks with a file for each problem: what was trained is kept, and fields with two parameters are compared."""

import sys
from dataclasses import replace

import jax
import numpy as np
from pages import ROOT
from small_problems import data_at, family

sys.path.insert(0, str(ROOT))
import trade
from benchmarks.fields import beside_chains
from benchmarks.one_by_one import Options, run_missing, trained
from trade import Axes, Condition
from trade.files import read_json
from trade.flows import LatticeFlow
from trade.sampling.mcmc import MarkovChains
from trade.targets import ScalarField


def test_what_was_trained_is_not_lost_with_what_came_after(tmp_path):
    """A comparison that fails costs no training: the next call goes on from the finished run, and adds up the time."""
    options, calls = Options(steps=2, out=tmp_path), []

    def problem(options):
        run, about = trained("small", family(), {1.0: data_at(1.0, n=100)}, options)
        calls.append((run, about))
        if len(calls) == 1:
            raise RuntimeError("after the training")
        return about

    try:
        run_missing({"small": problem}, options)
    except RuntimeError:
        run_missing({"small": problem}, replace(options, problems=("small",)))
    (first, before), (second, after) = calls
    for one, two in zip(jax.tree.leaves(first.model.flow), jax.tree.leaves(second.model.flow), strict=True):
        np.testing.assert_array_equal(one, two)
    assert after["seconds"] > before["seconds"]
    assert read_json(tmp_path / "small.json")["steps"] == 2


def test_a_field_with_two_parameters_beside_chains():
    """All numbers are there and finite, from points of the plane in whatever form a grid gives them."""
    axes = Axes({"kappa": Condition(0.05, 0.1), "coupling": Condition(0.1, 0.2)}, boundary=(0.05, 0.1))
    target, chains = ScalarField(2, condition=axes), MarkovChains(chains=100, pilot=400)
    data = {c: chains.sample(target, jax.random.key(0), 200, c)[0] for c in axes.boundary}
    flow = LatticeFlow(target.shape, axes, blocks=2, network=trade.flows.Convolutional((4,), (1,)))
    run = trade.fit(target, data, flow=flow, steps=2, progress=False)
    one, two = beside_chains(run, target, chains, [tuple(c) for c in axes.grid(2)[:2]])
    assert np.isfinite([*one["sigmas"].values(), *two["sigmas"].values(), two["log_z_sigmas"]]).all()
