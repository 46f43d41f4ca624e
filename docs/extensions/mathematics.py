"""Formulas as MathML, which browsers set by themselves: no script, no font, no network."""

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx


def mathml(tex: str, *, as_block: bool = False) -> str:
    """Return a formula in MathML; a bar is a fence, with no room beside it."""
    return tex2mathml(tex, as_block=as_block).replace(">|</mo>", ' lspace="0" rspace="0">|</mo>')


def _inline(translator: nodes.NodeVisitor, node: nodes.math) -> None:
    translator.body.append(mathml(node.astext()))
    raise nodes.SkipNode


def _block(translator: nodes.NodeVisitor, node: nodes.math_block) -> None:
    translator.body.append(f'<div class="formula">{mathml(node.astext(), as_block=True)}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Make it the renderer `mathml`."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    return {"parallel_read_safe": True}
