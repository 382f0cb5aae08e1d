"""``fit(target, data)`` alone: what it chooses, what it holds out, and which kinds of targets it serves."""

import json
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flowjax.distributions import AbstractDistribution
from small_problems import TINY, LinearGaussian, data_at, family, gaussian_family, minus_quadratic

from trade import Adam, Condition, NonFiniteError, Schedule, Target, TradeError, fit, load
from trade.data import hold_out, make_problem, sampled
from trade.flows import PowerScaled, VolumePreservingFlow
from trade.objectives import ForwardKL, Frontier, Widening
from trade.objectives.default import default_objective
from trade.targets import PowerPosterior
from trade.training import OneCycle, Watch
from trade.training.compilation import keep_compiled

KEY = jax.random.key(37)
QUIET = {"progress": False, "evaluation_samples": 200}
SHORT = {**QUIET, "steps": 300, "optimiser": Adam(0.02), "schedule": Schedule(50, 25, 1000)}


def moments(model, c, n=20_000, **options):
    x = np.asarray(model.sample(KEY, n, c, **options), np.float64)
    return float(x.mean()), float(x.var())


def kl(model, c, variance, mean=0.0):
    """KL from N(mean, variance) to a Gaussian model at c, from its location and deviation."""
    u = float(model.condition.chart(c))
    m, s = float(model.flow.location(u)[0]), float(model.flow.deviation(u)[0])
    return 0.5 * (variance / s**2 + (mean - m) ** 2 / s**2 - 1.0 - np.log(variance / s**2))


# --- Target and data are enough


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """Two dimensions, few steps, nothing said but target and data."""
    directory = tmp_path_factory.mktemp("runs") / "alone"
    target = family(0.5, 1.0, d=2)
    run = fit(target, {1.0: data_at(1.0, n=1000, d=2)}, steps=60, out=directory, progress=False)
    return run, target, directory


def test_target_and_data_are_enough(alone):
    """It learns something in sixty steps, holds out a tenth, and measures the ESS at both ends."""
    run, _, _ = alone
    rows = [row for row in run.metrics if "held_out_nll" in row]
    assert set(rows[-1]) == {"step", "ess@0.5", "ess@1", "ess_least", "held_out_nll"}
    assert rows[-1]["step"] == 60
    losses = [row for row in run.metrics if "forward_kl" in row]
    names = {"forward_kl", "gradient", "reweighted", "reached", "boundary_ess", "lambda", "invalid", "step", "skipped"}
    assert set(losses[-1]) == names
    assert losses[-1]["lambda"][0] > 0.0
    assert losses[-1]["reached"][0] > 0.9  # a fresh flow of whitened data is nearly right here
    assert run.model.sample(KEY, 3, c=0.5).shape == (3, 2)
    x = data_at(1.0, n=2000, d=2, seed=9)
    assert -float(run.model.log_prob(x, 1.0).mean()) < np.log(2 * np.pi * np.e) + 0.1


def test_what_was_chosen_is_saved_with_the_run(alone):
    run, target, directory = alone
    settings = json.loads((directory / "run.json").read_text())
    assert settings["recipe"]["class"] == "SplineFlow"
    assert settings["recipe"]["whiten"] is True
    assert settings["objective"]["class"] == "Trade"
    assert settings["objective"]["propagation"]["conditions"]["class"] == "Frontier"
    assert settings["optimiser"]["class"] == "Adam"
    assert settings["data"][0][0] == 900  # a hundred are held out
    assert sorted(settings["chosen"]) == ["flow", "objective", "optimiser"]
    again = load(directory, target=target)
    x = data_at(0.6, n=50, d=2)
    np.testing.assert_array_equal(again.model.log_prob(x, 0.6), run.model.log_prob(x, 0.6))


def test_default_objective_follows_the_target():
    """Energy-free without a density, with symmetries where there are any, with fewer states of large ones."""
    plain = default_objective(family())
    assert type(plain.propagation.density).__name__ == "TrueDensity"
    assert (plain.propagation.points_per_condition, plain.boundary.batch) == (64, 512)
    assert not plain.propagation.points.symmetries and not plain.boundary.symmetries
    turned = default_objective(family(symmetry=lambda key, x: -x))
    assert turned.propagation.points.symmetries and turned.boundary.symmetries
    free = default_objective(PowerPosterior(lambda x: -(x**2).sum(), shape=(1,)))
    assert type(free.propagation.density).__name__ == "EnergyFree"
    assert (free.propagation.reweighted, free.propagation.points.wider) == (0.0, 0.0)  # the residual alone
    for d, points, batch in ((64, 64, 512), (128, 32, 256), (10_000, 16, 128)):
        large = default_objective(Target(minus_quadratic, (d,), family().condition))
        assert (large.propagation.points_per_condition, large.boundary.batch) == (points, batch)


def test_schedule_grows_with_the_budget():
    """A hundred reports, fifty evaluations, ten checkpoints; of a few steps each is one."""
    assert Schedule.of(8000) == Schedule(80, 160, 800)
    assert Schedule.of(3) == Schedule(1, 1, 1)


# --- Held-out data


def observed_problem(n=100):
    condition = Condition(0.5, 2.0, boundary=(0.5, 1.0))
    target = Target(lambda x, c, y: -((x - y) ** 2).sum() / c, (1,), condition, observation_shape=(1,))
    x = [np.arange(n, dtype=float)[:, None], 1000.0 + np.arange(2 * n, dtype=float)[:, None]]
    return make_problem(target, {0.5: (x[0], -x[0]), 1.0: (x[1], -x[1])})


def test_a_part_of_the_data_is_held_out_at_each_boundary_value():
    """Nothing is lost, nothing is in both, and observations stay with their states."""
    problem = observed_problem()
    rest, apart = hold_out(problem, 0.25)
    assert [len(x) for x, _ in apart] == [25, 50]
    assert [len(x) for x in rest.data] == [75, 150]
    for i, (x, y) in enumerate(apart):
        np.testing.assert_array_equal(y, -x)
        np.testing.assert_array_equal(rest.observations[i], -rest.data[i])
        together = np.concatenate([np.asarray(x), np.asarray(rest.data[i])])
        np.testing.assert_array_equal(np.sort(together, axis=0), problem.data[i])
        assert np.any(np.diff(np.asarray(x)[:, 0]) < 0)  # drawn at random: data may come in order
    again, same = hold_out(problem, 0.25)
    assert eqx.tree_equal((rest.data, apart), (again.data, same))


def test_no_more_are_held_out_than_are_needed():
    rest, apart = hold_out(make_problem(family(), {1.0: data_at(1.0, n=1000)}), 0.5, most=30)
    assert (len(rest.data[0]), len(apart[0][0])) == (970, 30)


@pytest.mark.parametrize(("n", "part"), [(19, 0.1), (1, 0.5), (500, 0.0), (500, 0.001)])
def test_of_few_data_none_are_held_out(n, part):
    problem = make_problem(family(), {1.0: data_at(1.0, n=n)})
    rest, apart = hold_out(problem, part)
    assert apart == ()
    assert rest is problem


def test_held_out_data_are_not_trained_on():
    """One state far away is held out or learned; the likelihood of the final model knows which."""
    data = data_at(1.0, n=40)
    problem = make_problem(family(), {1.0: data})
    _, apart = hold_out(problem, 0.1)
    kept = {float(v) for v in np.asarray(apart[0][0]).ravel()}
    assert len(kept) == 4

    def first_loss(outlier):
        moved = data.copy()
        moved[outlier] = 50.0
        options = {**QUIET, "schedule": Schedule(1, 10, 10), "steps": 1}
        run = fit(family(), {1.0: moved}, flow=LinearGaussian(), objective=ForwardKL(2000), **options)
        return run.metrics[0]["forward_kl"][0], run.metrics[-1]["held_out_nll"][0]

    values = jnp.asarray(data, float)[:, 0]
    inside = next(i for i, v in enumerate(np.asarray(values)) if float(v) in kept)
    outside = next(i for i, v in enumerate(np.asarray(values)) if float(v) not in kept)
    learned, apart_nll = first_loss(inside)
    assert learned < 3.0
    assert apart_nll > 100.0
    learned, apart_nll = first_loss(outside)
    assert apart_nll < 3.0
    assert learned > 20.0


# --- Without data


def test_a_target_that_can_be_sampled_needs_no_data():
    """Its exact sampler is asked at its boundary value; variance c follows."""
    target = gaussian_family(1, 0.5, 2.0)
    run = fit(target, flow=LinearGaussian(log_scale=0.5), **SHORT)
    (found,) = run.settings["data"]
    exact = sampled(target)[1.0]
    assert found[0] == len(exact) - 5000
    for c in (0.5, 1.0, 2.0):
        assert kl(run.model, c, c) < 0.01


def test_what_is_sampled_is_exact_at_every_boundary_value():
    condition = Condition(0.25, 4.0, boundary=(0.25, 4.0))
    target = Target(
        minus_quadratic, (1,), condition, sampler=lambda key, n, c: jnp.sqrt(c) * jax.random.normal(key, (n, 1))
    )
    data = sampled(target, 4000)
    assert sorted(data) == [0.25, 4.0]
    for c, x in data.items():
        np.testing.assert_allclose(np.var(x), c, rtol=0.15)
    correlation = np.corrcoef(np.asarray(data[0.25])[:, 0], np.asarray(data[4.0])[:, 0])[0, 1]
    assert abs(correlation) < 0.1
    assert sampled(family()) is None
    assert sampled(gaussian_family(1).__class__(minus_quadratic, (1,), Condition(0.5, 1.0))) is None


# --- Kinds of targets


def test_two_boundary_values_are_learned_from_both_sides():
    target = family(0.25, 1.0, boundary=(0.25, 1.0))
    data = {0.25: data_at(0.25, n=2000), 1.0: data_at(1.0, n=2000, seed=1)}
    run = fit(target, data, flow=LinearGaussian(log_scale=0.5), **SHORT)
    assert [n for n, _ in run.settings["data"]] == [1800, 1800]
    reached = [row["reached"][0] for row in run.metrics if "reached" in row]
    assert reached[-1] > 0.999
    for c in (0.25, 0.5, 1.0):
        assert kl(run.model, c, c) < 0.02


def test_boundary_values_may_be_left_to_the_data():
    run = fit(family(boundary=()), {0.5: data_at(0.5)}, flow=LinearGaussian(), **{**SHORT, "steps": 2})
    assert run.model.condition.boundary == (0.5,)


@pytest.mark.parametrize("conditions", [Frontier(), Widening()], ids=lambda c: type(c).__name__)
def test_a_target_without_a_density_is_learned_energy_free_and_the_best_model_has_learned_it(conditions):
    """Prior N(0, 1) and an unknown likelihood N(0; x, 1): data of N(0, 1/2) at β = 1, and N(0, 1/(1 + β)) wanted.

    Held-out data know the boundary alone; a model that fits them before anything was carried on must not be chosen.
    """
    condition = Condition(0.25, 4.0, boundary=(1.0,))
    target = PowerPosterior(lambda x: -0.5 * (x**2).sum() - 0.5 * np.log(2 * np.pi), shape=(1,), condition=condition)
    objective = default_objective(target)
    objective = replace(objective, propagation=replace(objective.propagation, conditions=conditions))
    run = fit(target, {1.0: data_at(0.5, n=2000)}, flow=LinearGaussian(), objective=objective, **SHORT)
    assert not any("ess_least" in row for row in run.metrics)
    finals = {beta: kl(run.final[0], beta, 1.0 / (1.0 + beta)) for beta in (0.25, 1.0, 4.0)}
    assert max(finals.values()) < 0.05, finals
    best = {beta: kl(run.best[0], beta, 1.0 / (1.0 + beta)) for beta in (0.25, 1.0, 4.0)}
    assert max(best.values()) < 0.05, best


class Observed(AbstractDistribution):
    """N(a y + b u y, exp(l + r u)²): the posterior of a linear model, for every observation."""

    weights: jax.Array
    shape: tuple[int, ...] = eqx.field(static=True)
    cond_shape: tuple[int, ...] = eqx.field(static=True)

    def __init__(self):
        self.weights, self.shape, self.cond_shape = jnp.zeros(5), (1,), (2,)

    def _place(self, condition):
        a, b, c, log_scale, rate = self.weights
        u, y = condition
        return (a + b * u + c * u * u) * y, jnp.exp(log_scale + rate * u)

    def _log_prob(self, x, condition=None):
        return jax.scipy.stats.norm.logpdf(x, *self._place(condition)).sum()

    def _sample(self, key, condition=None):
        mean, deviation = self._place(condition)
        return mean + deviation * jax.random.normal(key, (1,))


def test_a_target_with_observations_is_learned_for_each_of_them():
    """x ~ N(0, 1), y ~ N(x, 1): p(x|y, β) = N(β y/(1 + β), 1/(1 + β)); pairs at β = 1 alone."""
    target = PowerPosterior(
        lambda x: -0.5 * (x**2).sum(),
        lambda y, x: -0.5 * ((y - x) ** 2).sum(),
        shape=(1,),
        observation_shape=(1,),
        condition=Condition(0.5, 2.0, boundary=(1.0,)),
    )
    random = np.random.default_rng(0)
    x = random.standard_normal((4000, 1))
    y = x + random.standard_normal((4000, 1))
    run = fit(target, {1.0: (x, y)}, flow=Observed(), **SHORT)
    rows = [row for row in run.metrics if "held_out_nll" in row]
    assert rows[-1]["ess_least"][0] > 0.9
    for beta in (0.5, 1.0, 2.0):
        for seen in (-1.5, 0.8):
            mean, variance = moments(run.model, beta, observation=[seen])
            np.testing.assert_allclose(mean, beta * seen / (1.0 + beta), atol=0.08)
            np.testing.assert_allclose(variance, 1.0 / (1.0 + beta), rtol=0.1)


# --- A density that is not a number


def broken_beyond(limit):
    """N(0, c), and no number beyond some distance."""
    return Target(
        lambda x, c: minus_quadratic(x, c) * jnp.where(jnp.abs(x[0]) > limit, jnp.nan, 1.0), (1,), family().condition
    )


def test_nan_at_the_data_is_refused_before_anything_is_trained():
    with pytest.raises(TradeError, match="not finite at"):
        fit(broken_beyond(1.0), {1.0: data_at(1.0)}, flow=LinearGaussian(), **SHORT)


def test_a_rare_nan_is_counted_and_a_frequent_one_ends_the_run():
    """States of the model where no data are: now and then one of a thousand, or three of ten."""
    run = fit(broken_beyond(3.3), {1.0: np.clip(data_at(1.0), -3.2, 3.2)}, flow=LinearGaussian(), **SHORT)
    losses = [row for row in run.metrics if "invalid" in row]
    assert 0.0 < losses[-1]["invalid"][0] < 0.01
    assert losses[-1]["skipped"] == [0]
    for c in (0.25, 0.5, 1.0):
        assert kl(run.model, c, c) < 0.02
    data = np.clip(data_at(1.0), -0.9, 0.9)
    with pytest.raises(NonFiniteError, match=r"the gradient term was nan at c = "):
        fit(broken_beyond(1.0), {1.0: data}, flow=LinearGaussian(log_scale=1.0), **{**SHORT, "optimiser": Adam(1e-5)})


# --- The chart of a power

POWER = Target(lambda x, c: -0.5 * c * (x**2).sum(), (2,), Condition(1.0, 9.0, scale="linear", boundary=(1.0,)))


def test_a_power_is_charted_by_its_data_and_comes_back_from_its_file(tmp_path):
    """N(0, 1/c) from c = 1 on: what is asked of the run is in c, whatever its chart."""
    data = {1.0: data_at(1.0, d=2)}
    charted = make_problem(POWER, data, charted=True).target  # as fit does for a flow of its own choice
    run = fit(charted, data, flow=LinearGaussian(d=2), out=tmp_path, **{**SHORT, "steps": 2})
    assert 0.5 < run.model.condition.knee < 2.0
    assert run.target.condition == run.model.condition
    loaded = load(tmp_path, flow=LinearGaussian(d=2), target=POWER)
    assert loaded.target.condition == run.target.condition
    weighted = loaded.weighted(KEY, 50, 4.0)
    expected = -2.0 * (np.asarray(weighted.x) ** 2).sum(axis=1) - np.asarray(weighted.log_prob)
    np.testing.assert_allclose(weighted.log_weight, expected, rtol=1e-4, atol=1e-4)


def test_a_flow_whose_latent_follows_c_is_asked_at_the_same_c():
    """A recipe made for the target's own condition: N(0, 1/c) as built, before and after one step of no length."""
    recipe = VolumePreservingFlow((2,), POWER.condition, blocks=1, network=TINY, latent=PowerScaled(-1.0))
    options = {**SHORT, "steps": 1, "optimiser": Adam(1e-9), "objective": ForwardKL(8)}
    run = fit(POWER, {1.0: data_at(1.0, d=2, n=2000)}, flow=recipe, **options)
    for c in (1.0, 3.0, 9.0):
        np.testing.assert_allclose(moments(run.model, c)[1], 1.0 / c, rtol=0.1)


# --- What is said and kept


def test_every_choice_is_printed_once_and_marked(capsys):
    options = {"steps": 2, "evaluation_samples": 16, "flow": LinearGaussian()}
    fit(family(), {1.0: data_at(1.0, n=100)}, **options)
    lines = capsys.readouterr().err.splitlines()

    def line(name):
        (found,) = [text for text in lines if text.strip().startswith(name + "  ")]
        return found

    assert "states of shape (1,), c from 0.25 to 1" in line("target")
    assert "90 at c = 1 (10 held out)" in line("data")
    assert line("objective").endswith("(chosen)")
    assert line("optimiser").endswith("(chosen)")
    assert "(chosen)" not in line("flow")
    assert "2 steps" in line("budget")
    fit(family(), {1.0: data_at(1.0, n=100)}, **options, progress=False)
    assert capsys.readouterr().err == ""


def test_compiled_programs_are_kept_where_they_are_asked_to_be(tmp_path, monkeypatch):
    """In the folder of the cache; not if the user has another, and not if the user wants none."""
    monkeypatch.setenv("TRADE_CACHE", str(tmp_path))
    names = ("jax_enable_compilation_cache", "jax_compilation_cache_dir")
    before = {name: getattr(jax.config, name) for name in names}
    try:
        for enabled, chosen, expected in ((False, None, None), (True, "mine", "mine"), (True, None, "compiled")):
            jax.config.update(names[0], enabled)
            jax.config.update(names[1], chosen)
            keep_compiled()
            found = getattr(jax.config, names[1])
            assert found == (str(tmp_path / "compiled") if expected == "compiled" else expected)
    finally:
        for name, value in before.items():
            jax.config.update(name, value)
    assert (tmp_path / "compiled").is_dir()


def test_many_boundary_values_are_no_more_trouble_than_one():
    """The conditions that each of them needs at every step are found by the default objective."""
    at = np.geomspace(0.3, 0.9, 8)
    data = {float(c): data_at(c, n=50) for c in at}
    run = fit(family(boundary=tuple(at.tolist())), data, flow=LinearGaussian(), **{**SHORT, "steps": 1})
    assert len(run.model.condition.boundary) == 8


# --- Time and schedules through fit


def test_minutes_end_a_run():
    options = {**SHORT, "steps": 100_000, "schedule": Schedule(10, 10, 10_000)}
    run = fit(family(), {1.0: data_at(1.0)}, flow=LinearGaussian(), objective=ForwardKL(32), minutes=1e-4, **options)
    assert run.metrics[-1]["step"] < 50_000
    assert "held_out_nll" in run.metrics[-1]


def test_one_cycle_runs_take_all_their_steps():
    """Whatever is reached: the rate of the paper's schedule is only small at its end."""
    options = {**SHORT, "optimiser": OneCycle(0.02), "watch": Watch(patience=0.02, gain=1.0)}
    options["schedule"] = Schedule(10, 10, 1000)
    early = fit(family(), {1.0: data_at(1.0)}, flow=LinearGaussian(), **{**options, "optimiser": Adam(0.02)})
    run = fit(family(), {1.0: data_at(1.0)}, flow=LinearGaussian(), **options)
    assert early.metrics[-1]["step"] < 300
    assert run.metrics[-1]["step"] == 300
