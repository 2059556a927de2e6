"""Sphinx configuration: Markdown pages (MyST), an API reference from docstrings, and the command line reference."""

import sys
from pathlib import Path

from sphinx.application import Sphinx

from transduce import __version__

sys.path.insert(0, str(Path(__file__).parent))
import command_line

project = "transduce"
version = release = __version__
copyright = f"the authors of transduce, Apache License 2.0; this is version {release}"
extensions = ["myst_parser", "sphinx.ext.autodoc"]
html_theme = "furo"
html_title = f"transduce {release}"
html_copy_source = False
html_static_path = ["static"]
html_css_files = ["site.css"]
html_js_files = ["site.js", "try.js"]
html_favicon = "static/favicon.svg"
myst_enable_extensions = ["attrs_block", "attrs_inline"]
highlight_language = "text"
smartquotes = False  # or `--output` in help texts would get a dash
default_role = "code"  # docstrings write code in single backticks
autodoc_member_order = "bysource"
myst_heading_anchors = 3


def add_commands(app: Sphinx, docname: str, source: list[str]) -> None:
    """Append the generated reference to the page of the command line."""
    if docname == "command-line":
        source[0] += command_line.reference()


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("source-read", add_commands)
