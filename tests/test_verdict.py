"""A verdict on every run: useless ones are recognised, each by its reason, and good ones raise no alarm."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import genpareto
from small_problems import LinearGaussian, data_at, family, noisy, precision

import trade
from trade import Condition, Model, NonFiniteError, Target, Trade, TradeError
from trade.evaluation import Verdict
from trade.evaluation.belonging import check_data_belongs, check_slope
from trade.evaluation.examination import GOOD_ESS, _of_weights, _worst_quality, can_be_used, judge
from trade.evaluation.modes import unknown_modes
from trade.evaluation.verdict import Witness
from trade.evaluation.weights import LARGEST_KHAT, Quality, quality
from trade.flows import MLP, SplineFlow
from trade.objectives import ForwardKL, Gradient
from trade.targets import MultiWell, PowerPosterior, TwoMoons
from trade.targets.two_moons import pairs

RANDOM = np.random.default_rng(0)
MODES = np.array([[4.0, 4.0], [4.0, -4.0], [-4.0, 4.0], [-4.0, -4.0]])


def gaussian(x, c):
    return -(x**2).sum() / (2.0 * c)


def well(x, c):
    return -(x**4 - 4.0 * x**2).sum() / c


def four_modes(x, c):
    return jax.nn.logsumexp(-0.5 * ((x - MODES) ** 2).sum(axis=1)) / c


def trained(log_density, data, low=0.5, high=1.0, steps=150, flow=None):
    """A small flow and a short run of the default objective, on two-dimensional states."""
    target = Target(log_density, (2,), Condition(low, high, boundary=1.0))
    flow = flow or SplineFlow((2,), target.condition, blocks=2, bins=8, adapter=8, whiten=True, network=MLP(16, 1))
    objective = Trade(Gradient(conditions_per_step=8, points_per_condition=16), ForwardKL(128))
    return trade.fit(target, {1.0: data}, flow=flow, objective=objective, steps=steps, progress=False)


def normal(n=4000):
    return RANDOM.normal(size=(n, 2))


def test_each_seed_is_judged_by_what_happened_to_itself():
    """One seed that was losing its boundary says nothing of another."""
    target = family()
    exact = Model(LinearGaussian(log_scale=-0.5 * np.log(2.0), rate=0.5 * np.log(2.0)), target.condition)
    rows = [{"step": 10, "skipped": [0, 5]}, {"step": 10, "ess": 1.0}]
    parts = trade.run.skipped(rows, 2)
    assert parts == [0.0, 0.5]
    witnesses = (Witness(skipped=parts[0]), Witness(skipped=parts[1], damped=3))
    one, two = (str(v) for v in trade.Run(target, (exact,) * 2, (exact,) * 2, witnesses=witnesses).verdicts)
    assert "lost 3 times" in two and "50% of the steps" in two
    assert "lost" not in one and "skipped" not in one


# --- The useless kinds


def check_useless(run, *words):
    assert run.verdict.level == "not usable"
    text = str(run.verdict)
    for word in words:
        assert word in text, text
    assert run.verdict.advice


def test_data_of_another_temperature():
    run = trained(gaussian, np.sqrt(2.0) * normal(), flow=LinearGaussian(d=2))
    check_useless(run, "do not belong to the density", "where -2 is expected (-", "σ", "condition the data")


def test_a_wrong_sign():
    """Of a density that then has no end either; where even the training fails, the error says so."""
    said, simple = "do not belong to the density", LinearGaussian(d=2)
    check_useless(trained(lambda x, c: -gaussian(x, c), normal(), flow=simple), said, "sign of log q")
    samples = MultiWell(d=2).sample(jax.random.key(0), 4000, 1.0)
    try:
        check_useless(trained(lambda x, c: -well(x, c), samples, flow=simple), said)
    except NonFiniteError as error:
        assert said in str(error)


def test_a_boundary_that_was_destroyed():
    """The data are right and were once learned; the model is not what they say any more."""
    target = family(d=2)
    model = Model(LinearGaussian(mean=3.0, log_scale=-1.0, d=2), target.condition)
    x = jnp.asarray(data_at(1.0, n=2000, d=2), float)
    verdict = judge(model, target, Witness(((x, None),)))
    assert verdict.level == "not usable"
    assert "Even at the boundary" in str(verdict)
    assert "lie where the model has next to no states" in str(verdict)


def test_tails_too_heavy_for_the_flow():
    """Near the boundary weights mend it; the whole range they do not."""
    data = RANDOM.standard_cauchy(size=(4000, 2))
    run = trained(lambda x, c: -c * jnp.log1p(x**2).sum(), data, low=0.8, high=3.0)
    assert run.verdict.level != "good"
    assert (0.8, 3.0) not in run.verdict.usable
    assert "does not follow" in str(run.verdict)
    assert "Pareto k̂" in str(run.verdict)


def test_an_end_that_is_out_of_reach():
    run = trained(gaussian, normal(), low=1e-5, steps=60)
    assert run.verdict.level == "usable with weights"
    ((low, high),) = run.verdict.usable
    assert 1e-5 < low < high == 1.0
    assert "only; smallest" in str(run.verdict)
    assert "does not follow from c = 1e-05" in str(run.verdict)


def test_one_mode_of_several():
    """Within its mode the model is right, and its ESS says nothing."""
    run = trained(four_modes, MODES[0] + normal(), steps=300, flow=LinearGaussian(4.0, d=2))
    check_useless(run, "has a mode near (", "4", "in which the model has no states", "and 2 more", "all modes")


def test_one_sample():
    check_useless(trained(gaussian, normal(1), flow=LinearGaussian(d=2)), "one single state")


def test_a_density_that_is_zero_at_half_the_data():
    run = trained(lambda x, c: jnp.where(x[0] > 0, gaussian(x, c), -jnp.inf), normal(), flow=LinearGaussian(d=2))
    check_useless(run, "not finite at", "% of the data")
    with pytest.raises(TradeError, match="log density is not finite at any"):
        trained(lambda x, c: jnp.where(x[0] > 99, gaussian(x, c), -jnp.inf), normal(), flow=LinearGaussian(d=2))


def test_an_honest_run_is_good_and_its_verdict_survives_saving(tmp_path):
    run = trained(well, MultiWell(d=2).sample(jax.random.key(0), 8000, 1.0), steps=500)
    assert run.verdict.level in ("good", "usable with weights")
    assert run.verdict.usable == ((0.5, 1.0),)
    assert not any("belong" in r or "has a mode" in r for r in run.verdict.reasons)
    run.save(tmp_path / "run")
    loaded = trade.load(tmp_path / "run")
    assert loaded.verdict == run.verdict
    again = trade.load(tmp_path / "run", target=run.target).examined()
    assert again.verdict.level in ("good", "usable with weights")


# --- Its parts


def exact():
    return Model(LinearGaussian(rate=0.5 * np.log(2.0), log_scale=-0.5 * np.log(2.0), d=2), family(d=2).condition)


def test_an_exact_model_is_good():
    """N(0, c) in the chart of [1/4, 1]: no reason, no advice, ESS of one."""
    verdict = judge(exact(), family(d=2), Witness(((jnp.asarray(data_at(1.0, n=2000, d=2), float), None),)))
    assert verdict.level == "good"
    assert verdict.reasons == ()
    assert min(verdict.table["ess"]) > 0.999
    assert str(verdict).startswith("Verdict: good; smallest ESS 100.0%")


def test_a_boundary_value_beside_a_condition_of_the_grid_is_no_alarm():
    """The middle of this range is one but for six digits: two routes to log Z once differed by a nat there."""
    target = family(0.16238, 6.15848, d=2)
    spread = target.condition.slope
    middle = 0.5 * (np.log(0.16238) + np.log(6.15848))
    model = Model(LinearGaussian(log_scale=0.5 * middle, rate=0.5 * spread, d=2), target.condition)
    verdict = judge(model, target, Witness())
    assert np.min(np.diff(np.log(verdict.table["c"]))) > 0.01
    assert 1.0 in verdict.table["c"]
    assert (verdict.level, verdict.reasons) == ("good", ())


def test_without_a_density_there_is_no_check_and_it_says_so():
    target = PowerPosterior(lambda x: -0.5 * (x**2).sum(), shape=(2,))
    verdict = judge(Model(LinearGaussian(d=2), target.condition), target, Witness())
    assert verdict.level == "not checked"
    assert "nothing can be checked" in str(verdict)


def test_skipped_steps_are_said():
    verdict = judge(exact(), family(d=2), Witness(skipped=0.25))
    assert verdict.level == "usable with weights"
    assert "25% of the steps were skipped" in str(verdict)


def test_a_verdict_is_plain_data():
    verdict = judge(exact(), family(d=2), Witness())
    assert Verdict.from_json(verdict.to_json()) == verdict
    bad = Verdict("not usable", (), ("why",), ("what",), {"c": [1.0], "log_z_error": [np.inf]})
    assert Verdict.from_json(bad.to_json()).table["log_z_error"] == [np.inf]


@pytest.mark.parametrize("d", [1, 3, 20])
def test_honest_data_belong(d):
    for seed in range(5):
        x = jnp.asarray(data_at(1.0, n=4000, d=d, seed=seed), float)
        assert check_data_belongs(family(d=d), 1.0, x) == ()


HONEST = {
    "a box": (lambda x, c: (2 * jnp.log(x) + 3 * jnp.log1p(-x)).sum() / c, "beta", ((0.0, 1.0),)),
    "a box, flat": (lambda x, c: c * x.sum() * 0.0, "uniform", ((0.0, 1.0),)),
    "a half line": (lambda x, c: -x.sum() / c, "exponential", ((0.0, None),)),
    "the other half line": (lambda x, c: x.sum() / c, "mirrored", ((None, 0.0),)),
}


@pytest.mark.parametrize("name", HONEST)
def test_bounded_data_belong_and_wrong_ones_do_not(name):
    """With a field that vanishes at the boundaries; x - m would have a boundary term there."""
    log_density, law, bounds = HONEST[name]
    rng = np.random.default_rng(1)
    x = {
        "beta": lambda: rng.beta(3.0, 4.0, (4000, 1)),
        "uniform": lambda: rng.uniform(size=(4000, 1)),
        "exponential": lambda: rng.exponential(size=(4000, 1)),
        "mirrored": lambda: -rng.exponential(size=(4000, 1)),
    }[law]()
    target = Target(log_density, (1,), Condition(0.5, 2.0, boundary=1.0), bounds=bounds)
    assert check_data_belongs(target, 1.0, jnp.asarray(x, float)) == ()
    worse = np.sign(x) * np.abs(x) ** 2  # another law on the same support
    found = check_data_belongs(target, 1.0, jnp.asarray(worse, float))
    assert [f.severity for f in found] == ["fatal"]


EDGED = {
    "a disc": lambda x, c: jnp.where(jnp.sum(x**2) < 1.0, 0.0 * c, -jnp.inf),
    "a step": lambda x, c: jnp.where(jnp.sum(x**2) < 1.0, 0.0 * c, -40.0 - jnp.sum(x**2)),
    "no number outside": lambda x, c: 0.0 * c * jnp.sqrt(1.0 - jnp.sum(x**2)),
}


@pytest.mark.parametrize("name", EDGED)
def test_edges_that_are_no_bounds_are_said_and_no_alarm(name):
    """On a disc E[x·∇ log q] is zero and not -2: Stein's identity has a term of the edge, which is not known."""
    x = np.random.default_rng(0).standard_normal((4000, 2))
    x *= (np.random.default_rng(1).uniform(size=4000) ** 0.5 / np.linalg.norm(x, axis=1))[:, None]
    target = Target(EDGED[name], (2,), Condition(0.5, 2.0, boundary=1.0))
    (found,) = check_data_belongs(target, 1.0, jnp.asarray(0.99999 * x, float))
    assert found.severity == "note"
    assert "log q jumps" in found.text


def test_a_density_that_does_not_depend_on_the_state_is_not_that_of_the_data():
    target = Target(lambda x, c: 0.0 * c * x.sum(), (2,), Condition(0.5, 2.0, boundary=1.0))
    (found,) = check_data_belongs(target, 1.0, jnp.asarray(data_at(1.0, n=400, d=2), float))
    assert found.severity == "fatal"


def test_the_two_moons_have_ends_and_their_data_belong():
    """Their data were said not to belong: E[(x - m)·∇ log q] is -4 on half a circle of the width of a hair."""
    x, y = pairs(jax.random.key(2024), 50_000)
    (found,) = check_data_belongs(TwoMoons(), 1.0, x, y)
    assert found.severity == "note"
    assert "log q jumps" in found.text


@pytest.mark.parametrize("constant", [1e7, 1e8, 1e9])
def test_rounding_is_no_edge(constant):
    """Data at twice the temperature of a density with a constant so large that float32 knows log q to nats."""
    x = np.sqrt(2.0) * np.random.default_rng(0).standard_normal((4000, 2))
    target = Target(lambda x, c: constant - 0.5 * (x**2).sum() / c, (2,), Condition(0.5, 2.0, boundary=1.0))
    found = check_data_belongs(target, 1.0, jnp.asarray(x, jnp.float32))
    assert [f.severity for f in found] == ["fatal"]


@pytest.mark.parametrize("width", [1e-1, 1e-3, 1e-5])
def test_steep_slopes_are_no_edges(width):
    """Data at twice the temperature of a density that is a thousandth as thick as it is long, and less."""
    x = np.random.default_rng(0).standard_normal((4000, 2)) * np.array([1.0, np.sqrt(2.0) * width])
    x[:, 1] += x[:, 0]
    thin = Target(
        lambda x, c: -0.5 * (x[0] ** 2 + ((x[1] - x[0]) / width) ** 2) / c, (2,), Condition(0.5, 2.0, boundary=1.0)
    )
    with precision(np.float64):
        found = check_data_belongs(thin, 1.0, jnp.asarray(x))
    assert [f.severity for f in found] == ["fatal"]


def test_angles_belong_all_round():
    target = Target(lambda x, c: c * jnp.cos(x - 3.0).sum(), (1,), Condition(0.5, 2.0, boundary=1.0), angles=(0,))
    x = np.random.default_rng(0).vonmises(3.0, 1.0, (4000, 1))  # across ±π
    assert check_data_belongs(target, 1.0, jnp.asarray(x, float)) == ()
    x = np.random.default_rng(0).vonmises(3.0, 2.0, (4000, 1))
    assert check_data_belongs(target, 1.0, jnp.asarray(x, float))[0].severity == "fatal"


def test_copies_constants_and_slow_chains_are_said():
    target = family(d=2)
    x = data_at(1.0, n=50, d=2)
    copies = check_data_belongs(target, 1.0, jnp.asarray(np.repeat(x, 40, axis=0), float))
    assert copies[0].severity == "fatal"
    assert "only 50 are different" in copies[0].text
    constant = np.column_stack([np.zeros(400), data_at(1.0, n=400)])
    assert any("Coordinate 0" in f.text for f in check_data_belongs(target, 1.0, jnp.asarray(constant, float)))
    rng, chain = np.random.default_rng(0), np.zeros((4000, 2))
    for i in range(1, len(chain)):
        chain[i] = 0.999 * chain[i - 1] + np.sqrt(1 - 0.999**2) * rng.normal(size=2)
    found = check_data_belongs(target, 1.0, jnp.asarray(chain, float))
    assert any("slow chain" in f.text for f in found)
    assert not any(f.severity == "fatal" for f in found)


@pytest.mark.parametrize(("offset", "found"), [(1e3, []), (1e5, ["note"]), (1e6, ["doubt"])])
def test_coordinates_that_vary_by_little_more_than_their_rounding(offset, found):
    """The constant is to blame, and not copies of states."""
    x = jnp.asarray(offset + np.random.default_rng(0).normal(size=(20_000, 2)), jnp.float32)
    target = Target(lambda x, c: -0.5 * ((x - offset) ** 2).sum() / c, (2,), Condition(0.5, 2.0, boundary=1.0))
    said = check_data_belongs(target, 1.0, x)
    assert [f.severity for f in said] == found
    assert all("a rounding is" in f.text for f in said)


def test_a_small_bias_is_a_doubt_and_no_more():
    """Three per cent too wide, as of a simulation with long time steps: weights mend it."""
    x = jnp.asarray(1.03 * data_at(1.0, n=5000, d=20), float)
    found = check_data_belongs(family(d=20), 1.0, x)
    assert [f.severity for f in found] == ["doubt"]
    assert "a little off" in found[0].text


def test_derivatives_are_compared():
    x = jnp.asarray(data_at(1.0, n=64), float)
    check_slope(family(), x)
    right = Target(gaussian, (1,), Condition(0.5, 1.0), condition_derivative=lambda x, c: (x**2).sum() / (2 * c**2))
    check_slope(right, x)
    wrong = Target(gaussian, (1,), Condition(0.5, 1.0), condition_derivative=lambda x, c: -(x**2).sum() / (2 * c**2))
    with pytest.raises(TradeError, match="condition_derivative is not the derivative"):
        check_slope(wrong, x)


def test_modes_that_a_model_knows_are_no_alarm_and_others_have_their_share():
    """Two of four known: the other two have half of all mass."""
    target = Target(four_modes, (2,), Condition(0.5, 1.0, boundary=1.0))

    class Two(LinearGaussian):
        def _log_prob(self, x, condition=None):
            each = jax.scipy.stats.norm.logpdf(x, jnp.asarray(MODES[:2]), 1.0).sum(axis=1)
            return jax.nn.logsumexp(each) - jnp.log(2.0)

    states = jnp.asarray(MODES[RANDOM.integers(0, 2, 500)] + RANDOM.normal(size=(500, 2)), float)
    model = Model(Two(d=2), target.condition)
    modes = unknown_modes(model, target, 1.0, states, float(np.log(2 * 2 * np.pi)), jax.random.key(0))
    assert len(modes) == 2
    for mode in modes:
        assert np.abs(mode.x - MODES[2:]).sum(axis=1).min() < 0.05
        assert abs(mode.share - 0.5) < 0.02
    full = Model(LinearGaussian(d=2), family(d=2).condition)
    assert unknown_modes(full, family(d=2), 1.0, states, float(np.log(2 * np.pi)), jax.random.key(0)) == []


def test_of_several_observations_the_worst_is_one_of_them():
    """One with a low ESS and no tail, one with a tail and a high ESS: both can be used, and so can their worst."""
    bounded = np.log(np.where(np.arange(4000) < 3200, 1.0, 1e-3))
    tail = np.log(1.0 + 0.003 * genpareto(0.9).ppf((np.arange(4000) + 0.5) / 4000))
    one, two = quality(bounded), quality(tail)
    assert one.ess < GOOD_ESS < two.ess
    assert one.khat < LARGEST_KHAT < two.khat
    found = _worst_quality(np.stack([bounded, tail]))
    assert can_be_used(found)
    assert (found.ess, found.khat) == (one.ess, one.khat) or (found.ess, found.khat) == (two.ess, two.khat)
    hopeless = np.where(np.arange(4000) == 0, 0.0, -50.0)
    assert _worst_quality(np.stack([tail, hopeless, bounded])).ess == quality(hopeless).ess


@pytest.mark.parametrize(("ess", "level"), [(0.3, "fatal"), (0.75, "doubt")])
def test_a_heavy_tail_at_the_boundary_is_no_loss_of_it(ess, level):
    """Most samples count, and yet the weights' mean cannot be believed: not the same as a model that knows nothing."""
    good, bad = Quality(0.99, 0.0, 0.001, 0.1, 0.0, 0.0), Quality(ess, 0.1, 0.006, 0.9, 0.0, np.inf)
    condition = Condition(1.0, 3.0, boundary=2.0)
    (found,) = _of_weights(condition, np.array([1.0, 2.0, 3.0]), [good, bad, good])
    assert found.severity == level
    assert "Even at the boundary" in found.text


@pytest.mark.parametrize(
    ("usable", "said"),
    [
        (((1.0, 5.0),), "usable with weights; smallest"),
        (((1.0, 2.0),), "usable with weights from c = 1 to 2 only; smallest"),
        (((1.0, 2.0), (5.0, 5.0)), "usable with weights from c = 1 to 2 and at c = 5 only; smallest"),
        (((1.0, 1.0), (3.0, 3.0), (5.0, 5.0)), "usable with weights at 3 of 5 conditions only; smallest"),
    ],
)
def test_where_weights_can_be_used_is_said_in_few_words(usable, said):
    """Up to two intervals by name, more by their number."""
    table = {"c": [1.0, 2.0, 3.0, 4.0, 5.0], "ess": [0.5] * 5, "ess_error": [0.0] * 5}
    assert Verdict("usable with weights", usable, table=table).summary.startswith(said)


def test_khat_of_a_known_tail():
    """A generalised Pareto distribution of shape k, and no error of log Z beyond 0.7."""
    for shape in (0.2, 0.5, 1.0):
        w = genpareto.rvs(shape, size=20_000, random_state=1) + 1.0
        found = quality(np.log(w))
        assert abs(found.khat - shape) < 0.15
        assert np.isinf(found.log_z_error) == (shape > 0.7)


def test_quality_of_equal_weights_and_of_none():
    equal = quality(np.full(100, 3.0))
    assert (equal.ess, equal.ess_error, equal.largest) == (1.0, 0.0, 0.01)
    assert (equal.log_z, equal.log_z_error) == (3.0, 0.0)
    nothing = (np.full(100, -np.inf), np.full(100, np.nan))
    for spoiled in (*nothing, np.r_[np.zeros(99), np.inf], np.r_[0.0, np.full(99, -900.0)]):
        found = quality(spoiled)
        assert np.isinf(found.log_z_error)
        assert found.khat == np.inf
    assert quality(np.r_[np.zeros(50), np.full(50, -np.inf)]).ess == 0.5


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(allow_nan=True, allow_infinity=True, width=32), min_size=1, max_size=40))
def test_quality_of_anything_is_within_its_bounds(log_weight):
    found = quality(np.array(log_weight))
    assert 0.0 <= found.ess <= 1.0 + 1e-9
    assert 0.0 < found.largest <= 1.0
    assert found.log_z_error >= 0.0


def test_errors_of_log_z_cover():
    """Over 200 sets of weights with a known mean: within two errors in 90 to 99 per cent."""
    inside = []
    for seed in range(200):
        x = np.random.default_rng(seed).normal(size=4000)
        found = quality(-0.5 * x**2 * (1 / 0.8 - 1))  # N(0, 0.8) against N(0, 1)
        inside.append(abs(found.log_z - 0.5 * np.log(0.8)) <= 2.0 * found.log_z_error)
    assert 0.9 <= np.mean(inside) <= 0.99


def test_a_model_that_was_nudged_is_not_good():
    target = family(d=2)
    verdict = judge(Model(noisy(exact().flow, 0.4), target.condition), target, Witness())
    assert verdict.level != "good"
