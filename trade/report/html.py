"""The parts of a page as HTML: what stands still is written here, what moves has a canvas for the script."""

import html
import json
import math
from collections.abc import Container, Iterable, Sequence
from importlib.resources import files
from typing import Any

import matplotlib as mpl
from matplotlib.colors import to_hex

from trade.evaluation.weights import Quality
from trade.experiments.results import by_method

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:">
<title>{title}</title>
<style>
{style}</style></head><body><main>
<header><h1>{title}</h1><button id="theme" type="button">Light or dark</button></header>
<p class="lead">{lead}</p>
{body}
</main>
<script type="application/json" id="content">{content}</script>
<script type="application/json" id="colours">{colours}</script>
<script>
{script}</script>
</body></html>
"""
PALETTES = {"density": "magma", "field": "RdBu_r"}
SHADES = 128
escape = html.escape


def page(title: str, lead: str, sections: Sequence[str], moving: dict[str, Any]) -> str:
    """The whole page.

    Args:
        title: Its title.
        lead: One sentence under it.
        sections: HTML.
        moving: Plain data for the script.

    Returns:
        HTML that needs nothing else.
    """
    assets = files("trade.report") / "assets"
    return PAGE.format(
        title=escape(title),
        lead=escape(lead),
        body="\n".join(sections),
        style=(assets / "explorer.css").read_text(),
        script="\n".join((assets / name).read_text() for name in ("plot.js", "explorer.js")),
        content=embedded(moving),
        colours=embedded({name: _shades(colours) for name, colours in PALETTES.items()}),
    )


def embedded(content: Any) -> str:
    """JSON that can stand inside a script element: it cannot end it."""
    text = json.dumps(content, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _shades(name: str) -> str:
    found = mpl.colormaps[name]
    return "".join(to_hex(found(i / (SHADES - 1)))[1:] for i in range(SHADES))


def table(
    header: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    best: Container[tuple[int, int]] = (),
    kind: str = "",
) -> str:
    """A table that scrolls on its own where it is too wide.

    Args:
        header: Names of the columns; none for a table without a head.
        rows: Text of the cells.
        best: Cells to emphasise, by row and column.
        kind: Class of the table.
    """
    head = "".join(f'<th scope="col">{escape(h)}</th>' for h in header)
    body = "".join(
        "<tr>"
        + "".join(f"<td{' class=best' if (i, j) in best else ''}>{escape(cell)}</td>" for j, cell in enumerate(cells))
        + "</tr>"
        for i, cells in enumerate(rows)
    )
    head = f"<thead><tr>{head}</tr></thead>" if header else ""
    return f'<div class="scroll"><table class="{kind}">{head}<tbody>{body}</tbody></table></div>'


def verdict(verdicts: Sequence[dict[str, Any]]) -> str:
    """What the run is good for: level, reasons, advice, and the weights over c."""
    if not verdicts:
        return (
            '<section class="verdict"><h2>Verdict: none</h2><p>It was not saved, and the target is not at hand: give'
            " --problem FILE.py.</p></section>"
        )
    first = verdicts[0]
    level = {"not checked": "unchecked"}.get(first["level"], first["level"].split(maxsplit=1)[0])
    reasons = "".join(f"<li>{escape(r)}</li>" for r in first["reasons"])
    parts = [f"<ul>{reasons}</ul>" if reasons else ""]
    parts += [f"<p>Try: {escape(a)}</p>" for a in first["advice"]]
    parts += [f"<p>Seed {i}: {escape(v['summary'])}.</p>" for i, v in enumerate(verdicts[1:], 1)]
    if first["table"]:
        parts.append(f"<details><summary>Importance weights over c</summary>{_weights(first['table'])}</details>")
    return f'<section class="verdict {level}"><h2>Verdict: {escape(first["summary"])}</h2>{"".join(parts)}</section>'


def _weights(columns: dict[str, list[float | None]]) -> str:
    def number(value: float | None, form: str) -> str:
        return "not known" if value is None else format(value, form)

    rows = [
        (
            *(number(v, ".4g") for v in c),
            f"{number(ess, '.1%')} ± {number(error, '.1%')}",
            number(largest, ".2%"),
            number(khat, ".2f"),
            number(log_z, ".3f") + ("" if log_z_error is None else f" ± {log_z_error:.3f}"),
        )
        for *c, ess, error, largest, khat, log_z, log_z_error in zip(*columns.values(), strict=True)
    ]
    axes = [name for name in columns if name not in Quality._fields]
    return table((*axes, "ESS", "largest weight", "Pareto k̂", "log Z"), rows)


def results(content: dict[str, Any]) -> str:
    """Every method's numbers at every condition, in the form of ``results.json``."""
    labels = content.get("labels", {})
    conditions, methods = by_method(content)

    def number(value: float, metric: str) -> str:
        if not math.isfinite(value):
            return "not finite"
        return f"{value:.1%}" if metric == "ess" else f"{value:.4f}"

    header = ["c", *[f"{labels.get(m, m)}: {labels.get(k, k)}" for m, t in methods.items() for k in t]]
    rows = [
        [f"{c:g}", *[number(v[i], k) for t in methods.values() for k, v in t.items()]] for i, c in enumerate(conditions)
    ]
    columns = [(m, k) for m, t in methods.items() for k in t]
    best = set()
    for metric in {k for _, k in columns}:
        own = [j for j, (_, k) in enumerate(columns, 1) if k == metric]
        for i in range(len(conditions)):
            values = {j: methods[columns[j - 1][0]][metric][i] for j in own}
            top = (max if metric == "ess" else min)(values.values())
            found = [j for j in own if rows[i][j] == number(top, metric)]
            best |= {(i, j) for j in found if len(found) < len(own)}  # one that is better than another
    made = f"{content['command']}; {content['hardware']}; JAX {content['jax']}; commit {content['commit']}"
    note = f'<p class="note">Made by {escape(made)}; {content["wall_seconds"]:g} s.</p>'
    return f"<section><h2>Results</h2>{table(header, rows, best=best)}{note}</section>"


def training(panels: Sequence[dict[str, Any]]) -> str:
    """Loss terms and ESS over the steps."""
    if not panels:
        return '<section><h2>Training</h2><p class="note">No metrics were kept.</p></section>'
    figures = []
    for i, panel in enumerate(panels):
        named = [s["name"] for s in panel["series"]]
        keys = "".join(f'<span><i style="--of:var(--line-{k % 5})"></i>{escape(n)}</span>' for k, n in enumerate(named))
        legend = f'<div class="legend">{keys}</div>' if any(named) else ""
        figures.append(figure(f"training-{i}", panel["title"], "wide", legend))
    many = max(len(s["y"]) for panel in panels for s in panel["series"])
    note = f" One line for each of {many} seeds." if many > 1 else ""
    return (
        f'<section><h2>Training</h2><div class="panels">{"".join(figures)}</div>'
        f'<p class="note">Loss terms and effective sample size as reported during training.{note} The largest'
        " hundredth of a loss is cut at the top.</p></section>"
    )


def data(content: dict[str, Any], origin: str) -> str:
    """How many states there are, their means and deviations, and what was found of them."""
    counts = table(("c", "states trained on", "held out"), content["counts"])
    if not content["counts"]:
        counts = "<p>There is no boundary value, and there are no data.</p>"
    moments = table(("c", "", "mean", "standard deviation"), content["moments"], kind="named")
    moments = moments if content["moments"] else ""
    more = (
        f'<p class="note">The first quantities; {content["more"]} more are not listed.</p>' if content["more"] else ""
    )
    found = "".join(f"<li>{escape(text)}</li>" for text in content["findings"])
    found = f"<h3>Do data and density belong together?</h3><ul>{found}</ul>" if found else ""
    note = f'<p class="note">{escape(origin)}</p>' if origin else ""
    return f"<section><h2>Data</h2>{note}{counts}{moments}{more if moments else ''}{found}</section>"


def commands(rows: Sequence[tuple[str, str]]) -> str:
    """How to make the run again, and what to do with it."""
    listed = "".join(f"<dt>{escape(what)}</dt><dd><code>{escape(text)}</code></dd>" for what, text in rows)
    return f'<section><h2>Commands</h2><dl class="commands">{listed}</dl></section>'


def settings(rows: Sequence[tuple[str, str]], versions: Sequence[tuple[str, str]], everything: Any) -> str:
    """Settings and versions as tables; all of them as JSON, folded."""
    text = escape(json.dumps(everything, indent=2))
    broken = [(escape(name).replace(".", ".<wbr>").replace("_", "_<wbr>"), escape(value)) for name, value in rows]
    listed = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in broken)
    return (
        f"<section><h2>Settings and versions</h2>{table((), versions, kind='text')}"
        f'<details><summary>All settings</summary><dl class="columns">{listed}</dl></details>'
        f"<details><summary>As JSON</summary><pre>{text}</pre></details></section>"
    )


def figure(name: str, title: str, kind: str, after: str = "") -> str:
    """A canvas with a title.

    Args:
        name: By which the script finds it.
        title: Text; ``{c}`` and ``{c0}`` become the condition and the boundary value that are shown.
        kind: Its classes.
        after: HTML below it.
    """
    spans = {key: f'<span data-show="{key}"></span>' for key in ("c", "c0")}
    said = escape(title.format(c="the slider", c0="the boundary"))
    return (
        f'<figure><b>{escape(title).format(**spans)}</b><canvas id="{name}" class="{kind}" role="img"'
        f' aria-label="{said}"></canvas>{after}</figure>'
    )
