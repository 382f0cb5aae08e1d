"""Several conditions at once: points, charts, directions, what a target says of them, log Z over a region, a run."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flowjax.distributions import AbstractDistribution
from small_problems import KEY, clock_at, precision, problem_of

import trade
from trade import Adam, Axes, Condition, Schedule, Target, Trade, TradeError
from trade.config import from_json, to_json
from trade.evaluation import along_path
from trade.evaluation.surface import log_partition_gradient, surface_by_importance, surface_by_integration
from trade.model import Model
from trade.objectives import CausalGrid, EnergyFree, ForwardKL, Gradient, GridExpectation, GrowingInterval, ReverseKL
from trade.objectives.condition_samplers import Widening
from trade.targets import PowerPosterior, ScalarField
from trade.targets.molecule import Molecule
from trade.targets.molecule import alanine_dipeptide as alanine

T, H = Condition(0.5, 2.0), Condition(-1.0, 1.0, scale="linear")
PLANE = Axes({"T": T, "h": H}, boundary=(1.0, 0.0))


def log_density(x, c):
    """A Gaussian in a field: N(h, T)."""
    return -(0.5 * (x**2).sum() - c.h * x.sum()) / c.T


def log_z(c, d=1):
    temperature, field = c
    return d * (0.5 * np.log(2.0 * np.pi * temperature) + 0.5 * field**2 / temperature)


def sample(key, n, c):
    return c.h + jnp.sqrt(c.T) * jax.random.normal(key, (n, 1))


TARGET = Target(log_density, (1,), PLANE, sampler=sample, log_partition=log_z)


class Exact(AbstractDistribution):
    """N(h, T) of the chart coordinates (log T / log 2, h), with a rate and a slope that can be learned."""

    rate: jax.Array
    slope: jax.Array
    shape: tuple[int, ...] = eqx.field(static=True)
    cond_shape: tuple[int, ...] | None = eqx.field(static=True)

    def __init__(self, rate=0.34657359, slope=1.0):
        self.rate, self.slope = jnp.asarray(rate), jnp.asarray(slope)
        self.shape, self.cond_shape = (1,), (2,)

    def _log_prob(self, x, condition=None):
        return jax.scipy.stats.norm.logpdf(x, self.slope * condition[1], jnp.exp(self.rate * condition[0])).sum()

    def _sample(self, key, condition=None):
        return self.slope * condition[1] + jnp.exp(self.rate * condition[0]) * jax.random.normal(key, self.shape)


MODEL = Model(Exact(), PLANE)
ROUGH = Model(Exact(0.3, 0.9), PLANE)


# --- Points and charts


def test_a_point_is_given_by_name_or_by_position():
    assert PLANE.boundary == ((1.0, 0.0),)
    assert PLANE.check({"h": 0.5, "T": 2}) == PLANE.check((2, 0.5)) == PLANE.check(np.array([2.0, 0.5])) == (2.0, 0.5)
    assert PLANE.check_all((2, 0.5)) == ((2.0, 0.5),)
    assert PLANE.check_all([{"T": 1, "h": 0}, (2, 0.5)]) == ((1.0, 0.0), (2.0, 0.5))
    assert PLANE.show((2.0, 0.5)) == "T = 2, h = 0.5"
    assert PLANE.show_all([(2.0, 0.5), (1.0, 0.0)]) == "T = 2, h = 0.5; T = 1, h = 0"
    assert PLANE.show_range() == "T from 0.5 to 2, h from -1 to 1"
    assert Axes({"T": T, "h": H}, boundary=[{"T": 2, "h": 1}, (0.5, 0)]).boundary == ((0.5, 0.0), (2.0, 1.0))
    assert PLANE["T"] == T


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_chart_is_the_product_of_the_charts(dtype):
    with precision(dtype):
        c = np.array([[0.5, -1.0], [1.0, 0.0], [2.0, 1.0], [0.7, 0.3]])
        u = PLANE.chart(c)
        expected = np.stack([T.chart(c[:, 0]), H.chart(c[:, 1])], axis=1)
        np.testing.assert_array_equal(u, expected)
        np.testing.assert_allclose(PLANE.unchart(u), c, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(PLANE.boundary_u, [[0.0, 0.0]], atol=1e-12)
        assert PLANE.nearest_boundary(u).shape == (4,)


def test_grids_have_the_corners_the_centre_and_the_boundary_points():
    assert PLANE.grid(3).shape == (9, 2)
    assert PLANE.grid((2, 4)).shape == (8, 2)
    for points in (2, 9, 17):
        found = {tuple(c) for c in np.round(PLANE.spread(points), 6)}
        assert {(0.5, -1.0), (0.5, 1.0), (2.0, -1.0), (2.0, 1.0), (1.0, 0.0)} <= found
    near = Axes({"T": T, "h": H}, boundary=(1.01, 0.01)).spread(9)
    assert (1.0, 0.0) not in {tuple(c) for c in np.round(near, 6)}  # the boundary point stands in its place


def test_directions_lie_on_the_sphere_in_every_orthant():
    v = np.asarray(PLANE.directions(KEY, 400))
    np.testing.assert_allclose(np.linalg.norm(v, axis=1), 1.0, rtol=1e-5)
    assert np.abs(v.mean(axis=0)).max() < 0.15
    np.testing.assert_allclose((v[:, :, None] * v[:, None]).mean(axis=0), 0.5 * np.eye(2), atol=0.1)
    np.testing.assert_array_equal(T.directions(KEY, 3), np.ones(3))


def test_it_is_saved_as_plain_data():
    assert from_json(to_json(PLANE)) == PLANE
    assert hash(from_json(to_json(PLANE))) == hash(PLANE)


WRONG = {
    "no mapping": (lambda: Axes(3), "conditions by name"),
    "no condition": (lambda: Axes({"T": 3}), "Axis T must be a trade.Condition"),
    "no name": (lambda: Axes({"": T}), "A name of Axes"),
    "a keyword": (lambda: Axes({"lambda": T}), "A name of Axes"),
    "twice": (lambda: Axes([("T", T), ("T", H)]), "names that differ"),
    "none": (lambda: Axes({}), "one to 6"),
    "too many": (lambda: Axes({f"c{i}": H for i in range(7)}), "one to 6"),
    "boundary outside": (lambda: Axes({"T": T, "h": H}, boundary=(3.0, 0.0)), "boundary point's T 3 lies outside"),
    "boundary too short": (lambda: Axes({"T": T, "h": H}, boundary=(1.0,)), r"in the order \(T, h\)"),
    "boundary a word": (lambda: Axes({"T": T, "h": H}, boundary="here"), "boundary must be a point"),
    "boundary twice": (lambda: Axes({"T": T, "h": H}, boundary=[(1, 0), (1, 1e-6)]), "too close"),
    "unknown name": (lambda: PLANE.check({"T": 1.0, "P": 0.0}), "unknown 'P'"),
    "missing name": (lambda: PLANE.check({"T": 1.0}), "no 'h'"),
    "one number": (lambda: PLANE.check(1.0), "a mapping, or numbers in the order"),
    "three numbers": (lambda: PLANE.check((1.0, 0.0, 0.0)), "a mapping, or numbers in the order"),
    "a word": (lambda: PLANE.check({"T": "hot", "h": 0.0}), "condition's T must be a number"),
    "outside": (lambda: PLANE.check((1.0, 2.0)), "condition's h 2 lies outside"),
    "the same twice": (lambda: PLANE.check_all([(1, 0), (1.0, 0.0)]), "several that differ"),
    "no points": (lambda: PLANE.check_all(3.0), "one point, or several"),
    "chart of a number": (lambda: PLANE.chart(1.0), "2 entries along its last axis"),
    "points for each": (lambda: PLANE.grid((2, 3, 4)), "one for each of 2 axes"),
    "a grid on one axis": (lambda: CausalGrid(5).init(problem_of(TARGET)), "CausalGrid is a grid on one axis"),
    "an expectation": (lambda: GridExpectation(5).init(problem_of(TARGET)), "GridExpectation is a grid on one axis"),
    "other names": (lambda: ScalarField(4, condition=PLANE), "names kappa, coupling, got T, h"),
    "other powers": (lambda: PowerPosterior(jnp.sum, jnp.sum, shape=(1,), condition=PLANE), "names alpha, beta"),
    "a curve": (lambda: trade.evaluation.free_energy.by_importance(MODEL, TARGET, KEY, reference=1.0), "one axis"),
    "a surface of one": (
        lambda: along_path(_of_one_axis(), Target(lambda x, c: -(x**2).sum() / c, (1,), T), KEY, [1.0, 2.0]),
        "several axes",
    ),
    "a path of one": (lambda: along_path(MODEL, TARGET, KEY, [(1.0, 0.0)]), "two points or more"),
    "a flow of one": (lambda: Model(_flow_of_one(), PLANE), r"shape \(2,\)"),
    "a dependence on one axis": (
        lambda: trade.fit(Target(lambda x, c: -(x**2).sum() / c.T, (1,), PLANE), {(1, 0): np.eye(9, 1)}),
        "dependence of log_density on h is constant",
    ),
    "data at a number": (lambda: trade.fit(TARGET, {1.0: np.ones((9, 1))}), "data condition must be a mapping"),
    "data elsewhere": (lambda: trade.fit(TARGET, {(1.0, 1.0): np.ones((9, 1))}), "no boundary value"),
    "a latent that is scaled": (
        lambda: trade.flows.SplineFlow((1,), PLANE, latent=trade.flows.PowerScaled()).build(KEY),
        "one axis for a PowerScaled latent",
    ),
}


def _flow_of_one():
    from small_problems import LinearGaussian

    return LinearGaussian()


def _of_one_axis():
    return Model(_flow_of_one(), T)


@pytest.mark.parametrize("case", WRONG)
def test_wrong_input_gets_one_sentence(case):
    call, message = WRONG[case]
    with pytest.raises(TradeError, match=message) as error:
        call()
    assert "\n" not in str(error.value)


# --- What a target says of several axes


def derivatives_agree(target, x, c, rtol=1e-6):
    """The derivative by a formula, along a direction, and the automatic one."""
    automatic = jax.grad(lambda t: target.log_density(x, t))(c)
    np.testing.assert_allclose(target.condition_derivative(x, c), automatic, rtol=rtol)
    u, direction = target.condition.chart(c), jnp.array([0.6, -0.8])
    expected = jax.jvp(lambda v: target.log_density_at(x, v), (u,), (direction,))[1]
    np.testing.assert_allclose(target.score(x, u, None, direction), expected, rtol=10 * rtol)


def test_derivatives_along_a_direction_are_those_of_the_log_density():
    with precision(np.float64):
        x = jnp.array([0.7])
        derivatives_agree(TARGET, x, jnp.array([0.8, 0.4]))
        given = Target(
            log_density,
            (1,),
            PLANE,
            condition_derivative=lambda x, c: jnp.stack([(0.5 * (x**2).sum() - c.h * x.sum()) / c.T**2, x.sum() / c.T]),
        )
        derivatives_agree(given, x, jnp.array([0.8, 0.4]))
        couplings = Axes({"coupling": Condition(0.015, 0.03), "kappa": Condition(0.22, 0.32)}, boundary=(0.02, 0.25))
        field = ScalarField(4, condition=couplings)
        phi = jax.random.normal(KEY, (4, 4))
        derivatives_agree(field, phi, jnp.array([0.02, 0.27]))
        same = ScalarField(4, 0.02)
        np.testing.assert_allclose(field.action(phi, jnp.array([0.02, 0.27])), same.action(phi, 0.27), rtol=1e-12)
        np.testing.assert_allclose(field.drift(phi, jnp.array([0.02, 0.27])), same.drift(phi, 0.27), rtol=1e-12)
        powers = Axes({"alpha": Condition(0.5, 2.0), "beta": Condition(0.5, 2.0)}, boundary=(1.0, 1.0))
        posterior = PowerPosterior(
            lambda v: -0.5 * (v**2).sum(), lambda v: -((v - 1.0) ** 2).sum(), shape=(1,), condition=powers
        )
        derivatives_agree(posterior, x, jnp.array([0.8, 1.4]))


def test_a_molecule_has_a_temperature_and_a_scaled_torsion():
    with precision(np.float64):
        field = alanine.force_field()
        part = field.torsions_about(4, 6, 8, 14)  # φ
        axes = Axes({"T": Condition(300.0, 600.0), "scale": Condition(0.5, 1.5)}, boundary=(600.0, 1.0))
        molecule = Molecule(field, alanine.Z_MATRIX, axes, part)
        plain = alanine.AlanineDipeptide()
        z = plain.minimum() + 0.05
        c = jnp.array([400.0, 1.0])
        np.testing.assert_allclose(molecule.log_density(z, c), plain.log_density(z, 400.0), rtol=1e-12)
        derivatives_agree(molecule, z, jnp.array([400.0, 0.7]), rtol=1e-8)
        x = plain.to_positions(z)
        assert {k for k, v in part.parts(x).items() if abs(float(v)) > 1e-9} == {"torsions"}
        charged, without = field.charges_only(), field.parts(x)
        assert abs(float(charged(x))) > 1.0
        assert float(charged.parts(x)["pairs"]) != pytest.approx(float(without["pairs"]))
        rebuilt = molecule.rebuild(plain.log_density(z, 600.0), z, c, jnp.array([600.0, 1.0]))
        np.testing.assert_allclose(rebuilt, plain.log_density(z, 400.0), rtol=1e-10)
        scaled = molecule.rebuild(plain.log_density(z, 600.0), z, jnp.array([400.0, 0.6]), jnp.array([600.0, 1.0]))
        np.testing.assert_allclose(scaled, molecule.log_density(z, jnp.array([400.0, 0.6])), rtol=1e-10)
    with pytest.raises(TradeError, match="belong together"):
        Molecule(field, alanine.Z_MATRIX, axes)
    with pytest.raises(TradeError, match="no torsion of the atoms"):
        field.torsions_about(0, 1, 2, 3)


# --- The residual


def gradient_loss(flow, **options):
    problem = problem_of(TARGET, sample(KEY, 256, PLANE.point((1.0, 0.0))))
    options = {"conditions": GrowingInterval(0.0), "reweighted": 0.0, **options}
    term = Gradient(conditions_per_step=16, points_per_condition=512, **options)
    loss = eqx.filter_jit(lambda f, k: term.loss(f, term.init(k, problem), problem, clock_at(50), k)[0])
    return float(np.mean([loss(flow, jax.random.fold_in(KEY, i)) for i in range(8)]))


def test_the_residual_vanishes_in_every_direction_for_the_exact_density_alone():
    exact = gradient_loss(Exact())  # what is left is the noise of Ē
    assert exact < 2e-3
    assert gradient_loss(Exact(0.1)) > 10.0 * exact  # wrong along T
    assert gradient_loss(Exact(slope=0.5)) > 10.0 * exact  # wrong along h
    energy_free = Target(log_density, (1,), PLANE, rebuild=lambda p0, x, c, c0, y: p0 / c.T + c.h * x.sum() / c.T)
    problem = problem_of(energy_free)
    log_q, slope = EnergyFree().evaluate(
        Exact(), problem, jnp.ones(1), jnp.array([0.3, 0.2]), None, jnp.array([0.0, 1.0])
    )
    c = PLANE.unchart(jnp.array([0.3, 0.2]))
    np.testing.assert_allclose(slope, 1.0 / c[0], rtol=1e-5)
    assert np.isfinite(log_q)


@pytest.mark.parametrize("sampler", [Widening(), GrowingInterval(), GrowingInterval(0.0)])
def test_samplers_of_the_paper_stay_in_the_box_and_reach_its_ends(sampler):
    problem = problem_of(TARGET)
    for step in (0, 50, 100):
        u = np.asarray(sampler.sample((), KEY, 2000, problem, clock_at(step, 100)))
        assert u.shape == (2000, 2)
        assert np.abs(u).max() <= 1.0
    assert np.all(u.max(axis=0) > 0.9) and np.all(u.min(axis=0) < -0.9)


def test_reverse_kl_trains_at_points():
    problem, term = problem_of(TARGET), ReverseKL(at=((1.0, 0.0), (2.0, 1.0)), batch=64)
    value, outcome = term.loss(Exact(), term.init(KEY, problem), problem, clock_at(), KEY)
    expected = -0.5 * (log_z((1.0, 0.0)) + log_z((2.0, 1.0)))
    np.testing.assert_allclose(value, expected, atol=1e-4)
    assert outcome.suspect.shape == (2,)


# --- log Z over the region


def test_surfaces_of_log_z_agree_with_the_formula():
    reference = (1.0, 0.0)
    for make, samples in ((surface_by_importance, 2000), (surface_by_integration, 2000)):
        found = make(ROUGH, TARGET, KEY, reference=reference, points=5, samples=samples)
        exact = np.vectorize(lambda t, h: log_z((t, h)) - log_z(reference))(*np.moveaxis(found.c, -1, 0))
        away = np.abs(found.log_z - exact)
        assert (
            found.log_z[tuple(np.argmin(np.abs(line - r)) for line, r in zip(found.lines, reference, strict=True))] == 0
        )
        assert away.max() < 0.1
        assert np.mean(away <= 2.0 * found.error + 1e-9) > 0.85
        value, error = found.at({"T": 0.9, "h": 0.3})
        assert abs(value - log_z((0.9, 0.3)) + log_z(reference)) < 0.05
        assert error < 0.1


def test_paths_have_the_same_ends_whichever_way_they_go():
    ways = [[(0.5, -1.0), (2.0, 1.0)], [(0.5, -1.0), (0.5, 1.0), (2.0, 1.0)], [(0.5, -1.0), (2.0, -1.0), (2.0, 1.0)]]
    found = [along_path(ROUGH, TARGET, jax.random.fold_in(KEY, i), way) for i, way in enumerate(ways)]
    exact = log_z((2.0, 1.0)) - log_z((0.5, -1.0))
    for f in found:
        assert abs(f.value - exact) < 4.0 * f.error + 1e-3
    loop = along_path(ROUGH, TARGET, KEY, [(1.0, 0.0), (2.0, 0.5), (0.5, 1.0), (1.0, 0.0)])
    assert abs(loop.value) < 4.0 * loop.error + 1e-3


def test_derivatives_of_log_z_are_means_of_the_target():
    found = log_partition_gradient(ROUGH, TARGET, KEY, {"T": 1.5, "h": 0.5}, samples=20_000)
    exact = {"T": 0.5 / 1.5 - 0.5 * 0.5**2 / 1.5**2, "h": 0.5 / 1.5}
    for name, value in exact.items():
        assert abs(found[name].value - value) < 4.0 * found[name].error
    one = log_partition_gradient(_of_one_axis(), Target(lambda x, c: -(x**2).sum() / c, (1,), T), KEY, 1.0)
    assert set(one) == {"c"}


def test_the_gradient_of_the_model_is_given_in_the_units_of_the_axes():
    x, c = jnp.array([[0.3], [1.2]]), (1.3, 0.4)
    found = MODEL.condition_score(x, c)
    with precision(np.float64):
        exact = jax.vmap(jax.grad(lambda t, v: jax.scipy.stats.norm.logpdf(v, t[1], jnp.sqrt(t[0]))[0]), (None, 0))(
            jnp.array(c), jnp.asarray(x, float)
        )
    np.testing.assert_allclose(found, exact, rtol=1e-4)


# --- A run


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    place = tmp_path_factory.mktemp("axes") / "run"
    data = {(1.0, 0.0): np.random.default_rng(0).standard_normal((4000, 1))}
    objective = Trade(Gradient(conditions_per_step=8, points_per_condition=32), ForwardKL(64))
    found = trade.fit(
        TARGET,
        data,
        flow=lambda key: Exact(0.0, 0.0),
        objective=objective,
        steps=400,
        optimiser=Adam(0.05),
        schedule=Schedule(report=20, evaluate=50, checkpoint=100),
        evaluation_samples=200,
        out=place,
        progress=False,
    )
    return found, place


def test_the_whole_plane_is_reached_and_right(run):
    found, place = run
    assert found.verdict.level == "good", found.verdict
    assert found.verdict.axes == ("T", "h")
    assert found.verdict.conditions.shape[1] == 2
    assert "at T = " in found.verdict.summary
    assert max(row["reached"][0] for row in found.metrics if "reached" in row) == 1.0
    np.testing.assert_allclose([found.model.flow.rate, found.model.flow.slope], [0.5 * np.log(2.0), 1.0], atol=0.05)
    surface = found.log_partition(points=5, samples=2000)
    assert surface.log_z.shape == (5, 5)
    again = trade.load(place, flow=Exact(), target=TARGET)
    assert again.model.condition == PLANE
    assert again.verdict.usable == found.verdict.usable
    x = again.weighted(KEY, 100, {"T": 2.0, "h": 1.0})
    assert x.ess > 0.9
    with pytest.raises(TradeError, match="condition over"):
        trade.load(
            place,
            flow=Exact(),
            target=Target(log_density, (1,), Axes({"T": T, "h": Condition(-1.0, 2.0, scale="linear")})),
        )


def test_samples_have_their_axes(run):
    found, _ = run
    tree = found.to_arviz([(1.0, 0.0), {"T": 2.0, "h": 1.0}], n=20)
    posterior = tree["posterior"]
    np.testing.assert_allclose(posterior["T"], [1.0, 2.0])
    np.testing.assert_allclose(posterior["h"], [0.0, 1.0])
    assert found.reduced_potentials([(1.0, 0.0), (2.0, 1.0)], n=10).u_kn.shape == (4, 20)


def test_a_region_that_cannot_be_followed_is_said_to_be_so():
    """A flow that does not see h: good near h = 0, and not at the far ends when the field is strong."""
    strong = Axes({"T": T, "h": Condition(-40.0, 40.0, scale="linear")}, boundary=(1.0, 0.0))
    target = Target(log_density, (1,), strong)
    verdict = trade.evaluation.judge(Model(Exact(slope=0.0), strong), target, trade.evaluation.Witness())
    assert verdict.level == "usable with weights"
    assert 0 < len(verdict.usable) < len(verdict.table["ess"])
    assert all(h == 0.0 for _, h in verdict.usable)
    assert "of" in verdict.summary and "conditions only" in verdict.summary
    assert any("does not follow" in reason for reason in verdict.reasons)


def test_a_step_that_is_not_finite_is_blamed_on_a_point():
    broken = Target(lambda x, c: jnp.where(c.T > 1.2, jnp.nan, log_density(x, c)), (1,), PLANE)
    data = {(1.0, 0.0): np.random.default_rng(0).standard_normal((500, 1))}
    with pytest.raises((trade.NonFiniteError, TradeError), match="T = "):
        trade.fit(
            broken,
            data,
            flow=Exact(),
            steps=200,
            objective=Trade(Gradient(GrowingInterval(0.0), points_per_condition=16), ForwardKL(16)),
            schedule=Schedule(patience=5),
            evaluation_samples=50,
            progress=False,
        )
