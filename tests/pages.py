"""Pages of the documentation: their code, run as it is printed, their commands and their links."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]
FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)")


def name_of(page):
    return page.relative_to(ROOT).as_posix()


def blocks(page, *languages):
    """The number of the first line, and the text, of each block in one of some languages."""
    text = page.read_text()
    return [(text[: m.start(3)].count("\n"), m[3]) for m in FENCE.finditer(text) if m[2] in languages]


def run_page(page):
    """The names that the Python blocks of a page leave behind, run in order."""
    found = blocks(page, "python")
    assert found
    names: dict = {"__name__": page.stem}
    for line, text in found:
        exec(compile("\n" * line + text, str(page), "exec"), names)
    return names


def links(page):
    """What a page links to, or shows, outside its code."""
    text = re.sub(r"`[^`\n]*`", "", FENCE.sub("", page.read_text()))
    return [link for link in LINK.findall(text) if not re.match(r"[a-z]+:", link)]


def anchors(page):
    """The headings of a page, as links name them."""
    found: list[str] = []
    for heading in re.findall(r"^#+ (.*)$", FENCE.sub("", page.read_text()), re.MULTILINE):
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        found.append(f"{slug}-{found.count(slug)}" if slug in found else slug)
    return found
