"""Sphinx: MyST pages, an API reference from the docstrings, nothing fetched at build time."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import docstrings
import results_page

import shpi

project = "shpi"
author = "The shpi developers"
release = version = shpi.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]

html_theme = "furo"
html_title = f"shpi {version}"
html_theme_options = {"source_directory": "docs/", "footer_icons": []}
html_show_sphinx = False
html_show_copyright = False
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False

# What the extras bring need not be there to build the pages.
autodoc_mock_imports = [
    name for name in ("torch", "lightgbm", "gymnasium", "vowpalwabbit", "numba") if not find_spec(name)
]
autodoc_typehints = "none"  # signatures with every type are hard to read; the source has them
autodoc_member_order = "bysource"
autodoc_class_signature = "mixed"
autodoc_default_options = {"members": True}
napoleon_numpy_docstring = False
napoleon_use_rtype = False
python_use_unqualified_type_names = True


def setup(app: Any) -> None:
    """Docstrings are plain text with equations; they become reStructuredText before napoleon sees them.

    The page of results is read from the folder that `shpi reproduce` writes.
    """
    app.connect("autodoc-process-docstring", docstrings.process, priority=100)
    app.connect("autodoc-process-docstring", docstrings.restore, priority=900)
    app.connect("source-read", results_page.insert)
