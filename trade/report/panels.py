"""The section of the page that follows the slider: its controls, its canvases, and captions that say what is there."""

from collections.abc import Sequence
from typing import Any

from trade.report.html import escape, figure

NUMBERS = {"n-ess": "ESS", "n-largest": "largest weight", "n-khat": "Pareto k̂"}


def section(moving: dict[str, Any], notes: Sequence[str]) -> str:
    """The slider and all that follows it.

    Args:
        moving: The plain data that the script gets.
        notes: What is not at hand, or was chosen.

    Returns:
        HTML.
    """
    said = "".join(f'<p class="note">{escape(text)}</p>' for text in notes)
    plane = moving["density"] is not None and moving["points"] is not None
    below = "" if plane else _points(moving)
    parts = (_density(moving), _torsions(moving), _fields(moving), _curves(moving), _marginals(moving), below)
    return (
        f'<section id="explorer"><h2>The model at every c</h2>{said}{_control(moving)}{"".join(parts)}'
        "<noscript><p>The pictures need JavaScript; everything else on this page does not.</p></noscript></section>"
    )


def _control(moving: dict[str, Any]) -> str:
    weights = moving["weights"]
    numbers = ""
    if weights is not None:
        names = NUMBERS | {"n-log-z": f"log Z(c) − log Z({weights['reference']})", "n-use": "at this c"}
        items = "".join(f'<div><dt>{escape(n)}</dt><dd id="{i}"></dd></div>' for i, n in names.items())
        numbers = f'<dl id="numbers">{items}</dl>'
    play = '<button id="play" type="button" aria-pressed="false" aria-label="Play: sweep c"></button>'
    sliders = []
    for i, axis in enumerate(moving["axes"]):
        own, name, last = "c" if i == 0 else f"c-{i}", escape(axis["name"]), len(axis["c"]) - 1
        sliders.append(
            f'<label for="{own}">{name} = <output id="{own}-value" for="{own}"></output></label>'
            f'<div class="track"><input type="range" id="{own}" min="0" max="{last}" step="1" value="0">'
            f'<div class="slider-marks" aria-hidden="true"></div></div>'
        )
    space = '<span aria-hidden="true"></span>'  # under the button
    return f'<div class="control" role="group" aria-label="Condition">{play}{space.join(sliders)}{numbers}</div>'


def _part(title: str, body: str, caption: str, options: str = "") -> str:
    return (
        f'<div class="part"><div class="top"><h3>{escape(title)}</h3>{options}</div>{body}'
        f'<div class="note">{caption}</div></div>'
    )


def _legend(*items: tuple[str, str, str]) -> str:
    """Of (colour, kind of line, text)."""
    keys = "".join(f'<span><i class="{k}" style="--of:var(--{of})"></i>{escape(t)}</span>' for of, k, t in items)
    return f'<div class="legend">{keys}</div>'


def _panels(figures: Sequence[str], kind: str = "") -> str:
    return f'<div class="panels {kind}">{"".join(figures)}</div>'


def _bar(colours: str) -> str:
    return f'<span class="bar" data-colours="{colours}"></span>'


def _density(moving: dict[str, Any]) -> str:
    density = moving["density"]
    if density is None:
        return ""
    how = (
        "by its exact log Z"
        if density["exact"]
        else "over the range that is shown, which is that of samples and data: what lies beyond is not seen"
    )
    truth = "" if density["target"] is None else f" The target's is normalised {how}."
    if len(moving["quantities"]) == 1:
        keys = [("model", "", "model")] + ([] if density["target"] is None else [("truth", "thick", "target")])
        body = _panels([figure("density-model", "c = {c}", "wide")])
        return _part("Density", body, f"The density of the model, without weights.{truth}", _legend(*keys))
    figures = [figure("density-model", "model, c = {c}", "square")]
    scale = "the model's"
    if density["target"] is not None:
        figures.append(figure("density-target", "target, c = {c}", "square"))
        scale = "the target's"
    figures += _scatters(moving)
    caption = (
        f"Densities: 0 {_bar('density')} {scale} maximum at this c, on a scale of the density to the power 0.4. The"
        f" model's is shown without weights.{truth} {_about_points(moving)}"
    )
    return _part("Densities and samples", _panels(figures, "square"), caption, _point_options(moving))


def _torsions(moving: dict[str, Any]) -> str:
    torsions = moving["torsions"]
    if torsions is None:
        return ""
    titles = {"raw": "model, c = {c}", "weighted": "model, weighted, c = {c}", "data": "data, c = {c0}"}
    figures = [figure(f"torsions-{n}", title, "square") for n, title in titles.items() if torsions[n] is not None]
    one, two = (escape(n) for n in torsions["names"])
    name = (
        "Ramachandran map" if (one, two) == ("φ", "ψ") else f"Map of {torsions['names'][0]} and {torsions['names'][1]}"
    )
    caption = (
        f"Histograms of ({one}, {two}), {moving['samples']:,} samples of the model: 1/1000 {_bar('density')} of the"
        " highest density at any c, on a logarithmic scale; cells that are empty or lower are black."
    )
    return _part(name, _panels(figures, "square"), caption)


def _fields(moving: dict[str, Any]) -> str:
    fields = moving["fields"]
    if fields is None:
        return ""
    figures = [figure("fields-model", "model, without weights, c = {c}", "fields")]
    if fields["data"]:
        figures.append(figure("fields-data", "data, c = {c0}", "fields"))
    caption = (
        f"Some states: −{fields['size']:g} {_bar('field')} {fields['size']:g}. Those of the model come from the same"
        " random numbers at every c."
    )
    return _part("Fields", _panels(figures), caption)


def _curves(moving: dict[str, Any]) -> str:
    weights = moving["weights"]
    if weights is None:
        return ""
    reference = weights["reference"]
    if len(moving["axes"]) > 1:
        return _maps(moving, reference)
    figures = [
        figure("curve-ess", "effective sample size (ESS)", "curve"),
        figure("curve-largest", "largest weight, as a part of all", "curve"),
    ]
    if any(weights["log_z"]):  # and not zero at the boundary alone
        figures.append(figure("curve-log-z", f"log Z(c) − log Z({reference})", "curve"))
    keys = [("model", "", "from the mean weight")]
    text = [
        "Bars are two standard errors; a hollow point has no error that can be known. Red: weights cannot be used."
        " Dotted: boundary values. Drag in a curve to move c."
    ]
    if weights["integral"] is not None:
        keys.append(("model", "dash", "integral of d log Z/du"))
        text.append("Both routes to log Z use the same samples, so that they can be wrong together.")
    if weights["exact"] is not None:
        keys.append(("truth", "thick", "exact"))
    source = f"{moving['samples']:,} samples at each c, drawn for this page."
    if weights["integral"] is None and moving["marginals"]["weighted"] is None:
        source = "Taken from the saved verdict; of a model with observations, the worst of several."
    legend = _legend(*keys) if len(figures) == 3 else ""
    return _part("Weights over c", _panels(figures), f"{legend}{source} {' '.join(text)}")


def _maps(moving: dict[str, Any], reference: str) -> str:
    """The weights over the first two axes, at the values that the sliders of the others have."""
    weights, names = moving["weights"], [axis["name"] for axis in moving["axes"]]
    figures = [
        figure("map-ess", "effective sample size (ESS)", "square map"),
        figure("map-largest", "largest weight, as a part of all", "square map"),
    ]
    if any(weights["log_z"]):
        figures.append(figure("map-log-z", f"log Z(c) − log Z({reference})", "square map"))
    others = f", at the {' and '.join(names[2:])} of the slider" if len(names) > 2 else ""
    caption = (
        f"{moving['samples']:,} samples at each of {len(moving['c'])} conditions, drawn for this page; over {names[0]}"
        f" and {names[1]}{others}. Colours: 0 to 100 % for the ESS, else from the least {_bar('density')} to the most."
        " Crossed out: weights cannot be used. Ring: the sliders. Triangles: boundary points. Press or drag in a map"
        " to move."
    )
    return _part("Weights over the conditions", _panels(figures, "square"), caption)


def _marginals(moving: dict[str, Any]) -> str:
    named, every = moving["quantities"], moving["all_quantities"]
    figures = [figure(f"marginal-{k}", _braces(q["name"]), "wide") for k, q in enumerate(named)]
    keys = [("raw", "fill", "model")]
    if moving["marginals"]["weighted"] is not None:
        keys.append(("model", "", "model, weighted"))
    if moving["has_data"]:
        keys.append(("data", "dash", "data at the nearest boundary value"))
    chosen = f"{len(named)} of {every} quantities: those that change most with c. " if every > len(named) else ""
    if moving["torsions"] is not None:
        chosen = chosen.replace("those", "the two of the map above, and those")
    caption = (
        f"{chosen}Histograms of {moving['samples']:,} samples; each panel has its own height, and what is much"
        " higher than the model's is cut. Red: weights cannot be used."
    )
    zoom = '<label><input type="checkbox" id="zoom"> axes follow c</label>'
    options = f'<div class="options">{_legend(*keys)}{zoom}</div>'
    return _part("Marginals", _panels(figures), caption, options)


def _points(moving: dict[str, Any]) -> str:
    if moving["points"] is None:
        return ""
    body = _panels(_scatters(moving), "square")
    return _part("Samples in pairs", body, _about_points(moving), _point_options(moving))


def _scatters(moving: dict[str, Any]) -> list[str]:
    weighted = "weighted samples" if moving["points"]["radius"] is not None else "samples"
    figures = [figure("points-model", f"{weighted}, c = {{c}}", "square")]
    return figures + ([figure("points-data", "data, c = {c0}", "square")] if moving["points"]["data"] else [])


def _about_points(moving: dict[str, Any]) -> str:
    count = moving["points"]["place"]["shape"][1]
    how = (
        " The area of a point is its weight, up to 16 times the mean; pale ones have equal areas."
        if moving["points"]["radius"]
        else ""
    )
    return f"{count:,} samples of the model, from the same random numbers at every c.{how}"


def _point_options(moving: dict[str, Any]) -> str:
    named = moving["quantities"]

    def choice(name: str, label: str, chosen: int) -> str:
        items = "".join(
            f'<option value="{k}"{" selected" if k == chosen else ""}>{escape(q["name"])}</option>'
            for k, q in enumerate(named)
        )
        return f'<label{"" if len(named) > 2 else " hidden"}>{label} <select id="{name}">{items}</select></label>'

    box = '<label><input type="checkbox" id="by-weight" checked> area by weight</label>'
    box = box if moving["points"]["radius"] is not None else ""
    return f'<div class="options">{choice("across", "across", 0)}{choice("up", "up", 1)}{box}</div>'


def _braces(text: str) -> str:
    """For a title in which braces have a meaning."""
    return text.replace("{", "{{").replace("}", "}}")
