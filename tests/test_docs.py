"""The pages of the documentation: every Python block runs as it is printed, commands and links exist."""

import functools
import json
import re
import shlex
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tyro
from jax.experimental.compilation_cache import compilation_cache
from pages import DOCS, PAGES, ROOT, anchors, blocks, links, name_of, run_page

import trade
from trade import cli

pytestmark = pytest.mark.optimised
ELSEWHERE = ("CONTRIBUTING.md", "docs/molecule.md")  # with tests of their own, of what comes out
RUNNING = [p for p in PAGES if blocks(p, "python") and name_of(p) not in ELSEWHERE]


def first_family(page):
    """Samples, mean energy and log Z at T = 0.5, without data there."""
    assert page["cold"].ess > 0.8
    truth = float(jax.vmap(page["energy"])(page["truth"]).mean())
    assert abs(float(page["cold"].mean(page["energy"])) - truth) < 0.15
    exact = page["exact"].log_partition(0.5) - page["exact"].log_partition(1.0)
    assert abs(page["value"] - exact) < 0.03
    assert page["again"].verdict.level in ("good", "usable with weights")


def posterior_and_evidence(page):
    np.testing.assert_allclose(page["mean"], page["exact_mean"], atol=0.03)
    assert abs(page["evidence"].value - page["exact_evidence"]) < 0.05


def lattice(page):
    """Between the data the weighted model has the magnetisation of HMC."""
    assert page["found"].ess > 0.3
    ours, theirs = page["ours"]["magnetisation"], page["theirs"]["magnetisation"]
    assert abs(ours.value - theirs.value) < 4 * np.hypot(ours.error, theirs.error)


def simulator(page):
    """Mean and width of both parameters follow the exact power posteriors, on a grid, at powers without pairs."""
    assert page["samples"].shape == (1000, 2)
    axis = np.linspace(-4.0, 4.0, 201)
    grid = np.stack(np.meshgrid(axis, axis, indexing="ij"), -1).reshape(-1, 2)
    decay = grid[:, :1] * np.exp(-np.exp(0.5 * grid[:, 1:]) * np.linspace(0.0, 2.0, 5))
    prior = np.asarray(jax.vmap(page["log_prior"])(jnp.asarray(grid)))
    for beta in (0.5, 2.0):
        means, widths = [], []
        for y in np.asarray(page["y"][:8]):
            log_q = prior - 0.5 * beta * (((y - decay) / 0.2) ** 2).sum(axis=1)
            weight = np.exp(log_q - log_q.max())
            mean = weight @ grid / weight.sum()
            width = np.sqrt(weight @ (grid - mean) ** 2 / weight.sum())
            x = np.asarray(page["run"].model.sample(jax.random.key(1), 4000, beta, y))
            means.append((x.mean(axis=0) - mean) / width)
            widths.append(np.log(x.std(axis=0) / width))
        assert np.abs(means).mean() < 0.2
        assert np.abs(np.mean(widths, axis=0)).max() < 0.1


def ten_lines(page):
    assert page["run"].verdict.level in ("good", "usable with weights")
    assert page["cold"].ess > 0.8
    assert np.isfinite(page["free"].at(0.5)).all()


def plane(page):
    """One point of the plane without data: mean of x0, and log Z at a corner by two routes."""
    assert page["run"].verdict.level in ("good", "usable with weights")
    assert page["cold"].ess > 0.8
    assert abs(float(page["cold"].mean(lambda x: x[0])) - float(page["p"] @ page["cells"][:, 0])) < 0.1
    assert abs(page["value"] - page["truth"]) < 0.05
    path = trade.evaluation.along_path(page["run"].model, page["target"], page["key"], page["way"], samples=2000)
    assert abs(path.value - page["truth"]) < 0.1


PROMISES = {
    "README.md": ten_lines,
    "docs/simulator.md": simulator,
    "docs/tutorials/evidence.md": posterior_and_evidence,
    "docs/tutorials/first.md": first_family,
    "docs/tutorials/lattice.md": lattice,
    "docs/tutorials/plane.md": plane,
}


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """What one page has compiled serves the next: some train the same problem."""
    before = {name: getattr(jax.config, name) for name in ("jax_enable_compilation_cache", "jax_compilation_cache_dir")}
    jax.config.update("jax_enable_compilation_cache", True)
    jax.config.update("jax_compilation_cache_dir", str(tmp_path_factory.mktemp("compiled")))
    compilation_cache.reset_cache()
    yield
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("page", RUNNING, ids=name_of)
def test_page_runs_and_keeps_its_promise(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = run_page(page)
    PROMISES.get(name_of(page), lambda _: None)(names)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_to_files_and_headings(page):
    for link in links(page):
        path, _, heading = link.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.is_file(), link
        assert file.is_relative_to(ROOT), link
        assert not heading or heading in anchors(file), link


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_modules_that_a_page_names_exist(page):
    """A path such as ``flows/spline.py`` is one below the package, or of the repository."""
    for path in re.findall(r"`([\w/]+/\w+\.py)`", page.read_text()):
        assert any((ROOT / start / path).exists() for start in ("", "trade")), path


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "sh")], ids=name_of)
def test_commands_of_a_page_are_understood(page):
    """Each line that calls the command line has arguments that it takes."""
    called = []

    def recorded(command):
        @functools.wraps(command)
        def instead(*args, **kwargs):
            called.append(command.__name__)

        return instead

    names = ("demo", "fit", "resume", "check", "sample", "report", "reproduce")
    commands = {name: recorded(getattr(cli, name)) for name in names}
    lines = [line for _, text in blocks(page, "sh") for line in text.splitlines() if line.startswith("trade ")]
    for line in lines:
        arguments = shlex.split(line, comments=True)[1:]
        tyro.extras.subcommand_cli_from_dict(commands, args=arguments)
    assert called == [line.split()[1] for line in lines]


def test_readme_is_one_screen():
    assert len((ROOT / "README.md").read_text().split()) <= 600


def test_numbers_are_those_of_the_results():
    subprocess.run([sys.executable, ROOT / "tools" / "results_page.py", "--check"], check=True)


@pytest.mark.slow
def test_o_rings_agree_with_hmc_at_both_ends(tmp_path):
    """The worked example, through its command line: means and intervals at β = 0.25 and 2, without data there."""
    script = DOCS.parent / "examples" / "o_rings.py"
    subprocess.run([sys.executable, script, "--out", tmp_path], check=True, capture_output=True)
    rows = json.loads((tmp_path / "results.json").read_text())["rows"]
    values = {(r["method"], r["metric"], r["condition"]): r["mean"] for r in rows}
    assert min(v for (_, metric, _), v in values.items() if metric == "ess") > 0.85
    for beta in (0.25, 2.0):
        for metric in ("slope", "slope_low", "slope_high", "intercept"):
            width = values["hmc", "slope_high", beta] - values["hmc", "slope_low", beta]
            assert abs(values["trade", metric, beta] - values["hmc", metric, beta]) < 0.05 * width
    assert (tmp_path / "sensitivity.png").stat().st_size > 10_000
