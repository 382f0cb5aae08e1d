"""One self-contained HTML page: pictures inside, readable on a phone and at a desk."""

import base64
import html
from collections.abc import Sequence
from pathlib import Path

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
  :root {{ color-scheme: light; --ink: #1d2733; --soft: #5b6876; --line: #dfe4ea; --accent: #0072B2; }}
  * {{ box-sizing: border-box; }}
  body {{ margin: 0; font: 16px/1.55 system-ui, -apple-system, "Segoe UI", sans-serif; color: var(--ink);
         background: #f6f7f9; }}
  main {{ max-width: 62rem; margin: 0 auto; padding: 2rem 1.2rem 4rem; }}
  h1 {{ font-size: 1.7rem; line-height: 1.25; margin: 0 0 .3rem; }}
  h2 {{ font-size: 1.15rem; margin: 0 0 .6rem; }}
  p.lead {{ color: var(--soft); margin: 0 0 1.5rem; }}
  section {{ background: #fff; border: 1px solid var(--line); border-radius: .6rem; padding: 1.1rem 1.2rem;
            margin: 0 0 1.2rem; }}
  img {{ max-width: 100%; min-width: min(36rem, 160vw); height: auto; display: block; margin: 0 auto; }}
  figcaption, .note {{ color: var(--soft); font-size: .92rem; margin-top: .5rem; overflow-wrap: anywhere; }}
  summary {{ font-size: 1.15rem; font-weight: 700; cursor: pointer; }}
  figure {{ margin: 0; }}
  .scroll {{ overflow-x: auto; }}
  table {{ border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; font-size: .95rem; }}
  th, td {{ text-align: right; padding: .32rem .7rem; border-bottom: 1px solid var(--line); white-space: nowrap; }}
  th:first-child, td:first-child {{ text-align: left; }}
  thead th {{ color: var(--soft); font-weight: 600; }}
  td.best {{ font-weight: 700; color: var(--accent); }}
  .verdict {{ border-left: .4rem solid var(--line); }}
  .verdict.good {{ border-color: #1a9850; }} .verdict.usable {{ border-color: #f0a202; }}
  .verdict.not {{ border-color: #c0392b; }} .verdict p {{ margin: .3rem 0; }}
  pre {{ margin: 0; overflow-x: auto; font-size: .85rem; }}
</style></head><body><main>
<h1>{title}</h1><p class="lead">{lead}</p>
{body}
</main></body></html>
"""


def figure(path: Path, title: str, caption: str) -> str:
    """A section with a PNG embedded."""
    data = base64.b64encode(path.read_bytes()).decode()
    return (
        f"<section><h2>{html.escape(title)}</h2><figure>"
        f'<div class=scroll><img alt="{html.escape(title)}" src="data:image/png;base64,{data}"></div>'
        f"<figcaption>{html.escape(caption)}</figcaption></figure></section>"
    )


def table(
    title: str, header: Sequence[str], rows: Sequence[Sequence[str]], best: Sequence[int] = (), note: str = ""
) -> str:
    """A section with a table; ``best`` names columns to emphasise."""
    head = "".join(f"<th>{html.escape(h)}</th>" for h in header)
    body = "".join(
        "<tr>"
        + "".join(f"<td{' class=best' if i in best else ''}>{html.escape(cell)}</td>" for i, cell in enumerate(cells))
        + "</tr>"
        for cells in rows
    )
    after = f'<p class="note">{html.escape(note)}</p>' if note else ""
    return (
        f"<section><h2>{html.escape(title)}</h2><div class=scroll><table><thead><tr>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table></div>{after}</section>"
    )


def verdict(level: str, summary: str, reasons: Sequence[str], advice: Sequence[str]) -> str:
    """The section at the head of the page: what the run is good for."""
    items = "".join(f"<li>{html.escape(r)}</li>" for r in reasons)
    hints = "".join(f"<p>Try: {html.escape(a)}</p>" for a in advice)
    return (
        f'<section class="verdict {level.split(maxsplit=1)[0]}"><h2>Verdict: {html.escape(summary)}</h2>'
        + (f"<ul>{items}</ul>" if items else "")
        + f"{hints}</section>"
    )


def preformatted(title: str, text: str) -> str:
    """A section with text as it is, folded away until asked for."""
    return (
        f"<section><details><summary>{html.escape(title)}</summary><pre>{html.escape(text)}</pre></details></section>"
    )


def page(title: str, lead: str, sections: Sequence[str]) -> str:
    """The whole page."""
    return PAGE.format(title=html.escape(title), lead=html.escape(lead), body="\n".join(sections))
