"""Settings of the documentation site: `tox -e docs` builds it, and any warning is an error."""

import re
from typing import Any

project = "plugrad"
author = "the plugrad authors"
extensions = ["myst_parser"]
myst_heading_anchors = 3  # links to headings, as GitHub makes them
html_theme = "furo"
html_title = "plugrad"
exclude_patterns = ["_build"]


def name_files_elsewhere(app: Any, docname: str, source: list[str]) -> None:
    """Say the path of what lies outside this folder, where the pages link to it: the site does not have it."""
    source[0] = re.sub(r"\[([^\]]+)\]\(\.\./([^)]+)\)", r"\1 (`\2`)", source[0])


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("source-read", name_files_elsewhere)
