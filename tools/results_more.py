"""Sections of ``docs/results.md`` for results with a file for each problem: without data, several axes, the zoo."""

import json
from pathlib import Path
from typing import Any

Entry = dict[str, Any]


def entries(folder: Path) -> dict[str, Entry]:
    """The files of a folder by the name of their problem."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}


def percent(value: float) -> str:
    """As the tables print it."""
    return f"{100 * value:.1f} %"


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """A table of Markdown."""
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def origin(found: dict[str, Entry]) -> str:
    """Where each file comes from, said once where all agree."""
    said: dict[tuple[str, str, str], list[str]] = {}
    for name, e in found.items():
        said.setdefault((e["hardware"], e["jax"], e["commit"]), []).append(name)

    def one(about: tuple[str, str, str], names: list[str]) -> str:
        digits, *rest = about[2].split("-")
        text = f"{about[0]}, JAX {about[1]}, commit {'-'.join([digits[:7], *rest])}"
        return text if len(said) == 1 else f"{', '.join(names)}: {text}"

    return "; ".join(one(*pair) for pair in said.items()) + "."


def without_data(folder: Path) -> list[str]:
    """Posteriors from their priors, densities by the bridge, and the ring."""
    found = entries(folder)
    if not found:
        return []
    rows = []
    for name, e in found.items():
        exact = f"{e['error']:+.4f} ± {e['sigma']:.4f}" if "error" in e else ""
        more = ""
        if "right_wells_worst" in e:
            more = f"wells off by at most {percent(e['right_wells_worst'])}"
        elif "modes_lost" in e:
            more = f"{e['modes_lost']} modes lost, the weakest has {percent(e['least_share_of_a_mode'])} of its share"
        elif "phi_positive" in e:
            weighted = f"{percent(e['phi_positive_weighted'])} ± {percent(e['phi_positive_error'])}"
            more = f"0 < φ < 130° {weighted} (raw {percent(e['phi_positive'])}), {e['evaluations']:,} energies"
        elif "ess_boundary" in e:
            more = f"at the data {percent(e['ess_boundary'])}"
        ess = e["ess"] if "ess" in e else e["ess_least"]
        level = e["verdict"].split(";")[0] if isinstance(e["verdict"], str) else e["verdict"]["level"]
        rows.append((name, percent(ess), exact, more, str(e["steps"]), f"{e['seconds']:.0f}", level))
    head = ("problem", "ESS", "error of log Z or evidence", "", "steps", "seconds", "verdict")
    return [
        "## Without a sample of the target",
        "Ten linear regressions from draws of their priors (the evidence is known), the 32-dimensional many-well of "
        "the FAB paper and a mixture of forty Gaussians by the bridge from a Gaussian, alanine dipeptide at 300 K by "
        "the bridge from a minimum of its energy; and the ring whose radius grows from 1, the data, to 3. Nothing is "
        "chosen. The ESS is that of the density that is wanted; of the ring the least over the range.",
        f"`python -m benchmarks.without_data`, {origin(found)}",
        table(head, rows),
    ]


def several_axes(folder: Path) -> list[str]:
    """Families with two and three parameters."""
    found = entries(folder)
    if not found:
        return []
    parts = [
        "## Several axes",
        "One flow for every point of a region, data at one point of it (of φ⁴ at two). Nothing is chosen. σ is the "
        "common standard error of a number and of what it stands beside.",
        f"`python -m benchmarks.several_axes`, {origin(found)}",
    ]
    rows = []
    for name, e in found.items():
        if "kl_most" in e:
            what = f"KL ≤ {e['kl_most']:.4f} at {len(e['kl'])} points"
            truth = (
                f"log Z within 2 σ at {percent(e['importance']['within_two_sigma'])} of"
                f" {e['importance']['points']} points (integral: {percent(e['integral']['within_two_sigma'])});"
                f" three paths differ by at most {e['paths_differ_sigmas']:.1f} σ"
            )
        elif "sigmas_most" in e:
            least = min(c["ess"] for c in e["checks"])
            what = f"least ESS {percent(least)} at five points"
            sigmas = [abs(s) for c in e["checks"] for q in c["quantities"].values() for s in q["sigmas"]]
            near = f"{sum(s <= 2 for s in sigmas)} of {len(sigmas)} numbers within 2 σ of HMC"
            truth = f"{near}, the worst {max(sigmas):.1f} σ"
        elif name == "dipeptide":
            what = f"ESS {percent(e['ess_mean'])} on average, least {percent(e['ess_least'])}, {len(e['ess'])} points"
            truth = f"NLL at most {max(c['nll_gap'] for c in e['checks']):.2f} above the exact one (below)"
        elif "ess_least" in e:
            what = f"ESS {percent(e['ess_mean'])} on average, least {percent(e['ess_least'])}, {len(e['ess'])} points"
            sigmas = [abs(s) for c in e["checks"] for s in c.get("sigmas", {}).values()]
            sigmas += [abs(c[k]["sigmas"]) for c in e["checks"] for k in ("volume", "energy") if k in c]
            logs = [abs(c["log_z_sigmas"]) for c in e["checks"] if "log_z_sigmas" in c]
            logs += [abs(r["sigmas"]) for r in e.get("log_z", [])]
            truth = (
                f"{sum(s <= 2 for s in sigmas)} of {len(sigmas)} observables within 2 σ of HMC;"
                f" {sum(s <= 2 for s in logs)} of {len(logs)} differences of log Z"
            )
        else:
            continue
        rows.append((name, what, truth, str(e["steps"]), f"{e['seconds']:.0f}", e["verdict"].split(";")[0]))
    parts.append(table(("family", "model", "beside the truth", "steps", "seconds", "verdict"), rows))
    if "cost" in found:
        ratios = found["cost"]["ratio_to_one_axis"]
        parts.append(
            f"A step with two axes takes {ratios['2']:.2f} times one with one axis, with three {ratios['3']:.2f}."
        )
    for name, title in (("o-rings", "O-rings"), ("eight-schools", "Eight schools")):
        if name in found:
            parts += sensitivity(folder, name, title, found[name]["sensitivity"])
    return parts + (corners(found["dipeptide"]) if "dipeptide" in found else [])


def corners(e: Entry) -> list[str]:
    """A molecule at the ends of both axes, beside replica exchange."""

    def with_error(pair: list[float], digits: int) -> str:
        return f"{pair[0]:.{digits}f} ± {pair[1]:.{digits}f}"

    rows = []
    for c in e["checks"]:
        t, scale = c["c"]
        populations = (f"{c['phi_positive']:.4f}", f"{c['phi_positive_weighted']:.4f}")
        row = (f"{t:.0f} K, {scale:g}", percent(c["ess"]), with_error([c["nll_gap"], c["nll_gap_error"]], 3))
        log_z = (f"{c['log_z_cold_hot']:.3f}", with_error(c["by_ladder"], 3)) if "by_ladder" in c else ("", "")
        rows.append((*row, *populations, with_error(c["phi_positive_exchange"], 4), *log_z))
    head = ("at", "ESS", "NLL above the exact one", "0 < φ < 130°, raw", "weighted", "replica exchange")
    return [
        "### Alanine dipeptide over temperature and the strength of a torsion",
        "The terms of C-N-CA-CB, the strongest about φ, are scaled from 0.5 to 1.5. Data: "
        f"{e['frames']:,} frames at 600 K and scale 1. Replica exchange in temperature at each scale is the truth; "
        "the last two columns are log Z(300 K) - log Z(600 K).",
        table((*head, "log Z difference", "replica exchange"), rows),
    ]


def lattices(folder: Path) -> list[str]:
    """Larger lattices with a coupling of order one."""
    found = entries(folder)
    if not found:
        return []
    conditions = [f"{c:.4f}" for c in next(iter(found.values()))["conditions"]]
    rows = []
    for name, e in sorted(found.items(), key=lambda pair: int(pair[0].rsplit("-", 1)[1])):
        sigmas = [abs(s) for c in e["checks"] for s in c.get("sigmas", {}).values()]
        near = f"{sum(s <= 2 for s in sigmas)} of {len(sigmas)}"
        level = e["verdict"].split(";")[0]
        rows.append((name, *map(percent, e["ess"]), near, str(e["steps"]), f"{e['seconds']:.0f}", level))
    return [
        "## φ⁴ with a coupling of order one, on larger lattices",
        "One flow for all hopping parameters, data at 0.29 and 0.32. Nothing is chosen. ESS at each hopping parameter, "
        "and how many observables are within 2 σ of chains.",
        f"`python -m benchmarks.lattices`, {origin(found)}",
        table(("lattice", *conditions, "within 2 σ", "steps", "seconds", "verdict"), rows),
    ]


def whole(file: Path, title: str) -> list[str]:
    """How long ``make results`` took, and each of its parts, some of them side by side."""
    if not file.exists():
        return []
    e = json.loads(file.read_text())
    rows = [(name, f"{seconds:.0f}") for name, seconds in e["seconds"].items()]
    return [
        f"## {title}",
        f"`{e['command']}`, {origin({'whole': e})[:-1]}, {e['wall_seconds']:.0f} s in all.",
        table(("part", "seconds"), rows),
    ]


def ablation(folder: Path) -> str:
    """The zoo's quick problems by the default, by each of its parts left out, and by the paper's choice."""
    path = folder / "results.json"
    if not path.exists():
        return ""
    found = json.loads(path.read_text())["entries"]
    problems = list(dict.fromkeys(e["problem"] for e in found))
    at = {(e["method"], e["problem"]): e for e in found}

    def cell(method: str, problem: str) -> str:
        e = at.get((method, problem))
        if e is None or "failed" in e:
            return "" if e is None else "failed"
        return f"{percent(e['ess_least'] or 0.0)} ({percent(e['ess_boundary'] or 0.0)})"

    methods = dict.fromkeys(e["method"] for e in found)
    rows = [(method, *(cell(method, problem) for problem in problems)) for method in methods]
    said = f"`python -m benchmarks.everything --parts {folder.name}`, {origin({e['problem']: e['run'] for e in found})}"
    return f"{table(('', *problems), rows)}\n\nLeast ESS over the range, and in brackets that at the data. {said}\n"


def sensitivity(folder: Path, name: str, title: str, e: Entry) -> list[str]:
    """The map over powers of prior and likelihood, and what is known locally."""
    rows = []
    for label, slopes in e["slopes_at_1_1"].items():
        local = (e["psense"] or {}).get(label)
        numbers = [f"{slopes[axis]:+.3f}" for axis in ("alpha", "beta")]
        numbers += ["", ""] if local is None else [f"{local[kind]:.3f}" for kind in ("prior", "likelihood")]
        rows.append((label, *numbers))
    head = ("quantity", "d mean/dα", "d mean/dβ", "psense, prior", "psense, likelihood")
    caption = f"{title}: posterior means over the powers of prior and likelihood, from samples at (1, 1) alone."
    return [
        f"### {title}: how much an answer owes to prior and likelihood",
        "Derivatives of posterior means at α = β = 1, beside the local sensitivity of ArviZ (`psense`) from the same "
        "samples.",
        table(head, rows),
        f"![{caption}](../results/{folder.name}/{name}.png)",
        f"*{caption}*",
    ]


def zoo(folder: Path) -> list[str]:
    """Problems that no setting was chosen for, by every method that was run."""
    path = folder / "results.json"
    if not path.exists():
        return []
    content = json.loads(path.read_text())
    runs: dict[str, tuple[Entry, list[Entry]]] = {}
    for e in content["entries"]:
        runs.setdefault(json.dumps(e["run"], sort_keys=True), (e["run"], []))[1].append(e)
    parts = [
        "## The zoo",
        "Problems of the kinds users have, nothing chosen. A star marks those that no setting was ever chosen on. All "
        "of a command ran side by side, so that seconds are of a shared card, and many of them compilation. Of two "
        "bananas that curve with c the far end is not followed.",
    ]
    head = ("problem", "method", "least ESS", "ESS at c₀", "largest KL", "log Z / σ, rms", "seconds", "verdict")
    for run, entries in runs.values():
        took = f", {run['wall_seconds']:.0f} s" if "wall_seconds" in run else ""
        text = f"`{run['command']}`, {origin({'zoo': run})[:-1]}{took}."
        parts += [text, table(head, [_of_zoo(e) for e in entries])]
    return parts


def _of_zoo(e: Entry) -> tuple[str, ...]:
    if "failed" in e:
        return (e["problem"], e["method"], "failed", "", "", "", "", "")
    kl = "" if e.get("kl_most") is None else f"{e['kl_most']:.4f}"
    off = "" if e.get("log_z_rms_sigmas") is None else f"{e['log_z_rms_sigmas']:.1f}"
    name = e["problem"] + (" *" if e["unseen"] else "")
    ess = percent(e["ess_least"] or 0.0), percent(e["ess_boundary"] or 0.0)
    return (name, e["method"], *ess, kl, off, f"{e['seconds']:.0f}", e.get("verdict", {}).get("level", ""))


CABLE, NETWORK = 360e9, 50e9  # bytes a second in an all-reduce within a machine (NVLink) and between machines
LATENCY = 20e-6  # seconds of each collective


def devices(file: Path, speed: Path) -> list[str]:
    """What devices say to each other in a step, and what that costs beside a step that was measured."""
    if not file.exists():
        return []
    content = json.loads(file.read_text())
    steps = json.loads(speed.read_text()).get("gpu", {}).get("sizes", {}) if speed.exists() else {}
    n, rows = content["devices"], []
    for e in content["rows"]:
        count = sum(c["count"] for c in e["collectives"].values())
        size = sum(c["bytes"] for c in e["collectives"].values())
        kinds = ", ".join(f"{c['count']} {kind}" for kind, c in sorted(e["collectives"].items())) or "none"
        measured = steps.get(e["size"], {}).get("implementations", {}).get("trade", {}).get("step_ms")
        numbers = ["", "", ""]
        if measured:
            shares = [
                measured / (measured + 1e3 * (2 * (n - 1) / n * size / speed + count * LATENCY))
                for speed in (CABLE, NETWORK)
            ]
            numbers = [f"{measured:.2f}", *(f"{100 * share:.0f} %" for share in shares)]
        rows.append((e["size"], str(e["seeds"]), f"{e['parameters']:,}", kinds, f"{size:,}", *numbers))
    head = (
        "size",
        "seeds",
        "parameters",
        "collectives",
        "bytes",
        "H200, ms a step",
        "expected, NVLink",
        "expected, network",
    )
    return [
        "## Many devices",
        f"What {n} devices say to each other in one step of the default, counted in the compiled program. With as many "
        "seeds as devices they say nothing. Expected is the part of a step that is not spent on it, each device having "
        f"the points that one has alone: at {CABLE / 1e9:.0f} GB/s within a machine, {NETWORK / 1e9:.0f} GB/s between "
        f"machines, and {1e6 * LATENCY:.0f} µs for each collective, which are assumed, beside the step of one H200, "
        "which is measured.",
        f"`{content['command']}`, {origin({'devices': content})}",
        table(head, rows),
    ]


def growth(file: Path) -> list[str]:
    """Time and memory of a step as the work grows."""
    if not file.exists():
        return []
    content = json.loads(file.read_text())
    rows = []
    for axis, e in content["axes"].items():
        bends = [f"{e[k]:,}" if e[k] is not None else "does not" for k in ("time_bends_at", "memory_bends_at")]
        rows.append(
            (
                axis,
                " / ".join(f"{v:,}" for v in e["values"]),
                " / ".join(f"{r:.2f}" for r in e["ratio"]),
                bends[0],
                " / ".join(f"{b / 2**20:.1f}" for b in e["bytes"]),
                bends[1],
            )
        )
    head = ("what grows", "values", "time of a step, ratio to the first", "bends at", "memory, MiB", "bends at")
    return [
        "## As the work grows",
        "A step of the default for a spline flow of six blocks with 64 units: d = 4, 16 conditions with 64 states "
        "each, 512 data of 10,000, one seed, except for what grows. A curve bends where twice the work begins to cost "
        "more than 1.4 times as much. Memory is that of the compiled step beside its arguments.",
        f"`{content['command']}`, {origin({'growth': content})}",
        table(head, rows),
    ]
