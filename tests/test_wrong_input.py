"""Every wrong input gets one sentence that names the argument, where it enters; what is meant well is taken."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flowjax.distributions import Normal as FlowjaxNormal
from small_problems import LinearGaussian, family

import trade
from trade import Condition, Model, Target, TradeError, bridge
from trade.data import check_data, make_problem, sampled
from trade.evaluation.calibration import coverage, ranks, uniformity_error
from trade.evaluation.classifier import c2st
from trade.evaluation.divergence import bootstrap, forward_kl, grid_kl, negative_log_likelihood
from trade.evaluation.free_energy import (
    FreeEnergy,
    bennett,
    by_importance,
    by_integration,
    evidence,
    thermodynamic_integration,
)
from trade.evaluation.observables import jackknife, observables
from trade.evaluation.ramachandran import floor, histogram, histogram_kl
from trade.flows import (
    MLP,
    Adapter,
    AffineFlow,
    Bounded,
    CircularFlow,
    Convolutional,
    ConvolutionalFlow,
    Hierarchy,
    LatticeFlow,
    Normal,
    PowerScaled,
    Rescale,
    ResidualMLP,
    SplineCoupling,
    SplineFlow,
    Stack,
    Standardise,
    Tails,
    VolumePreservingFlow,
    Whiten,
    adapt_to_data,
    default_flow,
    on_lattice,
    spline_flow,
)
from trade.sampling.correction import integrated_autocorrelation, metropolis
from trade.sampling.importance import weighted_samples
from trade.sampling.mcmc import MarkovChains
from trade.sampling.tempering import ReplicaExchange
from trade.targets import Augmented, GaussianMixture, MultiWell, PowerPosterior, ScalarField, TwoMoons
from trade.targets import two_moons as moons
from trade.targets.molecule import ForceField, LeapfrogLangevin, Molecule, ZMatrix, write_pdb

KEY = jax.random.key(0)
NAN, INF = float("nan"), float("inf")
C = Condition(0.5, 2.0, boundary=(1.0,))
LINE = Condition(-1.0, 1.0, scale="linear", boundary=(0.0,))
X = np.random.default_rng(0).standard_normal((8, 2))


def q(x, c):
    return -(x**2).sum() / c


def fails(*_):
    raise RuntimeError("no such thing today")


def target(**options):
    return Target(q, (2,), C, **options)


def spline(**options):
    return SplineFlow(**{"shape": (2,), "condition": C, **options})


def circular(**options):
    return CircularFlow(**{"shape": (2,), "condition": C, "angles": (0,), **options})


@cache
def model():
    return Model(LinearGaussian(d=2), C)


@cache
def observing():
    return Model(SplineFlow((2,), C, 3, blocks=1, bins=4, network=MLP(4, 1)).build(KEY), C, (3,))


@cache
def known():
    return target(sampler=lambda key, n, c: jnp.zeros((n, 2)), log_partition=lambda c: 0.5 * c)


@cache
def weighted():
    return weighted_samples(model(), known(), KEY, 8, 1.0)


@cache
def curve():
    return FreeEnergy(np.array([0.5, 1.0, 2.0]), np.zeros(3), np.zeros(3), 1.0)


def sampling(returns):
    """A target whose exact sampler returns something else."""
    return target(sampler=lambda key, n, c: returns)


def told(data):
    return check_data(target(), {1.0: data}, "data")


GRID = np.linspace(0.0, 1.0, 6)
FLAT = -1.0 * np.ones((2, 1, 1))

REFUSED = {
    # Conditions
    "low of None": (lambda: Condition(None, 1.0), "low"),
    "low of True": (lambda: Condition(True, 2.0), "low"),
    "low in words": (lambda: Condition("0.5", 1.0), "low"),
    "low complex": (lambda: Condition(0.5j, 1.0), "low"),
    "high NaN": (lambda: Condition(0.5, NAN), "high"),
    "high infinite": (lambda: Condition(0.5, INF), "high"),
    "high of many": (lambda: Condition(0.5, [1.0, 2.0]), "high"),
    "high beyond floats": (lambda: Condition(0.5, 10**400), "high"),
    "a range without length": (lambda: Condition(1.0, 1.0), "low < high"),
    "a range that float32 cannot tell": (lambda: Condition(1.0, 1.0 + 1e-12), "low < high"),
    "a range that float32 cannot hold": (lambda: Condition(1.0, 1e300), "low < high"),
    "a logarithm of zero": (lambda: Condition(0.0, 1.0), "low > 0"),
    "a scale of 3": (lambda: Condition(0.5, 1.0, scale=3), "scale"),
    "a scale in a list": (lambda: Condition(0.5, 1.0, scale=["log"]), "scale"),
    "a scale of an array": (lambda: Condition(0.5, 1.0, scale=np.zeros(2)), "scale"),
    "a boundary of None": (lambda: Condition(0.5, 1.0, boundary=None), "boundary"),
    "a boundary of True": (lambda: Condition(0.5, 1.0, boundary=True), "boundary"),
    "a boundary in words": (lambda: Condition(0.5, 1.0, boundary="1.0"), "boundary"),
    "a boundary of bytes": (lambda: Condition(0.5, 1.0, boundary=b"1"), "boundary"),
    "a boundary outside": (lambda: Condition(0.5, 1.0, boundary=3.0), "outside"),
    "a boundary of NaN": (lambda: Condition(0.5, 1.0, boundary=(NAN,)), "boundary"),
    "a boundary twice": (lambda: Condition(0.5, 1.0, boundary=(1.0, 1.0)), "too close"),
    "a boundary nearly twice": (lambda: Condition(0.5, 1.0, boundary=(0.9999999, 1.0)), "too close"),
    "boundaries in rows": (lambda: Condition(0.5, 1.0, boundary=np.ones((1, 2))), "boundary"),
    "a knee of words": (lambda: Condition(0.0, 1.0, scale="linear", boundary=0.0, knee="soft"), "knee"),
    "a knee of a logarithm": (lambda: Condition(0.5, 1.0, boundary=1.0, knee=0.1), "knee"),
    "check None": (lambda: C.check(None), "condition"),
    "check a bool": (lambda: C.check(True), "condition"),
    "check words": (lambda: C.check("1.0"), "condition"),
    "check NaN": (lambda: C.check(NAN), "condition"),
    "check an array": (lambda: C.check(np.ones(3)), "condition"),
    "check outside": (lambda: C.check(9.0), "outside"),
    "chart of words": (lambda: C.chart("warm"), "c must"),
    "chart of a complex number": (lambda: C.chart(1j), "c must"),
    "unchart of None": (lambda: C.unchart(None), "u must"),
    "a grid of no points": (lambda: C.grid(0), "points"),
    "a grid of half points": (lambda: C.grid_with_boundary(2.5), "points"),
    # Targets
    "a density that is a number": (lambda: Target(3.0, (2,), C), "log_density"),
    "a density that fails": (lambda: Target(fails, (2,), C), "no such thing today"),
    "a density of vectors": (lambda: Target(lambda x, c: x, (2,), C), "log_density"),
    "a density of integers": (lambda: Target(lambda x, c: 3, (2,), C), "log_density"),
    "a shape of zero": (lambda: Target(q, 0, C), "shape"),
    "a shape of True": (lambda: Target(q, (True,), C), "shape"),
    "a shape of halves": (lambda: Target(q, (1.5,), C), "shape"),
    "a shape of None": (lambda: Target(q, None, C), "shape"),
    "a shape too large": (lambda: Target(q, (10**6, 10**6), C), "shape"),
    "a condition of two numbers": (lambda: Target(q, (2,), (0.5, 1.0)), "condition"),
    "an observation of no size": (lambda: target(observation_shape=0), "observation_shape"),
    "a derivative that is a number": (lambda: target(condition_derivative=1.0), "condition_derivative"),
    "a derivative of vectors": (lambda: target(condition_derivative=lambda x, c: x), "condition_derivative"),
    "a derivative that fails": (lambda: target(condition_derivative=fails), "condition_derivative"),
    "a symmetry that is a word": (lambda: target(symmetry="mirror"), "symmetry"),
    "a symmetry of another shape": (lambda: target(symmetry=lambda k, x: x[:1]), "symmetry"),
    "a symmetry of one argument": (lambda: target(symmetry=lambda x: x), "symmetry"),
    "a rule of vectors": (lambda: target(rebuild=lambda p, x, c, c0, y: x), "rebuild"),
    "a rule that is True": (lambda: target(rebuild=True), "rebuild"),
    "a sampler that is an array": (lambda: target(sampler=np.zeros((3, 2))), "sampler"),
    "log Z that is a number": (lambda: target(log_partition=0.0), "log_partition"),
    "a lattice of words": (lambda: target(lattice="yes"), "lattice"),
    "an angle of None": (lambda: target(angles=None), "angles"),
    "an angle of True": (lambda: target(angles=(True,)), "angles"),
    "an angle beyond": (lambda: target(angles=(2,)), "angles"),
    "an angle twice": (lambda: target(angles=(1, 1)), "angles"),
    "bounds of 3": (lambda: target(bounds=3), "bounds"),
    "bounds of zero": (lambda: target(bounds=0), "bounds"),
    "bounds in words": (lambda: target(bounds=(("a", "b"), None)), "bounds"),
    "bounds the wrong way": (lambda: target(bounds=((1, 0), None)), "low < high"),
    "bounds of True": (lambda: target(bounds=((False, True), None)), "bounds"),
    "bounds of one": (lambda: target(bounds=((0, 1),)), "bounds"),
    "a sampler that fails": (lambda: target(sampler=fails).sample(KEY, 3, 1.0), "sampler"),
    "a sampler that fails in sampled": (lambda: sampled(target(sampler=fails), 3), "sampler"),
    "a sampler of another shape": (lambda: sampling(np.zeros((2, 3))).sample(KEY, 3, 1.0), "sampler"),
    "a sampler of another shape in sampled": (lambda: sampled(sampling(np.zeros((2, 3))), 3), "sampler"),
    "a sampler of nothing": (lambda: sampling(None).sample(KEY, 3, 1.0), "sampler"),
    "sampled with a key of 0": (lambda: known().sample(0, 3, 1.0), "key"),
    "sampled no state": (lambda: known().sample(KEY, 0, 1.0), "n must"),
    "sampled too many states": (lambda: known().sample(KEY, 10**12, 1.0), "in parts"),
    "sampled outside": (lambda: known().sample(KEY, 3, 9.0), "outside"),
    "log Z of None": (lambda: target(log_partition=lambda c: None).log_partition(1.0), "log_partition"),
    "log Z that fails": (lambda: target(log_partition=fails).log_partition(1.0), "log_partition"),
    "log Z outside": (lambda: known().log_partition(9.0), "outside"),
    "a bridge of a number": (lambda: bridge(3.0, shape=2), "log_density"),
    "a bridge that fails": (lambda: bridge(fails, shape=2), "log_density"),
    "a bridge without shape": (lambda: bridge(lambda x: x.sum()), "shape"),
    "a bridge from None": (lambda: bridge(lambda x: x.sum(), None, shape=2), "base"),
    "a bridge from NaN": (lambda: bridge(lambda x: x.sum(), NAN, shape=2), "base"),
    "a bridge from another shape": (
        lambda: bridge(lambda x: x.sum(), FlowjaxNormal(jnp.zeros(2)), shape=3),
        "shape",
    ),
    "a bridge from a conditional": (lambda: bridge(lambda x: x.sum(), LinearGaussian(d=2)), "base"),
    "a bridge that does not fit": (lambda: bridge(lambda x: x @ jnp.ones(3), shape=2), "log_density"),
    "a bridge sampled at its end": (lambda: bridge(lambda x: -(x**2).sum(), shape=2).sample(KEY, 3, 1.0), "c = 0"),
    "wells of no dimension": (lambda: MultiWell(0), "MultiWell d"),
    "wells of True": (lambda: MultiWell(True), "MultiWell d"),
    "wells in words": (lambda: MultiWell("five"), "MultiWell d"),
    "wells of NaN": (lambda: MultiWell(a=NAN), "MultiWell a"),
    "wells that are open": (lambda: MultiWell(c=-1.0), "MultiWell c"),
    "wells below zero": (lambda: MultiWell(condition=LINE), "temperature"),
    "wells without condition": (lambda: MultiWell(condition=None), "condition"),
    "wells sampled with words": (lambda: MultiWell(1).sample(KEY, "many", 1.0), "n must"),
    "a mixture of words": (lambda: GaussianMixture([["a"]], [[[1.0]]]), "means"),
    "a mixture of NaN": (lambda: GaussianMixture([[NAN]], [[[1.0]]]), "means"),
    "a ragged mixture": (lambda: GaussianMixture([[1.0], [1.0, 2.0]], [[[1.0]]]), "means"),
    "a mixture of no mode": (lambda: GaussianMixture(np.zeros((0, 2)), np.zeros((0, 2, 2))), "means"),
    "a mixture that is not positive": (lambda: GaussianMixture(np.zeros((2, 1)), FLAT), "positive definite"),
    "a mixture of NaN weights": (lambda: GaussianMixture([[0.0]], [[[1.0]]], C, [NAN]), "weights"),
    "a mixture of negative powers": (lambda: GaussianMixture([[0.0]], [[[1.0]]], LINE), "power"),
    "a field of odd length": (lambda: ScalarField(5), "length"),
    "a field in words": (lambda: ScalarField("eight"), "length"),
    "a field without coupling": (lambda: ScalarField(coupling=0), "coupling"),
    "a field of half dimensions": (lambda: ScalarField(dimensions=1.5), "dimensions"),
    "a prior that fails": (lambda: PowerPosterior(fails, shape=2), "log_prior"),
    "a prior of vectors": (lambda: PowerPosterior(lambda x: x, shape=2), "log_prior"),
    "a likelihood that fails": (lambda: PowerPosterior(jnp.sum, fails, shape=2), "log_likelihood"),
    "a likelihood of 3": (lambda: PowerPosterior(jnp.sum, 3, shape=2), "log_likelihood"),
    "a posterior without condition": (lambda: PowerPosterior(jnp.sum, shape=2, condition=1.0), "condition"),
    "moons of another prior": (lambda: TwoMoons([]), "prior"),
    "moons with a likelihood of 3": (lambda: TwoMoons(likelihood=3), "likelihood"),
    "pairs of no key": (lambda: moons.pairs(None, 3), "key"),
    "pairs of no number": (lambda: moons.pairs(KEY, 2.5), "n must"),
    "pairs of another prior": (lambda: moons.pairs(KEY, 3, "cauchy"), "prior"),
    "tempered pairs at zero": (lambda: moons.tempered_pairs(KEY, 3, 0.0), "beta"),
    "a posterior of three": (lambda: moons.grid_posterior(np.zeros(3), 1.0), "y must"),
    "a posterior on no grid": (lambda: moons.grid_posterior(np.zeros(2), 1.0, radii=0), "radii"),
    "an extension of nothing": (lambda: Augmented(None, 1), "inner"),
    "an extension by half": (lambda: Augmented(MultiWell(1), 0.5), "extra"),
    "an extension of no width": (lambda: Augmented(MultiWell(1), 1, reference=0), "reference"),
    "an extension of words": (lambda: Augmented(MultiWell(1), 1).extend(KEY, "x", 1.0), "x must"),
    "a molecule without parts": (lambda: Molecule(None, None, C), "force_field"),
    "a force field of no file": (lambda: ForceField.load("/nowhere/at/all.json"), "all.json"),
    "a Z-matrix of words": (lambda: ZMatrix("abc", ()), "reference"),
    "a Z-matrix of halves": (lambda: ZMatrix((0.5, 1, 2), ()), "atom"),
    "a Z-matrix of short rows": (lambda: ZMatrix((0, 1, 2), ((3, 2, 1),)), "row"),
    "bonds of words": (lambda: ZMatrix.from_bonds("ab"), "bonds"),
    "bonds of nothing": (lambda: ZMatrix.from_bonds(None), "bonds"),
    "bonds of three atoms": (lambda: ZMatrix.from_bonds([(0, 1, 2)]), "bonds"),
    "dynamics without a step": (lambda: LeapfrogLangevin(step=None), "step"),
    "dynamics that never keeps": (lambda: LeapfrogLangevin(thinning=0), "thinning"),
    "dynamics of no molecule": (lambda: LeapfrogLangevin().sample(MultiWell(), KEY, X, 1, 300.0), "molecule"),
    "a file of words": (lambda: write_pdb("x.pdb", "positions", [("ALA", ("N",))]), "positions"),
    "a file of no residues": (lambda: write_pdb("x.pdb", np.zeros((1, 3)), ["N"]), "residues"),
    "a file of residues by name": (lambda: write_pdb("x.pdb", np.zeros((1, 3)), {"ALA": ("N",)}), "residues"),
    "a file nowhere": (lambda: write_pdb("/nowhere/x.pdb", np.zeros((1, 3)), [("ALA", ("N",))]), "x.pdb"),
    # Flows
    "a network of 32": (lambda: spline(network=32), "network"),
    "a network of a word": (lambda: spline(network="mlp"), "network"),
    "a network without parentheses": (lambda: spline(network=MLP), "network"),
    "a network for lattices": (lambda: spline(network=Convolutional()), "network"),
    "a latent of None": (lambda: spline(latent=None), "latent"),
    "a latent of flowjax": (lambda: spline(latent=FlowjaxNormal()), "latent"),
    "no blocks": (lambda: spline(blocks=0), "blocks"),
    "blocks of True": (lambda: spline(blocks=True), "blocks"),
    "half a bin": (lambda: spline(bins=2.5), "bins"),
    "too many bins": (lambda: spline(bins=10**6), "bins"),
    "an interval of words": (lambda: spline(interval="wide"), "interval"),
    "an interval of infinity": (lambda: spline(interval=INF), "interval"),
    "a reach beyond": (lambda: spline(reach=1.5), "reach"),
    "an adapter of None": (lambda: spline(adapter=None), "adapter"),
    "an unroll of -1": (lambda: spline(unroll=-1), "unroll"),
    "conditional in words": (lambda: spline(conditional="no"), "conditional"),
    "whiten of 1": (lambda: spline(whiten=1), "whiten"),
    "a flow of no shape": (lambda: spline(shape=None), "shape"),
    "a flow of no condition": (lambda: spline(condition=None), "condition"),
    "a flow of another key": (lambda: spline().build(0), "key"),
    "a flow of a seed in words": (lambda: spline().build("zero"), "key"),
    "bounds of a flow in words": (lambda: spline(bounds=("a", "b")), "bounds"),
    "a latent below zero": (lambda: spline(condition=LINE, latent=PowerScaled()).build(KEY), "above zero"),
    "affine blocks of words": (lambda: AffineFlow((2,), C, blocks="many"), "blocks"),
    "affine volume of None": (lambda: AffineFlow((2,), C, volume=None), "volume"),
    "affine angles of halves": (lambda: AffineFlow((2,), C, angles=(0.5,)), "angles"),
    "affine network of None": (lambda: AffineFlow((2,), C, network=None), "network"),
    "a volume of one entry": (lambda: VolumePreservingFlow((1,), C), "2 or more"),
    "a volume of no reach": (lambda: VolumePreservingFlow((2,), C, reach=0), "reach"),
    "a circle of words": (lambda: circular(angles="phi"), "angles"),
    "a circle steered by words": (lambda: circular(steerable="T"), "steerable"),
    "a circle cut at words": (lambda: circular(cut=("x",)), "cut"),
    "a circle of -1 units": (lambda: circular(rescale=-1), "rescale"),
    "a circle of no latent": (lambda: circular(latent=0), "latent"),
    "a lattice of odd length": (lambda: LatticeFlow((3, 3), C), "even lengths"),
    "a lattice of odd blocks": (lambda: LatticeFlow((4, 4), C, blocks=3), "blocks"),
    "a lattice of an MLP": (lambda: LatticeFlow((4, 4), C, network=MLP()), "network"),
    "a lattice without width": (lambda: LatticeFlow((4, 4), C, width=0), "width"),
    "a convolution of lines": (lambda: ConvolutionalFlow((4,), C), "two-dimensional"),
    "a convolution of 32": (lambda: ConvolutionalFlow((4, 4), C, dense=32), "dense"),
    "channels of words": (lambda: Convolutional("ab", (3, 3)), "channels"),
    "even kernels": (lambda: Convolutional((8,), (2,)), "odd kernel"),
    "kernels too few": (lambda: Convolutional((8, 8), (3,)), "odd kernel"),
    "an MLP without width": (lambda: MLP(0), "MLP width"),
    "an MLP without depth": (lambda: MLP(4, 0), "MLP depth"),
    "an MLP in words": (lambda: MLP("wide"), "MLP width"),
    "an MLP of another kind": (lambda: MLP(4, 1, "tanh"), "activation"),
    "a residual network of halves": (lambda: ResidualMLP(4, 0.5), "blocks"),
    "a latent of no reference": (lambda: PowerScaled(1.0, 0.0), "reference"),
    "a latent of no exponent": (lambda: PowerScaled(None), "exponent"),
    "spline_flow of nothing": (lambda: spline_flow(KEY, None), "target"),
    "spline_flow of no key": (lambda: spline_flow(None, known()), "key"),
    "spline_flow with a typo": (lambda: spline_flow(KEY, known(), block=3), "block"),
    "default_flow of nothing": (lambda: default_flow("target"), "target"),
    "default_flow of other data": (lambda: default_flow(known(), np.zeros((3, 5))), "data"),
    "adapt_to_data of no flow": (lambda: adapt_to_data(3, X), "flow"),
    "adapt_to_data of words": (lambda: adapt_to_data(model().flow, "data"), "data"),
    "adapt_to_data of NaN": (lambda: adapt_to_data(model().flow, X * NAN), "data"),
    "on_lattice of another flow": (lambda: on_lattice(model().flow, (4, 4)), "LatticeFlow"),
    "a coupling of no network": (lambda: SplineCoupling(KEY, 2, 1, network=None), "network"),
    "a coupling of no key": (lambda: SplineCoupling(0, 2, 1, network=MLP(4)), "key"),
    "an adapter of no dimension": (lambda: Adapter(KEY, 0, 1, 4), "Adapter dim"),
    "a rescaling of no width": (lambda: Rescale(KEY, (2,), 1, width=0), "width"),
    "a stack of nothing": (lambda: Stack(None), "layers"),
    "a scale without reach": (lambda: Standardise((2,), reach=0.0), "reach"),
    "a whitened lattice": (lambda: Whiten((2, 2)), "vector"),
    "a hierarchy of a lattice": (lambda: Hierarchy((2, 2), ()), "vector"),
    "a hierarchy of sources alone": (lambda: Hierarchy((2,), (0, 1)), "sources"),
    "tails of a lattice": (lambda: Tails((2, 2)), "vector"),
    "tails that are not whitened": (lambda: spline(tails=True), "whiten"),
    "tails by name": (lambda: spline(whiten=True, tails="heavy"), "tails"),
    "a source that is no coordinate": (lambda: spline(whiten=True, sources=(2,)), "sources"),
    "sources that are not whitened": (lambda: spline(sources=(0,)), "whiten"),
    "boundaries of words": (lambda: Bounded("boundaries"), "bounds"),
    # Objectives
    "Trade with a balance of 1": (lambda: trade.Trade(balance=1.0), "Trade balance"),
    "Trade with a class": (lambda: trade.Trade(balance=trade.objectives.Fixed), "Trade balance"),
    "Trade from None": (lambda: trade.Trade(start=None), "Trade start"),
    "Trade from NaN": (lambda: trade.Trade(start=NAN), "Trade start"),
    "Trade without boundary": (lambda: trade.Trade(boundary=None), "Trade boundary"),
    "Trade with a class of terms": (lambda: trade.Trade(trade.objectives.Gradient), "Trade propagation"),
    "Fixed in words": (lambda: trade.objectives.Fixed("one"), "Fixed value"),
    "Fixed below zero": (lambda: trade.objectives.Fixed(-1.0), "Fixed value"),
    "Ramp of a number": (lambda: trade.objectives.Ramp(1.0), "Ramp balance"),
    "Ramp over words": (lambda: trade.objectives.Ramp(over="soon"), "Ramp over"),
    "StepBack of NaN": (lambda: trade.objectives.StepBack(most=NAN), "StepBack most"),
    "StepBack the wrong way": (lambda: trade.objectives.StepBack(low=0.9, high=0.5), "low < high"),
    "GradientNorm never": (lambda: trade.objectives.GradientNorm(every=0), "GradientNorm every"),
    "GradientNorm at half steps": (lambda: trade.objectives.GradientNorm(every=1.5), "GradientNorm every"),
    "GradientNorm that never forgets": (lambda: trade.objectives.GradientNorm(ema=1.0), "GradientNorm ema"),
    "ForwardKL of no states": (lambda: trade.objectives.ForwardKL(0), "ForwardKL batch"),
    "ForwardKL of True": (lambda: trade.objectives.ForwardKL(True), "ForwardKL batch"),
    "ForwardKL of symmetric words": (lambda: trade.objectives.ForwardKL(symmetries="yes"), "symmetries"),
    "ReverseKL at words": (lambda: trade.objectives.ReverseKL(at="here"), "ReverseKL at"),
    "ReverseKL nowhere": (lambda: trade.objectives.ReverseKL(at=()), "ReverseKL at"),
    "ReverseKL of no sampler": (lambda: trade.objectives.ReverseKL(conditions=None), "conditions"),
    "ReverseKL of no states": (lambda: trade.objectives.ReverseKL(batch=-1), "batch"),
    "Reweighted without base": (lambda: trade.objectives.Reweighted(base="data"), "base"),
    "Reweighted cut to nothing": (lambda: trade.objectives.Reweighted(truncate=0), "truncate"),
    "Reweighted at no conditions": (lambda: trade.objectives.Reweighted(conditions_per_step=0), "conditions_per_step"),
    "Widening from zero": (lambda: trade.objectives.Widening(0.0), "s_min"),
    "Widening in words": (lambda: trade.objectives.Widening(s_max="wide"), "s_max"),
    "GrowingInterval of NaN": (lambda: trade.objectives.GrowingInterval(NAN), "full_at"),
    "GrowingInterval too late": (lambda: trade.objectives.GrowingInterval(2.0), "full_at"),
    "CausalGrid of one point": (lambda: trade.objectives.CausalGrid(1), "points"),
    "CausalGrid of negative strength": (lambda: trade.objectives.CausalGrid(epsilon=-1.0), "epsilon"),
    "CausalGrid of None": (lambda: trade.objectives.CausalGrid(decay=None), "decay"),
    "Frontier at once": (lambda: trade.objectives.Frontier(crossing=0), "crossing"),
    "Frontier in words": (lambda: trade.objectives.Frontier(threshold="low"), "threshold"),
    "Frontier back to front": (lambda: trade.objectives.Frontier(retreat=None), "retreat"),
    "BatchExpectation of one": (lambda: trade.objectives.BatchExpectation(samples=1), "samples"),
    "BatchExpectation of no base": (lambda: trade.objectives.BatchExpectation(trade.objectives.FromModel), "base"),
    "GridExpectation never": (lambda: trade.objectives.GridExpectation(every=0), "every"),
    "GridExpectation of no samples": (lambda: trade.objectives.GridExpectation(samples=0), "samples"),
    "GridExpectation of words": (lambda: trade.objectives.GridExpectation("fine"), "points"),
    "Gradient of no sampler": (lambda: trade.objectives.Gradient(conditions=0.5), "conditions"),
    "Gradient of no points": (lambda: trade.objectives.Gradient(points=64), "points"),
    "Gradient without expectation": (lambda: trade.objectives.Gradient(expectation=None), "expectation"),
    "Gradient of no density": (lambda: trade.objectives.Gradient(density=True), "density"),
    "Gradient of a penalty of 2": (lambda: trade.objectives.Gradient(penalty=2), "penalty"),
    "Gradient of a class of penalties": (lambda: trade.objectives.Gradient(penalty=trade.objectives.Huber), "penalty"),
    "Gradient of half conditions": (lambda: trade.objectives.Gradient(conditions_per_step=0.5), "conditions_per_step"),
    "Gradient of negative weight": (lambda: trade.objectives.Gradient(reweighted=-1), "reweighted"),
    "Gradient cut in words": (lambda: trade.objectives.Gradient(truncate="ten"), "truncate"),
    "ModelPoints all wider": (lambda: trade.objectives.ModelPoints(wider=1), "wider"),
    "ModelPoints of noisy words": (lambda: trade.objectives.ModelPoints(noise="some"), "noise"),
    "ModelPoints of symmetric 1": (lambda: trade.objectives.ModelPoints(symmetries=1), "symmetries"),
    "Huber of None": (lambda: trade.objectives.Huber(None), "Huber delta"),
    "Cauchy of True": (lambda: trade.objectives.Cauchy(True), "Cauchy delta"),
    "Sum of nothing": (lambda: trade.objectives.Sum(()), "terms"),
    "Sum of numbers": (lambda: trade.objectives.Sum((1.0, 2.0)), "terms"),
    "Sum of one term": (lambda: trade.objectives.Sum(trade.objectives.ForwardKL()), "terms"),
    "Sum of weighty words": (lambda: trade.objectives.Sum((trade.objectives.ForwardKL(),), ("a",)), "weights"),
    "Sum of a single weight": (lambda: trade.objectives.Sum((trade.objectives.ForwardKL(),), 1.0), "weights"),
    "Sum from the end": (lambda: trade.objectives.Sum((trade.objectives.ForwardKL(),), starts=(2.0,)), "starts"),
    # Training
    "no learning rate": (lambda: trade.Adam(0), "learning_rate"),
    "a learning rate of words": (lambda: trade.Adam("fast"), "learning_rate"),
    "a learning rate of True": (lambda: trade.Adam(True), "learning_rate"),
    "an infinite learning rate": (lambda: trade.Adam(INF), "learning_rate"),
    "a clip below zero": (lambda: trade.Adam(clip=-1.0), "clip"),
    "a negative decay": (lambda: trade.Adam(weight_decay=-0.1), "weight_decay"),
    "a warmup beyond the run": (lambda: trade.Adam(warmup=1.5), "warmup"),
    "a cycle of negative warmup": (lambda: trade.training.OneCycle(warmup=-0.1), "warmup"),
    "a cycle that never falls": (lambda: trade.training.OneCycle(warmup=1.0), "warmup"),
    "stages of words": (lambda: trade.training.OneCycle(stages="half"), "stages"),
    "stages beyond the run": (lambda: trade.training.OneCycle(stages=(1.5,)), "stages"),
    "stages back in time": (lambda: trade.training.OneCycle(stages=(0.5, 0.2)), "stages"),
    "a stage factor of zero": (lambda: trade.training.OneCycle(stage_factor=0), "stage_factor"),
    "patience of words": (lambda: trade.training.Watch(patience="long"), "patience"),
    "a gain of NaN": (lambda: trade.training.Watch(gain=NAN), "gain"),
    "all cooling": (lambda: trade.training.Watch(cooling=1.0), "cooling"),
    "minutes of words": (lambda: trade.training.Watch(minutes="ten"), "minutes"),
    "a negative significance": (lambda: trade.training.Watch(significance=-1), "significance"),
    "a least trust of zero": (lambda: trade.training.Watch(least=0), "least"),
    "a most trust below one": (lambda: trade.training.Watch(most=0.5), "most"),
    # Models
    "a model of no flow": (lambda: Model(None, C), "flow"),
    "a model of no condition": (lambda: Model(model().flow, 1.0), "condition"),
    "a model that observes words": (lambda: Model(model().flow, C, "two"), "observation_shape"),
    "a model that observes too much": (lambda: Model(model().flow, C, (3,)), "observation"),
    "a key of 0": (lambda: model().sample(0, 3, 1.0), "key must be a JAX random key such as jax.random.key(0), got 0."),
    "a key of None": (lambda: model().sample(None, 3, 1.0), "key"),
    "several keys": (lambda: model().sample(jax.random.split(KEY), 3, 1.0), "key"),
    "no states": (lambda: model().sample(KEY, 0, 1.0), "n must"),
    "states of True": (lambda: model().sample(KEY, True, 1.0), "n must"),
    "half a state": (lambda: model().sample(KEY, 0.5, 1.0), "n must"),
    "states in words": (lambda: model().sample_and_log_prob(KEY, "ten", 1.0), "n must"),
    "too many states": (lambda: model().sample(KEY, 10**12, 1.0), "in parts"),
    "samples at words": (lambda: model().sample(KEY, 3, "1.0"), "condition"),
    "samples at True": (lambda: model().sample(KEY, 3, True), "condition"),
    "samples at an array": (lambda: model().sample(KEY, 3, np.ones(2)), "condition"),
    "samples outside": (lambda: model().sample(KEY, 3, 5.0), "outside"),
    "scores of words": (lambda: model().log_prob("x", 1.0), "x must"),
    "scores of numeric words": (lambda: model().log_prob([["1.0", "2.0"]], 1.0), "x must"),
    "scores of complex states": (lambda: model().log_prob(1j * X, 1.0), "x must"),
    "scores of ragged states": (lambda: model().log_prob([[1.0], [1.0, 2.0]], 1.0), "x must"),
    "scores of None": (lambda: model().condition_score(None, 1.0), "x must"),
    "scores of another shape": (lambda: model().log_prob(np.zeros((2, 3)), 1.0), "shape"),
    "an observation too many": (lambda: model().log_prob(X, 1.0, 1.0), "observation"),
    "an observation missing": (lambda: observing().sample(KEY, 3, 1.0), "observation"),
    "an observation of words": (lambda: observing().sample(KEY, 3, 1.0, "abc"), "observation"),
    "an observation of NaN": (lambda: observing().sample(KEY, 3, 1.0, [NAN, 0, 0]), "observation"),
    "an observation too long": (lambda: observing().log_prob(X, 1.0, np.zeros(4)), "observation"),
    # Sampling
    "weights of no model": (lambda: weighted_samples(None, known(), KEY, 3, 1.0), "model"),
    "weights of no target": (lambda: weighted_samples(model(), q, KEY, 3, 1.0), "target"),
    "weights of another target": (lambda: weighted_samples(model(), family(), KEY, 3, 1.0), "shape"),
    "a mean of a number": (lambda: weighted().mean(3.0), "function"),
    "a mean that fails": (lambda: weighted().mean(fails), "function"),
    "resampled none": (lambda: weighted().resample(KEY, 0), "n must"),
    "resampled with words": (lambda: weighted().resample("key", 3), "key"),
    "resampled without weights": (lambda: weighted()._replace(log_weight=jnp.full(8, NAN)).resample(KEY, 3), "weights"),
    "a chain of states": (lambda: metropolis(X, known(), KEY, 1.0), "proposed"),
    "a chain outside": (lambda: metropolis(weighted(), known(), KEY, 9.0), "outside"),
    "a chain of no key": (lambda: metropolis(weighted(), known(), 1, 1.0), "key"),
    "correlation of words": (lambda: integrated_autocorrelation("values"), "values"),
    "correlation of nothing": (lambda: integrated_autocorrelation(np.zeros(0)), "values"),
    "chains of another kernel": (lambda: MarkovChains(kernel=None), "kernel"),
    "one chain": (lambda: MarkovChains(chains=1), "chains"),
    "chains of no spacing": (lambda: MarkovChains(spacing=0), "spacing"),
    "chains that never mix": (lambda: MarkovChains(largest_rhat=0.5), "largest_rhat"),
    "chains of no target": (lambda: MarkovChains().sample(None, KEY, 3, 1.0), "target"),
    "chains of an observed target": (lambda: MarkovChains().sample(TwoMoons(), KEY, 3, 1.0), "observation"),
    "chains of half a sample": (lambda: MarkovChains().sample(known(), KEY, 0.5, 1.0), "n must"),
    "chains that observe a number": (lambda: MarkovChains().sample(known(), KEY, 3, 1.0, 7), "observables"),
    "chains that observe and fail": (lambda: MarkovChains().sample(known(), KEY, 3, 1.0, fails), "observables"),
    "a ladder of one rung": (lambda: ReplicaExchange(rungs=1), "rungs"),
    "a ladder that jumps in words": (lambda: ReplicaExchange(jumps="phi"), "jumps"),
    "a ladder nowhere": (lambda: ReplicaExchange().sample(known(), KEY, 3, (), X[0]), "at must"),
    "a ladder at a number": (lambda: ReplicaExchange().sample(known(), KEY, 3, 0.5, X[0]), "at must"),
    "a ladder from words": (lambda: ReplicaExchange().sample(known(), KEY, 3, (0.5,), "start"), "start"),
    "a ladder from NaN": (lambda: ReplicaExchange().sample(known(), KEY, 3, (0.5,), [NAN, 0]), "start"),
    # Evaluation
    "a bootstrap of nothing": (lambda: bootstrap([]), "values"),
    "a bootstrap of words": (lambda: bootstrap(["1.0"]), "values"),
    "a bootstrap of one set": (lambda: bootstrap(np.ones(3), sets=1), "sets"),
    "a bootstrap that fails": (lambda: bootstrap(np.ones(3), fails), "statistic"),
    "a likelihood of no states": (lambda: negative_log_likelihood(model(), X[:0], 1.0), "x must"),
    "a likelihood of no model": (lambda: negative_log_likelihood(q, X, 1.0), "model"),
    "a divergence of words": (lambda: forward_kl(model(), known(), "x", 1.0), "x must"),
    "a divergence outside": (lambda: forward_kl(model(), known(), X, 9.0), "outside"),
    "a divergence on no grid": (lambda: grid_kl(model(), known(), 1.0, 3.0, 1), "points"),
    "a divergence on no square": (lambda: grid_kl(model(), known(), 1.0, -3.0, 9), "extent"),
    "a curve of few points": (lambda: by_importance(model(), known(), KEY, reference=1.0, points=3), "points"),
    "a curve of half points": (lambda: by_integration(model(), known(), KEY, reference=1.0, points=5.5), "points"),
    "a curve of no samples": (lambda: by_importance(model(), known(), KEY, reference=1.0, samples=0), "must be"),
    "an integral of no samples": (lambda: by_integration(model(), known(), KEY, reference=1.0, samples=0), "samples"),
    "an integral of no key": (lambda: by_integration(model(), known(), 3, reference=1.0), "key"),
    "a curve from outside": (lambda: by_integration(model(), known(), KEY, reference=7.0), "outside"),
    "a curve from words": (lambda: by_importance(model(), known(), KEY, reference="T"), "reference"),
    "a curve beyond its end": (lambda: curve().at(3.0), "outside"),
    "a curve at words": (lambda: curve().at("1.0"), "condition"),
    "a curve at NaN": (lambda: curve().at(NAN), "condition"),
    "evidence without a prior": (lambda: evidence(model(), known(), KEY), "evidence"),
    "Bennett of nothing": (lambda: bennett([], []), "forward"),
    "Bennett of NaN": (lambda: bennett([NAN, 1.0], [1.0, 2.0]), "NaN"),
    "an integral of other lengths": (
        lambda: thermodynamic_integration(GRID, GRID, GRID[:3], GRID, 0.0),
        "one length",
    ),
    "an integral back to front": (
        lambda: thermodynamic_integration(GRID, GRID[::-1], GRID, GRID, 0.0),
        "increase",
    ),
    "an integral from elsewhere": (lambda: thermodynamic_integration(GRID, GRID, GRID, GRID, 5.0), "reference"),
    "ranks of no model": (lambda: ranks(None, fails, X, X, KEY, 4, 1.0), "model"),
    "ranks of no statistic": (lambda: ranks(observing(), 3, X, np.zeros((8, 3)), KEY, 4, 1.0), "statistic"),
    "ranks that fail": (lambda: ranks(observing(), fails, X, np.zeros((8, 3)), KEY, 4, 1.0), "statistic"),
    "ranks of no samples": (lambda: ranks(observing(), lambda x, y: x, X, np.zeros((8, 3)), KEY, 0, 1.0), "samples"),
    "ranks outside": (lambda: ranks(observing(), lambda x, y: x, X, np.zeros((8, 3)), KEY, 4, 9.0), "outside"),
    "coverage of no ranks": (lambda: coverage([]), "found"),
    "coverage of what are no ranks": (lambda: coverage([2.0, 3.0]), "ranks"),
    "coverage of one level": (lambda: coverage([0.5], levels=1), "levels"),
    "uniformity of words": (lambda: uniformity_error("ranks"), "found"),
    "a classifier of words": (lambda: c2st("one", "two", KEY), "one"),
    "a classifier of no folds": (lambda: c2st(X, X, KEY, folds=0), "folds"),
    "a classifier of 20": (lambda: c2st(X, X, KEY, network=20), "network"),
    "a classifier of NaN": (lambda: c2st(X * NAN, X, KEY), "finite"),
    "observables of no field": (lambda: observables(known(), X, 0.2), "target"),
    "observables at words": (lambda: observables(ScalarField(2), np.zeros((300, 2, 2)), "k"), "kappa"),
    "observables of another field": (lambda: observables(ScalarField(2), np.zeros((300, 4, 4)), 0.2), "x must"),
    "a jackknife of one block": (lambda: jackknife(np.ones((8, 2)), np.ones(8), np.sum, 1), "blocks"),
    "a jackknife of other weights": (lambda: jackknife(np.ones((8, 2)), np.ones(7), np.sum, 2), "weights"),
    "torsions of words": (lambda: histogram("phi", "psi"), "phi"),
    "torsions of other lengths": (lambda: histogram(np.zeros(3), np.zeros(4)), "psi"),
    "histograms of nothing": (lambda: histogram_kl(np.zeros((2, 2)), np.ones((2, 2))), "histograms"),
    "a floor of one simulation": (lambda: floor(np.ones((1, 2, 2)), 10), "parts"),
    # Data
    "data of a list": (lambda: make_problem(target(), [X]), "data"),
    "data of no target": (lambda: make_problem(q, {1.0: X}), "target"),
    "data of three": (lambda: told((X, X, X)), "tuple of 3"),
    "data of one": (lambda: told((X,)), "tuple of 1"),
    "data with observations": (lambda: told((X, X)), "without observations"),
    "complex data": (lambda: told(X + 0j), "real numbers"),
    "data of numeric words": (lambda: told([["1.0", "2.0"]]), "numbers"),
    "data of booleans": (lambda: told(X > 0), "numbers"),
    "data of objects": (lambda: told(X.astype(object)), "numbers"),
    "ragged data": (lambda: told([[1.0], [1.0, 2.0]]), "numbers"),
    "data of None": (lambda: told(None), "numbers"),
    "data beyond float32": (lambda: told(1e300 * X), "infinite"),
    "data of NaN": (lambda: told(NAN * X), "NaN"),
    "empty data": (lambda: told(X[:0]), "empty"),
    "data of another shape": (lambda: told(X[:, :1]), "shape"),
    "data at words": (lambda: check_data(target(), {"1.0": X}, "data"), "data condition"),
    "data at None": (lambda: check_data(target(), {None: X}, "data"), "data condition"),
    "data at True": (lambda: check_data(target(), {True: X}, "data"), "data condition"),
    "data twice": (lambda: check_data(target(), {1.0: X, 1.0 + 1e-9: X}, "data"), "twice"),
    "validation of words": (lambda: check_data(target(), {1.0: "x"}, "validation"), "validation"),
    "validation outside": (lambda: check_data(target(), {7.0: X}, "validation"), "outside"),
}
ACCEPTED = {
    "NumPy integers": lambda: model().sample(KEY, np.int64(3), 1.0).shape == (3, 2),
    "integers of JAX": lambda: model().sample(KEY, jnp.array(3), 1.0).shape == (3, 2),
    "a raw key": lambda: model().sample(jax.random.PRNGKey(0), 3, 1.0).shape == (3, 2),
    "a raw key in NumPy": lambda: model().sample(np.asarray(jax.random.PRNGKey(0)), 3, 1.0).shape == (3, 2),
    "conditions that are arrays": lambda: (
        Condition(np.array(0.5), jnp.array(2.0), boundary=np.array(1.0)) == Condition(0.5, 2.0, boundary=1.0)
    ),
    "samples at an array": lambda: model().sample(KEY, 3, np.array(1.0)).shape == (3, 2),
    "several boundary values": lambda: Condition(0.5, 2.0, boundary=np.array([1, 2])).boundary == (1.0, 2.0),
    "a condition of integers": lambda: C.check(np.int32(1)) == 1.0,
    "a shape of NumPy": lambda: Target(q, (np.int64(2),), C).shape == (2,),
    "angles in an array": lambda: target(angles=np.array([1])).angles == (1,),
    "bounds in an array": lambda: target(bounds=np.array([[0, 1], [-INF, INF]])).bounds == ((0.0, 1.0), None),
    "settings of NumPy": lambda: (
        trade.objectives.Gradient(conditions_per_step=np.int32(8), truncate=np.float32(4)).conditions_per_step == 8
    ),
    "an optimiser of NumPy": lambda: trade.Adam(np.float32(0.5)).learning_rate == 0.5,
    "no clipping": lambda: trade.Adam(clip=INF).clip == INF,
    "terms in a list": lambda: trade.objectives.Sum([trade.objectives.ForwardKL()], [2]).weights == (2.0,),
    "a penalty of one's own": lambda: trade.objectives.Gradient(penalty=lambda r: r**4).penalty is not None,
    "an observation of integers": lambda: observing().sample(KEY, 3, 1.0, [1, 2, 3]).shape == (3, 2),
    "a scored list": lambda: model().log_prob([[1, 2]], 1).shape == (1,),
    "data of integers": lambda: told(np.ones((3, 2), int))[1.0][0].dtype == jnp.result_type(float),
    "data of float16": lambda: told(X.astype(np.float16))[1.0][0].shape == X.shape,
    "data of bfloat16": lambda: told(jnp.asarray(X, jnp.bfloat16))[1.0][0].shape == X.shape,
    "data in lists": lambda: told(X.tolist())[1.0][0].shape == X.shape,
    "data at an integer": lambda: make_problem(target(), {1: X}).condition.boundary == (1.0,),
    "a sampler's data": lambda: sampled(known(), np.int64(4))[1.0].shape == (4, 2),
    "no sampler": lambda: sampled(target()) is None,
    "a rounded end of a curve": lambda: curve().at(np.float32(2.0))[0] == 0.0,
    "a latent as it is": lambda: spline(latent=Normal()).latent == Normal(),
    "keys under vmap": lambda: (
        jax.vmap(lambda k: model().sample(k, 2, 1.0))(jax.random.split(KEY, 3)).shape == (3, 2, 2)
    ),
    "observations under vmap": lambda: (
        jax.vmap(lambda y: observing().log_prob(X, 1.0, y))(jnp.zeros((2, 3))).shape == (2, 8)
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_wrong_input_gets_one_sentence(what):
    call, word = REFUSED[what]
    with pytest.raises(TradeError) as error:
        call()
    text = str(error.value)
    assert word in text
    assert "\n" not in text and len(text) <= 300 and text.endswith(".")


@pytest.mark.parametrize("what", [k for k in REFUSED if "fail" in k])
def test_what_a_function_raised_is_kept_as_the_cause(what):
    with pytest.raises(TradeError) as error:
        REFUSED[what][0]()
    assert isinstance(error.value.__cause__, RuntimeError)
    assert "no such thing today" in str(error.value)


@pytest.mark.parametrize("what", ACCEPTED)
def test_good_input_is_taken(what):
    assert ACCEPTED[what]()


def test_the_table_is_long():
    assert len(REFUSED) >= 220
