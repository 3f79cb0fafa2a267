"""Settings of the documentation site: `tox -e docs` builds it, and any warning is an error."""

import re
import sys
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.utils.math import latex2mathml
from sphinx.util import logging
from sphinx.util.nodes import make_refnode

sys.path.insert(0, str(Path(__file__).parent))
from docstrings import translate
from reference import expanded, promised, whole_name

project = "plugrad"
author = "the plugrad authors"
version = release = version_of("plugrad")
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3  # links to headings, as GitHub makes them
html_theme = "furo"
html_title = f"plugrad {version}"
html_show_copyright = False
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_math_renderer = "mathml"  # browsers show it without a script from elsewhere
exclude_patterns = ["_build"]

autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_class_signature = "mixed"
maximum_signature_line_length = 88
python_use_unqualified_type_names = True
python_display_short_literal_types = True
default_role = "py:obj"  # docstrings have names in single backticks
napoleon_numpy_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True
toc_object_entries = False  # thousands of entries beside each page


def write_reference(app: Any, docname: str, source: list[str]) -> None:
    """Write what the blocks of a page ask for, and say the path of what lies outside this folder."""
    outside = rf"\[([^\]]+)\]\((?:\.\./){{{docname.count('/') + 1},}}([^)]+)\)"
    source[0] = re.sub(outside, r"\1 (`\2`)", expanded(source[0]))


def resolve(app: Any, env: Any, node: Any, contnode: Any) -> nodes.Node | None:
    """Link a name in backticks if one public name ends so."""
    if node.get("refdomain") != "py":
        return None
    objects = env.get_domain("py").objects
    name = whole_name(tuple(objects), node["reftarget"])
    if name is None:
        return None
    found = objects[name]
    return make_refnode(app.builder, node["refdoc"], found.docname, found.node_id, contnode, name)


def check_names(app: Any, env: Any) -> None:
    """Warn of public names that no page has: a warning is an error."""
    missing = sorted(promised() - env.get_domain("py").objects.keys())
    for name in missing:
        logging.getLogger(__name__).warning(
            "the reference has no %s: name its module on a page of docs/api", name
        )


def write_math(translator: Any, node: nodes.Element) -> None:
    """An equation as MathML, which docutils makes of LaTeX."""
    block = isinstance(node, nodes.math_block)
    math = latex2mathml.tex2mathml(node.astext(), as_block=block)
    translator.body.append(f'<div class="math" style="overflow-x: auto">{math}</div>' if block else math)
    raise nodes.SkipNode


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.add_html_math_renderer("mathml", (write_math, None), (write_math, None))
    app.connect("source-read", write_reference)
    app.connect("autodoc-process-docstring", translate, priority=100)  # before napoleon
    app.connect("missing-reference", resolve)
    app.connect("env-check-consistency", check_names)
