"""Pages of the documentation, run as they are printed."""

import re
from pathlib import Path

DOCS = Path(__file__).parent.parent / "docs"


def run_page(name):
    """The names that the Python blocks of a page leave behind."""
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / name).read_text(), re.DOTALL)
    assert blocks
    names: dict = {}
    exec("\n".join(blocks), names)
    return names
