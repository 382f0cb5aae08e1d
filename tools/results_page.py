"""``docs/results.md``, ``docs/gallery.md`` and the table in the README, written from the files in ``results/``.

    python tools/results_page.py            # write them
    python tools/results_page.py --check    # fail if one differs from what the files say

Nothing but the standard library is imported, so that a check takes a blink.
"""

import json
import math
import re
import sys
from pathlib import Path
from typing import Any

from results_more import ablation, devices, growth, lattices, several_axes, whole, without_data, zoo
from results_text import CAPTIONS, COMPARED, EARLIER, METRICS, OBSERVABLES, SECTIONS, Section

ROOT = Path(__file__).parent.parent
RESULTS, README = ROOT / "results", ROOT / "README.md"
PAGE, GALLERY, METHOD = ROOT / "docs" / "results.md", ROOT / "docs" / "gallery.md", ROOT / "docs" / "method.md"
BLOCK = re.compile(r"(<!-- results -->\n).*?(<!-- /results -->)", re.DOTALL)
ZOOS = ("zoo", "zoo_quick")  # of another form than the experiments'

UP = ("ess",)  # metrics of which more is better; of the others, less

Row = dict[str, Any]


def main(arguments: list[str]) -> None:
    """Write, or check."""
    files = {
        name: json.loads((RESULTS / name / "results.json").read_text())
        for name in [
            *(name for known in SECTIONS for name in (known, f"{known}_default")),
            *sorted(p.parent.name for p in RESULTS.glob("*/results.json") if p.parent.name not in ZOOS),
        ]
        if (RESULTS / name / "results.json").exists()
    }
    speed = RESULTS / "benchmarks.json"
    page = results_page(files, json.loads(speed.read_text()) if speed.exists() else {})
    wanted = {
        PAGE: page,
        GALLERY: gallery(files),
        README: with_block(README, readme_table(files)),
        METHOD: with_block(METHOD, ablation(RESULTS / "zoo_quick")),
    }
    if "--check" in arguments:
        stale = [f for f, text in wanted.items() if not f.exists() or f.read_text() != text]
        if stale:
            names = " and ".join(str(f.relative_to(ROOT)) for f in stale)
            sys.exit(f"Not what results/ says: {names}. Run: python tools/results_page.py")
        return
    for file, text in wanted.items():
        file.write_text(text)


def with_block(file: Path, text: str) -> str:
    """A page with what stands between its marks replaced."""
    page = file.read_text()
    if len(BLOCK.findall(page)) != 1:
        sys.exit(f"{file.name} needs one block between <!-- results --> and <!-- /results -->.")
    return BLOCK.sub(lambda m: m[1] + text + m[2], page)


# Tables


def shown(value: float | None, metric: str) -> str:
    """A number as the tables print it."""
    if value is None or not math.isfinite(value):
        return "not finite"
    if metric == "ess":
        return f"{100 * value:.{2 if 0.9995 <= value < 1 else 1}f} %"
    return f"{value:.4f}" if abs(value) < 10 else f"{value:.2f}"


def best_of(entries: list[tuple[float, float]], metric: str) -> int | None:
    """Which (mean, spread) is best, if it is better than the next one by more than either's spread.

    Args:
        entries: Means and their standard deviations over seeds, 0 where there is one seed.
        metric: Decides whether more or less is better.

    Returns:
        Its place, or None if no entry is really best.
    """
    order = sorted(
        (i for i, (mean, _) in enumerate(entries) if math.isfinite(mean)),
        key=lambda i: entries[i][0],
        reverse=metric in UP,
    )
    if len(order) < 2:
        return None
    (first, spread), (second, other) = entries[order[0]], entries[order[1]]
    clear = abs(first - second) > max(spread, other) and shown(first, metric) != shown(second, metric)
    return order[0] if clear else None


def head_of(symbol: str, conditions: list[float]) -> str:
    """The first two lines of a table with a column for every condition."""
    return (
        f"| {symbol} = | " + " | ".join(f"{c:.4g}" for c in conditions) + " |\n" + "|---" * (len(conditions) + 1) + "|"
    )


def metric_table(rows: list[Row], metric: str, symbol: str, *, ranked: bool = True, errors: str = "") -> str:
    """Methods against conditions, the paper's numbers in brackets, the best in bold.

    Args:
        rows: Those of one experiment.
        metric: Which of them.
        symbol: What the condition is called.
        ranked: Whether one of them is better than another.
        errors: The metric with standard errors, for rows of one seed.
    """
    own = [r for r in rows if r["metric"] == metric]
    conditions = list(dict.fromkeys(r["condition"] for r in own))
    methods = list(dict.fromkeys(r["method"] for r in own))
    cells = {(r["method"], r["condition"]): r for r in own}
    uncertain = {(r["method"], r["condition"]): r["mean"] for r in rows if r["metric"] == errors}
    bold = set()
    for c in conditions:
        column = [(m, kind) for m in methods if (m, c) in cells for kind in ("mean", "paper")]
        found = [(cells[m, c][kind], cells[m, c]["std"] if kind == "mean" else 0.0) for m, kind in column]
        # A method that shares its paper row with another is not compared with itself.
        entries = dict(zip(column, found, strict=True))
        papers = {}
        for (m, kind), (value, _) in entries.items():
            if kind == "paper" and value is not None:
                papers.setdefault(value, (m, kind))
        kept = [k for k, v in entries.items() if v[0] is not None and (k[1] == "mean" or k in papers.values())]
        winner = best_of([(entries[k][0], entries[k][1] or 0.0) for k in kept], metric) if ranked else None
        if winner is not None:
            bold.add((*kept[winner], c))

    def cell(method: str, c: float) -> str:
        if (method, c) not in cells:
            return ""
        row = cells[method, c]
        text = shown(row["mean"], metric)
        text = f"**{text}**" if (method, "mean", c) in bold else text
        if row["seeds"] > 1 and row["std"] is not None:
            text += f" ± {shown(row['std'], metric).removesuffix(' %')}"
        elif (method, c) in uncertain:
            text += f" ± {shown(uncertain[method, c], metric)}"
        if row["paper"] is None:
            return text
        paper = shown(row["paper"], metric)
        return f"{text} ({f'**{paper}**' if (method, 'paper', c) in bold else paper})"

    lines = [head_of(symbol, conditions)]
    lines += [f"| {m} | " + " | ".join(cell(m, c) for c in conditions) + " |" for m in methods]
    return "\n".join(lines)


def observables(rows: list[Row], symbol: str) -> list[str]:
    """Lattice observables of the weighted models beside HMC, and how many agree."""
    at = {(r["method"], r["metric"], r["condition"]): r["mean"] for r in rows}
    conditions = list(dict.fromkeys(r["condition"] for r in rows if r["metric"] == "magnetisation"))
    methods = [m for m in dict.fromkeys(r["method"] for r in rows) if (m, "action_weighted", conditions[0]) in at]
    agree = {}
    for m in methods:
        ratios = [
            abs(at[m, f"{q}_weighted", c] - at["hmc", q, c])
            / math.hypot(at[m, f"{q}_weighted_error", c], at["hmc", f"{q}_error", c])
            for q in OBSERVABLES
            for c in conditions
        ]
        agree[m] = f"{sum(r <= 2 for r in ratios)} of {len(ratios)}"
    best = max(methods, key=lambda m: sum(at[m, "ess", c] for c in conditions))
    head = head_of(symbol, conditions)
    parts = [
        "### Observables, weighted by q/p, beside HMC",
        "Agreement with HMC within two standard errors: "
        + "; ".join(f"`{m}` {text}" for m, text in agree.items())
        + f". The tables have HMC and `{best}`.",
    ]
    for q, title in OBSERVABLES.items():
        lines = [head]
        for name, method, suffix in (("hmc", "hmc", ""), (f"{best}, weighted", best, "_weighted")):
            numbers = [(at[method, q + suffix, c], at[method, f"{q}{suffix}_error", c]) for c in conditions]
            lines.append(f"| {name} | " + " | ".join(f"{v:.4f} ± {e:.4f}" for v, e in numbers) + " |")
        parts += [f"#### {title}", "\n".join(lines)]
    return parts


# The page


def short(commit: str) -> str:
    """Seven digits, and whether the tree had changes."""
    digits, *rest = commit.split("-")
    return "-".join([digits[:7], *rest])


def is_earlier(name: str, results: dict[str, Any]) -> bool:
    """Whether the file was made by a recipe that the default has replaced."""
    return name in EARLIER and results["commit"].startswith(EARLIER[name])


def command(text: str) -> str:
    """As a user would type it, without the place where its files went."""
    return re.sub(r" --(out \S+|resume|overwrite)", "", text.replace("__main__.py", "trade"))


def seconds(about: dict[str, Any]) -> str:
    """Of one method, where they were measured."""
    took = about.get("seconds") or (about["ended"] - about["began"] if "ended" in about else None)
    return "" if took is None else f"{took:.0f}"


def energies(about: dict[str, Any]) -> str:
    """How often one seed of a method evaluated the density in training, in millions."""
    return "" if about.get("evaluations") is None else f"{about['evaluations'] / 1e6:.1f} M"


def about_section(name: str) -> Section:
    """What the page says of an experiment, or of its rows by the default alone, which have a folder of their own."""
    if name in SECTIONS:
        return SECTIONS[name]
    base = SECTIONS.get(name.removesuffix("_default"))
    if base is None:
        return Section(name, "c", "", {})
    text = "The same data, and nothing chosen but the size of the flow and the budget."
    return Section(f"{base.title}, by the default of `fit`", base.symbol, text, base.figures)


def section(name: str, results: dict[str, Any]) -> list[str]:
    """One experiment: what was done, its tables, where its rows come from."""
    about = about_section(name)
    rows = results["rows"]
    measured = {r["metric"] for r in rows}
    wall = f", {results['wall_seconds']:g} s" if results.get("wall_seconds") else ""
    where = f"{results['hardware']}, JAX {results['jax']}, commit {short(results['commit'])}{wall}"
    origin = f"`{command(results['command'])}`, {where}."
    parts = [f"## {about.title}", about.text, origin]
    if is_earlier(name, results):
        parts.append("*Made by an earlier recipe than today's default.*")
    if results.get("note"):
        parts.append(results["note"])
    for metric, title in METRICS.items():
        if metric in measured:
            parts += [f"### {title}", metric_table(rows, metric, about.symbol)]
            if metric == "ess" and "magnetisation" in measured:
                parts.append(means(rows))
    for metric, title in COMPARED.items():
        if metric in measured:
            table = metric_table(rows, metric, about.symbol, ranked=False, errors=f"{metric}_error")
            parts += [f"### {title}", table]
    if "magnetisation" in measured:
        parts += observables(rows, about.symbol)
    for file, caption in about.figures.items():
        if (RESULTS / name / file).exists():
            parts.append(f"![{caption}](../results/{name}/{file})")
            parts.append(f"*{caption}*")
    methods = results.get("methods")
    if methods:
        head = ("row", "seeds", "steps", "energies", "seconds", "commit", "hardware", "verdict")
        lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
        lines += [
            f"| {m} | {v['seeds']} | {v.get('steps', '')} | {energies(v)} | {seconds(v)} | {short(v['commit'])}"
            f" | {v['hardware']} | {', '.join(dict.fromkeys(t.split(';')[0] for t in v.get('verdicts', ())))} |"
            for m, v in methods.items()
        ]
        parts += ["### Where the rows come from", "\n".join(lines)]
    parts.append(f"All numbers: [results/{name}/results.json](../results/{name}/results.json).")
    return [p for p in parts if p]


def means(rows: list[Row]) -> str:
    """The ESS of each method over all conditions, and its spread over seeds."""
    own = [r for r in rows if r["metric"] == "ess"]
    texts = []
    for m in dict.fromkeys(r["method"] for r in own):
        values = [r["mean"] for r in own if r["method"] == m]
        spread = [r["std"] for r in own if r["method"] == m]
        texts.append(
            f"`{m}` {100 * sum(values) / len(values):.1f} % (spread over seeds {100 * sum(spread) / len(spread):.1f} %)"
        )
    return "Mean over the conditions: " + "; ".join(texts) + "."


def benchmarks(results: dict[str, Any]) -> list[str]:
    """Times of a step and of sampling beside other libraries."""
    parts = [
        "## Speed beside other libraries",
        "A full training step and a batch of samples, with the same flow as far as each library has it: small (d = 2, "
        "4 couplings of 32) and large (d = 5, 15 couplings of 256). Ratios are to `trade`; `trade-looped` is what runs "
        "of fewer than 30,000 steps take, `flowjax-in-trade` is flowjax's flow in our training step, `zuko` its "
        "coupling by masks and `zuko-coupling` its true coupling. Median of several rounds.",
    ]
    for device, about in results.items():
        versions = ", ".join(
            f"{k} {about[k]}" for k in ("jax", "flowjax", "torch", "zuko", "normflows") if about.get(k)
        )
        parts += [
            f"### {'GPU' if device == 'gpu' else 'CPU'}",
            f"`{command(about['command'])}`, {about['hardware']}, commit {short(about['commit'])}, {versions}.",
        ]
        lines = ["| size | library | step, ms | ratio | sampling, ms | ratio |", "|---|---|---|---|---|---|"]
        for size, found in about["sizes"].items():
            lines += [
                f"| {size} | {name} | {v['step_ms']:.1f} | {v['step_ratio']:.1f} | {v['sample_ms']:.1f}"
                f" | {v['sample_ratio']:.1f} |"
                for name, v in found["implementations"].items()
            ]
        parts.append("\n".join(lines))
        energies = about.get("energies", {})
        if energies:
            text = "Energies of alanine dipeptide per second: "
            text += f"{energies['per_second']:,} in batches of {energies['batch']:,}"
            if "openmm_per_second" in energies:
                text += f"; one by one with OpenMM {energies['openmm_per_second']:,}"
            parts.append(text + ".")
    parts.append("All numbers: [results/benchmarks.json](../results/benchmarks.json).")
    return parts


def results_page(files: dict[str, dict[str, Any]], speed: dict[str, Any]) -> str:
    """The whole page."""
    parts = [
        "<!-- Written by tools/results_page.py from results/: change nothing here. -->",
        "# Results",
        "Every table that the repository has, from the files in `results/`. Each names the command that made it, "
        "the hardware and the commit. Numbers are means ± standard deviations over seeds; in brackets is the "
        "paper's number, where it has one. A number is bold if it is better than all others in its column, the "
        "paper's included, by more than one standard deviation; rows of one seed have no spread and are compared "
        "as they are.",
        "`trade reproduce gaussian-mixture`, `multiwell`, `scalar-field`, `scalar-field-16`, `two-moons`, "
        "`two-moons-uniform` and `alanine-dipeptide` run these experiments; [What we changed](changes.md) says "
        "what our recipes do otherwise than the paper. Tables that were made by earlier recipes than today's "
        "default say so. `make results` runs all of it once more, on the GPU where there is one, and goes on where it "
        "was stopped; `python -m benchmarks.everything --ours` runs the default's rows alone.",
    ]
    for name, results in files.items():
        parts += section(name, results)
    parts += [*zoo(RESULTS / "zoo"), *without_data(RESULTS / "without_data"), *several_axes(RESULTS / "several_axes")]
    parts += lattices(RESULTS / "lattices")
    parts += [*devices(RESULTS / "devices.json", RESULTS / "benchmarks.json"), *growth(RESULTS / "growth.json")]
    if speed:
        parts += benchmarks(speed)
    parts += whole(RESULTS / "reproduction.json", "The whole, by one command")
    parts += whole(RESULTS / "reproduction_ours.json", "The default alone, by one command")
    return "\n\n".join(parts) + "\n"


def anchor(title: str) -> str:
    """What a heading is called in a link."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def gallery(files: dict[str, dict[str, Any]]) -> str:
    """Every figure with its caption, by experiment."""
    parts = [
        "<!-- Written by tools/results_page.py from results/: change nothing here. -->",
        "# Gallery",
        "Every figure in `results/`. The headings lead to the numbers behind them.",
    ]
    for name in files:
        about = about_section(name)
        found = sorted(p.relative_to(RESULTS / name).as_posix() for p in (RESULTS / name).rglob("*.png"))
        captions = about.figures | {f: CAPTIONS[Path(f).name] for f in found if f not in about.figures}
        if found:
            parts.append(f"## [{about.title}](results.md#{anchor(about.title)})")
        for file in sorted(found, key=list(captions).index):
            parts += [f"![{captions[file]}](../results/{name}/{file})", f"*{captions[file]}*"]
    return "\n\n".join(parts) + "\n"


# The README

HEADLINES = (
    ("gaussian_mixture", "kl", 4.833, "Six-mode mixture, data at c = 1", "KL at c = 4.83"),
    ("gaussian_mixture", "kl", 0.2069, "Six-mode mixture, data at c = 1", "KL at c = 0.207"),
    ("multiwell", "ess", 0.5, "Multi-well, data at T = 1", "ESS at T = 0.5"),
    ("multiwell", "ess", 1.0, "Multi-well, data at T = 1", "ESS at T = 1"),
    ("alanine_dipeptide", "nll_leapfrog", 300.0, "Alanine dipeptide, data at 600 K", "NLL at 300 K"),
    ("alanine_dipeptide", "nll_leapfrog", 600.0, "Alanine dipeptide, data at 600 K", "NLL at 600 K"),
)
PERFECT = {"kl": "0", "ess": "100 %"}


def readme_table(files: dict[str, dict[str, Any]]) -> str:
    """Six rows: ours beside the better of the paper's TRADE rows, and what a perfect model would have.

    Ours is the best of the rows that are named so; the default has a folder of its own where it alone was run anew.
    """
    lines = ["| problem | measure | here | paper | perfect |", "|---|---|---|---|---|"]
    earlier = False
    for name, metric, c, problem, measure in HEADLINES:
        best_of_all = max if metric in UP else min
        own = f"{name}_default" if f"{name}_default" in files else name
        at = {(r["method"], r["metric"]): r for r in files[own]["rows"] if r["condition"] == c}
        ours = [m for m, kind in at if kind == metric and m.startswith("trade")]
        ours = [m for m in ours if m.endswith("-ours")] or ours
        method = best_of_all(ours, key=lambda m, at=at, metric=metric: at[m, metric]["mean"])
        row = at[method, metric]
        beside = [r for r in files[name]["rows"] if (r["condition"], r["metric"]) == (c, metric)]
        paper = best_of_all(r["paper"] for r in beside if r["method"].startswith("trade") and r["paper"])
        if metric in PERFECT:
            perfect = PERFECT[metric]
        else:  # what the exact distribution scores on the same data
            perfect = shown(row["mean"] - at[method, metric.replace("nll", "nll_gap")]["mean"], metric)
        best = best_of([(row["mean"], row["std"]), (paper, 0.0)], metric)
        here, there = shown(row["mean"], metric), shown(paper, metric)
        here = f"**{here}**" if best == 0 else here
        here += f" ± {row['std'] * (100 if metric == 'ess' else 1):.1g}"
        mark = "†" if is_earlier(own, files[own]) else ""
        earlier = earlier or bool(mark)
        there = f"**{there}**" if best == 1 else there
        lines.append(f"| {problem}{mark} | {measure} | {here} | {there} | {perfect} |")
    text = "\n".join(lines) + "\n"
    if earlier:
        text += "\n† Made by earlier recipes, not by today's default.\n"
    return text


if __name__ == "__main__":
    main(sys.argv[1:])
