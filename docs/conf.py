"""How the site is built. `make docs` makes it without a network."""

import sys
from pathlib import Path

import evenodds

sys.path.insert(0, str(Path(__file__).parent / "extensions"))

project = "evenodds"
author = "the evenodds authors"
version = release = evenodds.__version__
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "mathml",
    "settings_reference",
]
exclude_patterns = ["extensions"]
suppress_warnings = ["config.cache"]

myst_enable_extensions = ["amsmath", "attrs_inline", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
napoleon_google_docstring = True
napoleon_use_ivar = True

html_theme = "furo"
html_title = f"evenodds {version}"
html_static_path = ["_static"]
html_show_sourcelink = False
html_math_renderer = "mathml"
html_theme_options = {"navigation_with_keys": True}
html_css_files = ["site.css"]


def only_pages_that_exist(app, name: str, source: list[str]) -> None:
    """Leave patterns of the table of contents out that no page fits yet."""
    if name == "index":
        lines = source[0].split("\n")
        folder = Path(__file__).parent
        kept = [x for x in lines if not x.endswith("*") or any(folder.glob(f"{x}.md"))]
        source[0] = "\n".join(kept)


def setup(app) -> None:
    """Fill pages as they are read."""
    app.connect("source-read", only_pages_that_exist)
