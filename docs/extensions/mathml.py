"""Equations as MathML, which browsers draw by themselves: the pages need no network."""

from typing import Any

from docutils import nodes
from docutils.utils.math import latex2mathml
from sphinx.application import Sphinx


def inline(writer: Any, node: nodes.math) -> None:
    """An equation within a line."""
    writer.body.append(f'<span class="math">{latex2mathml.tex2mathml(node.astext())}</span>')
    raise nodes.SkipNode


def display(writer: Any, node: nodes.math_block) -> None:
    """An equation on a line of its own."""
    body = latex2mathml.tex2mathml(node.astext(), as_block=True)
    number = f'<span class="eqno">({node["number"]})</span>' if node.get("number") else ""
    writer.body.append(f'<div class="math">{body}{number}</div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Offer the renderer to Sphinx."""
    app.add_html_math_renderer("mathml", (inline, None), (display, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
