"""Hooks of the documentation site: the pages of the repository's root, the files that pages name, and the equations.

The pages are written to be read in the repository: links lead to files of the repository. Here each of them is led to
its place on the site, and what is no page (a figure, a results file, an example) is copied beside them.
"""

import html
import os.path
import re
from pathlib import Path, PurePosixPath
from typing import Any

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
ABOVE = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
LINK = re.compile(r"(\]\()([^)\s#]+)((?:#[^)\s]*)?\))")
FENCE = re.compile(r"(^```.*?^```)", re.DOTALL | re.MULTILINE)
SHIM = "https://unpkg.com/iframe-worker/shim"  # what search from a disk needs; we bring our own copy
MATHS = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the root."""
    for source, place in ABOVE.items():
        files.append(File.generated(config, place, content=(ROOT / source).read_text()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead links to where their files are on the site."""
    own = page.file.src_uri
    source = next((name for name, place in ABOVE.items() if place == own), f"docs/{own}")
    folder = PurePosixPath(source).parent

    def place(link: str) -> str:
        if re.match(r"[a-z]+:", link):
            return link
        path = os.path.normpath(folder / link)
        if path in ABOVE:
            found = ABOVE[path]
        elif path.startswith("docs/"):
            found = path.removeprefix("docs/")
        else:
            found = f"files/{path}"
            if not files.get_file_from_path(found):
                files.append(File.generated(config, found, abs_src_path=str(ROOT / path)))
        return os.path.relpath(found, PurePosixPath(own).parent)

    parts = FENCE.split(markdown)  # odd ones are code
    parts[::2] = [LINK.sub(lambda m: m[1] + place(m[2]) + m[3], text) for text in parts[::2]]
    return "".join(parts)


def on_page_content(content: str, **_: Any) -> str:
    """Equations as MathML, which browsers draw without scripts or fonts."""

    def drawn(match: re.Match) -> str:
        display = "block" if match[1] == "div" else "inline"
        drawing = convert(html.unescape(match[2]).strip(), display=display)
        return drawing.replace("<mi>log</mi>", '<mi>log</mi><mspace width="0.17em" />')

    return MATHS.sub(drawn, content)


def on_post_page(output: str, page: Page, **_: Any) -> str:
    """Nothing is fetched by a reader's browser."""
    return output.replace(
        SHIM, os.path.relpath("assets/iframe-worker/shim.js", PurePosixPath(page.file.src_uri).parent)
    )


def on_post_template(output_content: str, **_: Any) -> str:
    """Nor by the page that says that there is none."""
    return output_content.replace(SHIM, "assets/iframe-worker/shim.js")
