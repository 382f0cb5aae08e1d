"""The explorer: what a page holds, that it says what is there, and that a browser shows it."""

import base64
import json
import re
import shutil
from contextlib import contextmanager

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flowjax.distributions import AbstractDistribution

from trade import Axes, Condition, Target
from trade.evaluation.verdict import Verdict
from trade.experiments.results import record, row
from trade.model import Model
from trade.report import explorer, html, views
from trade.report.explorer import explore, render, write_report
from trade.report.grids import density_grid, pooled, range_of, squared
from trade.report.packing import pack, rounded, unpack
from trade.report.quantities import most_changing, quantities, torsion_pair
from trade.report.summary import commands, flattened, training
from trade.run import Run
from trade.targets import ScalarField, TwoMoons
from trade.targets.molecule.alanine_dipeptide import AlanineDipeptide

LIMIT = 5_000_000
CONDITION = Condition(0.25, 1.0, boundary=(1.0,))


class Gaussian(AbstractDistribution):
    """p(x|u) = N(0, c) with c = exp(rate (u - 1)), states of any shape."""

    rate: jax.Array
    shape: tuple[int, ...] = eqx.field(static=True)
    cond_shape: tuple[int, ...] | None = eqx.field(static=True)

    def __init__(self, shape, observed=0, rate=0.6931472):
        self.rate, self.shape, self.cond_shape = jnp.asarray(rate), shape, (1 + observed,)

    def _log_prob(self, x, condition=None):
        return jax.scipy.stats.norm.logpdf(x, scale=self.deviation(condition)).sum()

    def _sample(self, key, condition=None):
        return self.deviation(condition) * jax.random.normal(key, self.shape)

    def deviation(self, condition):
        return jnp.exp(0.5 * self.rate * (condition[0] - 1.0))


def log_density(x, c):
    return -(x**2).sum() / (2.0 * c)


def target_of(shape=(2,), density=log_density, condition=CONDITION, **options):
    return Target(density, shape, condition, **options)


TABLE = {
    "c": [0.25, 0.5, 1.0],
    "ess": [0.5, 0.75, 1.0],
    "ess_error": [0.1, 0.1, 0.0],
    "largest": [0.01, 0.001, 0.001],
    "khat": [np.inf, 0.5, 0.1],
    "log_z": [0.0, 0.1, 0.2],
    "log_z_error": [np.inf, 0.1, 0.1],
}
VERDICT = Verdict("usable with weights", ((0.25, 1.0),), ("A <b>reason</b>.",), ("More & more.",), TABLE)
METRICS = [
    {"step": 10, "forward_kl": [3.0], "gradient": [0.0], "ess@1": [0.2]},
    {"step": 20, "forward_kl": [None], "gradient": [0.4], "ess@1": [0.4]},
    {"step": 30, "forward_kl": [1.0], "gradient": [0.2]},
    {"step": 40, "forward_kl": [0.9], "gradient": [0.1]},
]
SETTINGS = {"steps": 40, "seed": 3, "parameters": 7, "jax": "0.0", "data": [[900, 1.0]], "chosen": ["optimiser"]}


def run_of(target, shape=None, observed=None, told=(VERDICT,), **settings):
    shape = target.shape if shape is None else shape
    flow = Gaussian(shape, 0 if observed is None else int(np.prod(observed)))
    condition = CONDITION if target is None else target.condition
    model = Model(flow, condition, observed)
    return Run(target, (model,), (model,), METRICS, SETTINGS | settings, told=told)


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(explorer, "MOST_SAMPLES", 1000)
    monkeypatch.setattr(explorer, "SHOWN", 500)
    monkeypatch.setattr(views, "PIXELS", 24)


class TwoAxes(Gaussian):
    """The same, moved along by the second axis."""

    def __init__(self, shape):
        super().__init__(shape, observed=1)

    def _log_prob(self, x, condition=None):
        return super()._log_prob(x - condition[1], condition)

    def _sample(self, key, condition=None):
        return super()._sample(key, condition) + condition[1]


def run_with_axes():
    condition = Axes({"T": CONDITION, "h": Condition(-1.0, 1.0, scale="linear")}, boundary=(1.0, 0.0))
    target = Target(lambda x, c: log_density(x - c.h, c.T), (2,), condition)
    model = Model(TwoAxes((2,)), condition)
    return Run(target, (model,), (model,), METRICS, SETTINGS)


def test_a_single_named_axis_is_one_slider():
    condition = Axes({"T": CONDITION}, boundary=(1.0,))
    model = Model(Gaussian((2,)), condition)
    run = Run(Target(lambda x, c: log_density(x, c.T), (2,), condition), (model,), (model,), METRICS, SETTINGS)
    moving = explore(run, {(1.0,): data_of()[1.0]})["moving"]
    assert [axis["name"] for axis in moving["axes"]] == ["T"]
    assert np.ndim(moving["c"]) == np.ndim(moving["u"]) == 1
    assert moving["boundary"] == [{"c": 1.0, "u": 1.0}]
    assert "curve-ess" in render(explore(run))


def data_of(shape=(2,), n=1000, seed=0):
    return {1.0: np.random.default_rng(seed).standard_normal((n, *shape))}


# --- Arrays


@pytest.mark.parametrize("bits", [8, 16])
def test_packed_numbers_come_back_within_a_quantum(bits):
    values = np.random.default_rng(0).uniform(-2.0, 5.0, (3, 4))
    packed = json.loads(json.dumps(pack(values, bits=bits), allow_nan=False))
    assert packed["shape"] == [3, 4]
    assert len(base64.b64decode(packed["data"])) == 12 * bits // 8
    assert np.abs(unpack(packed) - values).max() <= 0.5 * np.ptp(values) / (2**bits - 1) + 1e-12


def test_packing_survives_what_is_no_number():
    found = unpack(pack(np.array([np.nan, -np.inf, 0.0, 0.5, np.inf, 7.0]), 0.0, 1.0))
    np.testing.assert_allclose(found, [0.0, 0.0, 0.0, 0.5, 1.0, 1.0], atol=0.003)
    assert np.all(unpack(pack(np.full(3, np.nan))) == 0.0)
    assert np.all(unpack(pack(np.full(3, -4.0))) == -4.0)
    assert unpack(pack(np.zeros((0, 5)))).shape == (0, 5)
    assert rounded([1.23456789, np.inf, [np.nan]], 3) == [1.23, None, [None]]


def test_ranges_hold_the_samples_and_are_never_empty():
    low, high = range_of(np.random.default_rng(0).standard_normal(10_000))
    assert -5.0 < low < -3.0 < 3.0 < high < 5.0
    for odd in ([], [np.nan], [2.0, 2.0], [0.0]):
        low, high = range_of(np.array(odd))
        assert high > low
    assert squared([(0.0, 1.0), (0.0, 2.0)]) == [(-0.5, 1.5), (0.0, 2.0)]
    assert squared([(0.0, 1.0), (0.0, 20.0)]) == [(0.0, 1.0), (0.0, 20.0)]


def test_densities_on_grids_have_mass_one():
    target, ranges = target_of(), [(-5.0, 5.0), (-5.0, 5.0)]
    for density in (target, run_of(target).model):
        grid = density_grid(density, 0.5, ranges, 60)
        assert grid.sum() * (10 / 60) ** 2 == pytest.approx(1.0, abs=2e-3)
        assert pooled(grid).mean() == pytest.approx(grid.mean())
    nowhere = target_of(density=lambda x, c: jnp.nan * log_density(x, c))
    assert np.all(density_grid(nowhere, 0.5, ranges, 10) == 0.0)


# --- What is shown


def test_conditions_have_ends_and_boundary_values():
    condition = Condition(0.2, 5.0, boundary=(0.51, 5.0))
    run = run_of(target_of(condition=condition))
    at = explorer._conditions(run, ())
    assert at[0] == 0.2 and at[-1] == 5.0 and 0.51 in at and 23 <= len(at) <= 27
    assert np.all(np.diff(np.asarray(condition.chart(at))) > 0.03)
    assert [label for _, label in explorer._ticks(condition)][::5] == ["0.2", "5"]
    assert len({u for u, _ in explorer._ticks(Condition(1000.0, 1001.0))}) == 6


@pytest.fixture(scope="module")
def plane():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(explorer, "MOST_SAMPLES", 2000)
        patch.setattr(views, "PIXELS", 24)
        target = target_of(log_partition=lambda c: float(np.log(2.0 * np.pi * c)))
        return explore(run_of(target), data_of(), name="plane")


def test_a_page_in_the_plane_has_its_arrays(plane):
    moving = plane["moving"]
    n, bins = len(moving["c"]), views.BINS
    assert moving["home"] == n - 1 and moving["boundary"] == [{"c": 1.0, "u": 1.0}]
    assert moving["marginals"]["raw"]["shape"] == moving["marginals"]["weighted"]["shape"] == [n, 2, bins]
    assert moving["marginals"]["data"]["shape"] == [1, 2, bins]
    assert moving["points"]["place"]["shape"] == [n, views.POINTS, 2]
    assert moving["density"]["model"]["shape"] == moving["density"]["target"]["shape"] == [n, 24, 24]
    assert moving["density"]["exact"] and moving["torsions"] is None and moving["fields"] is None
    top = np.array(moving["marginals"]["top"])[..., None]
    ranges = np.array(moving["ranges"])
    mass = (unpack(moving["marginals"]["weighted"]) * top).mean(axis=2) * np.ptp(ranges, axis=2)
    np.testing.assert_allclose(mass, 1.0, atol=0.03)
    np.testing.assert_allclose(
        unpack(moving["density"]["model"]), unpack(moving["density"]["target"]), atol=0.05
    )  # the model is exact


def test_weights_and_log_z_are_those_of_the_model(plane):
    weights, c = plane["moving"]["weights"], np.array(plane["moving"]["c"])
    np.testing.assert_allclose(weights["ess"], 1.0, atol=1e-4)  # the model is exact
    np.testing.assert_allclose(weights["log_z"], np.log(c), atol=1e-3)
    np.testing.assert_allclose(weights["exact"], np.log(c), atol=1e-4)
    np.testing.assert_allclose(weights["integral"], np.log(c), atol=0.1)
    assert all(weights["usable"])


def test_the_page_is_small_strict_and_says_what_is_there(plane):
    page = render(plane)
    assert len(page.encode()) < LIMIT
    content = re.search(r'id="content">(.*?)</script>', page, re.DOTALL)[1]
    assert json.loads(content) == json.loads(json.dumps(plane["moving"], allow_nan=False))
    assert "A &lt;b&gt;reason&lt;/b&gt;." in page and "More &amp; more." in page
    assert page.index("Verdict: usable with weights") < page.index("The model at every c") < page.index(">Training<")
    assert "independent" not in page and "exact KL" not in page
    assert "normalised by its exact log Z" in page and "can be wrong together" in page
    assert "http://" not in page and "https://" not in page
    assert re.search(r'<label for="c">', page) and re.search(r'<input type="range" id="c"', page)
    assert ">900<" in page and ">100<" in page  # trained on, held out
    fonts = set(re.findall(r"ctx\.font = (\w+)", page))
    assert fonts == {"FONT"}  # one size of text in figures


def test_names_cannot_end_a_script():
    evil = "</script><script>alert(1)</script><img src=x onerror=alert(1)>{c}"
    run = run_of(target_of(), notes={"command": "fit", "problem": f"/somewhere/{evil}", "steps": None, "sha256": evil})
    about = record(evil, [row(evil, "kl", 1.0, [0.1])], 1.0) | {"labels": {evil: evil}, "command": evil}
    page = render(explore(run, name=evil, results=about))
    assert page.count("</script>") == 3 and page.count("<script") == 3
    assert "<img" not in page and "&lt;img src=x" in page


def test_without_a_target_samples_are_raw_and_weights_those_of_the_verdict():
    content = explore(run_of(None, (2,)))
    moving = content["moving"]
    assert moving["c"] == TABLE["c"] and moving["weights"]["ess"] == TABLE["ess"]
    assert moving["weights"]["khat"][0] is None
    assert moving["marginals"]["weighted"] is None and moving["density"]["target"] is None
    assert not moving["has_data"]
    page = render(content)
    assert "Data not at hand: give --problem FILE.py." in page and "Weights are not at hand" in page
    assert "Taken from the saved verdict" in page and "Verdict: none" not in page
    untold = explore(run_of(None, (2,), told=()))
    assert len(untold["moving"]["c"]) == explorer.GRID and untold["moving"]["weights"] is None
    assert "Verdict: none" in render(untold) and 'id="n-ess"' not in render(untold)


def test_a_density_that_is_no_number_gives_a_page():
    run = run_of(target_of(density=lambda x, c: jnp.where(c < 2.0, jnp.nan, 0.0) * log_density(x, c)))
    content = explore(run)
    weights = content["moving"]["weights"]
    assert not any(weights["usable"]) and weights["integral"] is None
    assert set(weights["ess"]) == {0.0}
    json.dumps(content, allow_nan=False)
    assert "NaN" not in render(content).replace("isNaN", "")


def test_states_that_are_no_numbers_give_a_page():
    run = run_of(target_of())
    broken = eqx.tree_at(lambda m: m.flow.rate, run.model, jnp.asarray(jnp.nan))
    content = explore(Run(run.target, (broken,), (broken,), [], {}, told=(VERDICT,)))
    json.dumps(content, allow_nan=False)
    assert "No metrics were kept" in render(content)


def test_observations_are_chosen_and_said():
    target = TwoMoons()
    run = run_of(target, observed=(2,))
    y = np.array([[0.125, 0.25], [5.0, 5.0]])
    content = explore(run, {1.0: (np.zeros((2, 2)) + 0.1, y)})
    assert "y = (0.125, 0.25): the first of the data" in content["notes"][0]
    assert not content["moving"]["has_data"] and content["moving"]["weights"] is not None
    assert "--observation y.npy" in dict(content["commands"])["draw samples"]
    hidden = explore(run_of(TwoMoons(likelihood=False), observed=(2,)))
    assert "y = (0, 0): zero, without data" in hidden["notes"][1]
    assert "There is no density" in hidden["notes"][0]
    assert hidden["moving"]["marginals"]["weighted"] is None


def test_of_many_coordinates_those_that_change_are_chosen():
    scale = jnp.where(jnp.arange(10) >= 7, 1.0, 0.0)
    run = run_of(target_of((10,), lambda x, c: -((x**2) / (2.0 * c**scale)).sum()))
    moving = explore(run, data_of((10,)))["moving"]
    assert len(moving["quantities"]) == 6 and moving["all_quantities"] == 10
    assert {"x[7]", "x[8]", "x[9]"} <= {q["name"] for q in moving["quantities"]}
    assert moving["density"] is None
    values = np.zeros((2, 500, 8))
    values[1, :, 5] = 1.0
    assert 5 in most_changing(values, np.full((2, 500), 1 / 500), 0, 2)


def test_one_dimension_has_a_curve():
    moving = explore(run_of(target_of((1,))), data_of((1,)))["moving"]
    assert moving["points"] is None and moving["density"]["model"]["shape"] == [len(moving["c"]), views.CURVE]
    assert not moving["density"]["exact"]


def test_a_lattice_has_fields_and_a_magnetisation():
    target = ScalarField(4, condition=Condition(0.2, 0.3, boundary=(0.25, 0.29)))
    data = {c: np.random.default_rng(0).standard_normal((50, 4, 4)) for c in (0.25, 0.29)}
    content = explore(run_of(target), data)
    moving = content["moving"]
    assert moving["fields"]["model"]["shape"] == [len(moving["c"]), 6, 4, 4] and len(moving["fields"]["data"]) == 2
    assert "magnetisation" in moving["quantities"][0]["name"] and moving["density"] is None
    assert 'id="fields-data"' in render(content)


def test_torsions_have_a_map():
    every = quantities(AlanineDipeptide(), (48,))
    x = np.random.default_rng(0).uniform(-9.0, 9.0, (100, 48))
    assert [q.name for q in torsion_pair(every, x)] == ["φ", "ψ"]
    assert every[0].name == "bond x[0]" and every[9].name == "angle x[9]" and every[-1].angle
    assert np.abs(every[-1](x)).max() <= 180.0
    ring = target_of((3,), lambda x, c: jnp.cos(x).sum() / c, angles=(0, 1, 2))
    moving = explore(run_of(ring), data_of((3,)))["moving"]
    assert moving["torsions"]["raw"]["shape"] == [len(moving["c"]), 50, 50]
    assert moving["ranges"][0][0] == [-180.0, 180.0]


def test_settings_are_flat_and_commands_reproduce():
    nested = {"a": {"class": "Flow", "b": [1, 2.5], "c": {"class": "MLP", "d": None}}, "e": list(range(99)), "f": True}
    rows = dict(flattened(nested))
    assert rows == {"a": "Flow", "a.b": "1, 2.5", "a.c": "MLP", "a.c.d": "none", "e": "99 values", "f": "yes"}
    told = dict(commands(run_of(target_of()), "my run"))
    call = "trade.fit(target, data, flow=flow, objective=objective, steps=40, seed=3, out='my run')"
    assert told["train it again, in Python"] == call
    notes = {"command": "fit", "problem": "/home/me/well.py", "steps": 40, "sha256": "0"}
    told = dict(commands(run_of(target_of(), notes=notes), "my run"))
    assert told["train it again"] == "trade fit well.py --out 'my run' --steps 40 --seed 3"
    assert told["continue it, if interrupted"] == "trade resume 'my run'"
    assert told["draw samples"].endswith("--problem well.py")


def test_training_curves_begin_where_their_terms_do():
    loss, gradient, ess = training(METRICS)
    assert loss["series"][0]["y"] == [[3.0, None, 1.0, 0.9]]
    assert gradient["series"][0]["x"] == [30, 40] and gradient["log"]
    assert ess["percent"] and ess["series"][0]["name"] == "c = 1"
    assert training([]) == []


def test_results_have_the_labels_they_bring(tmp_path):
    rows = [row("ours", "kl", 1.0, [0.25]), row("ours", "ess", 1.0, [0.5]), row("other", "kl", 1.0, [np.nan])]
    about = record("e", rows, 2.0) | {"labels": {"ours": "Ours", "kl": "exact KL"}}
    page = write_report(tmp_path, run_of(target_of((1,))), results=about).read_text()
    assert "Ours: exact KL" in page and "0.2500" in page and "50.0%" in page and "not finite" in page


# --- In a browser


@contextmanager
def opened(page, width, dark=False):
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options, Service(shutil.which("chromedriver")))
    try:
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme})
        driver.get(page.as_uri())
        settle(driver)
        yield driver
        assert driver.get_log("browser") == []
    finally:
        driver.quit()


def settle(driver):
    """Wait until what was asked for is drawn."""
    driver.execute_async_script("const d = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(() => d()))")


def seen(driver):
    """Every canvas as its pixels, and the numbers at the cursor."""
    pictures = driver.execute_script(
        "return Object.fromEntries([...document.querySelectorAll('canvas')].map((c) => [c.id, c.toDataURL()]))"
    )
    text = driver.execute_script("return document.querySelector('.control').innerText")
    return pictures, text


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    if shutil.which("chromium") is None or shutil.which("chromedriver") is None:
        pytest.skip("chromium is not installed")
    place = tmp_path_factory.mktemp("pages")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(explorer, "MOST_SAMPLES", 1000)
        patch.setattr(views, "PIXELS", 24)
        wide = run_of(target_of(density=lambda x, c: -(x**2).sum() / (2.0 * c) - 0.3 * x[0] ** 4))
        ten = run_of(target_of((10,), lambda x, c: -((x**2) / (2.0 * c)).sum()))
        about = record("e", [row(m, k, 1.0, [0.5]) for m in ("ours", "other") for k in ("kl", "ess")], 1.0)
        contents = {
            "plane": explore(wide, data_of(), name="plane", results=about),
            "ten": explore(ten, data_of((10,)), name="ten"),
            "field": explore(run_of(ScalarField(4))),
            "moons": explore(run_of(TwoMoons(likelihood=False), observed=(2,))),
            "axes": explore(run_with_axes(), {(1.0, 0.0): data_of()[1.0]}, name="axes"),
        }
    for name, content in contents.items():
        (place / f"{name}.html").write_text(render(content))
    return place


@pytest.mark.parametrize("width", [1280, 400])
def test_keys_move_pictures_and_numbers(pages, width):
    from selenium.webdriver.common.keys import Keys

    with opened(pages / "plane.html", width) as driver:
        slider = driver.find_element("id", "c")
        before, text = seen(driver)
        said = slider.get_attribute("aria-valuetext")
        slider.send_keys(Keys.ARROW_LEFT, Keys.ARROW_LEFT)
        settle(driver)
        after, moved = seen(driver)
        assert text != moved and slider.get_attribute("aria-valuetext") != said
        for name in before:
            still = name.startswith("training") or name == "points-data"
            assert (before[name] == after[name]) == still, name
        slider.send_keys(Keys.END)
        settle(driver)
        assert seen(driver) == (before, text)
        assert driver.execute_script("return getComputedStyle(document.activeElement).outlineStyle") == "solid"


@pytest.mark.parametrize("name", ["plane", "ten", "field", "moons", "axes"])
def test_nothing_is_cut_off_on_a_phone(pages, name):
    with opened(pages / f"{name}.html", 400) as driver:
        driver.execute_script("for (const d of document.querySelectorAll('details')) d.open = true")
        settle(driver)
        wide = driver.execute_script("return [document.documentElement.scrollWidth, window.innerWidth]")
        assert wide[0] <= wide[1]
        beyond = driver.execute_script(
            "return [...document.querySelectorAll('main *')].filter((e) => !e.closest('.scroll') &&"
            " e.getBoundingClientRect().right > innerWidth + 1).map((e) => e.outerHTML.slice(0, 80))"
        )
        assert beyond == []
        assert (
            driver.execute_script("return Math.max(...[...document.querySelectorAll('canvas')].map(c => c.width))") > 0
        )


@pytest.mark.parametrize("width", [1280, 400])
def test_each_axis_has_a_slider_and_a_map_is_one_for_both(pages, width):
    from selenium.webdriver.common.keys import Keys

    with opened(pages / "axes.html", width) as driver:
        before, text = seen(driver)
        assert {"map-ess", "map-largest", "map-log-z"} <= set(before) and "curve-ess" not in before
        for name in ("c", "c-1"):
            driver.find_element("id", name).send_keys(Keys.ARROW_LEFT)
            settle(driver)
            after, moved = seen(driver)
            assert text != moved
            assert all(before[k] != after[k] for k in ("map-ess", "density-model", "points-model", "marginal-0"))
            before, text = after, moved
        place = driver.execute_script(
            "const m = document.getElementById('map-ess'), r = m.getBoundingClientRect();"
            "const at = { clientX: r.right - 20, clientY: r.top + 40, buttons: 1 };"
            "m.dispatchEvent(new PointerEvent('pointerdown', at));"
            "return ['c', 'c-1'].map((i) => [document.getElementById(i).value, document.getElementById(i).max])"
        )
        assert all(value == top for value, top in place)  # the upper corner of both
        settle(driver)
        assert seen(driver)[1] != text


def test_dark_mode_is_that_of_the_system_and_can_be_changed(pages):
    def ground(driver):
        return driver.execute_script("return getComputedStyle(document.body).backgroundColor")

    with opened(pages / "plane.html", 1280) as light, opened(pages / "plane.html", 1280, dark=True) as dark:
        assert ground(light) != ground(dark)
        bright = seen(light)[0]
        assert bright["curve-ess"] != seen(dark)[0]["curve-ess"]
        light.find_element("id", "theme").click()
        settle(light)
        assert ground(light) == ground(dark)
        assert seen(light)[0]["curve-ess"] == seen(dark)[0]["curve-ess"]


def test_options_and_playing_change_the_pictures(pages):
    with opened(pages / "ten.html", 1280) as driver:
        before, _ = seen(driver)
        driver.execute_script(
            "const s = document.getElementById('up'); s.value = 4; s.dispatchEvent(new Event('change'))"
        )
        driver.find_element("id", "zoom").click()
        settle(driver)
        after, _ = seen(driver)
        assert before["points-model"] != after["points-model"]
        value = driver.find_element("id", "c").get_attribute("value")
        driver.find_element("id", "play").click()
        driver.execute_async_script("setTimeout(arguments[0], 600)")
        driver.find_element("id", "play").click()
        assert driver.find_element("id", "c").get_attribute("value") != value
        assert driver.find_element("id", "play").get_attribute("aria-pressed") == "false"


def test_only_what_is_better_is_emphasised():
    """Less KL, more ESS; and nothing where two are shown as the same number."""
    numbers = {("a", "kl"): [0.1, 0.2], ("b", "kl"): [0.3, 0.2], ("a", "ess"): [0.5, 0.9], ("b", "ess"): [0.6, 0.9001]}
    rows = [row(m, k, c, [v]) for (m, k), values in numbers.items() for c, v in zip((1.0, 2.0), values, strict=True)]
    page = html.results(record("e", rows, 1.0))
    assert re.findall(r"<td class=best>(.*?)</td>", page) == ["0.1000", "60.0%"]
