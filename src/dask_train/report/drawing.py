"""Matplotlib figures that neither read nor change the user's settings.

Owns how this room uses matplotlib: no pyplot (it would choose a backend for the whole process), no ``rcParams`` (they
are global, and a page should look the same whatever a notebook has set), and an SVG that can stand in a page.
"""

from __future__ import annotations

import re
from io import BytesIO
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# matplotlib is imported where it draws: it takes about a second of one core, which the live line needs none of.

# Stand-ins for the page's own colours: the SVG holds them as `var(--name)`, so that it follows light and dark.
PAGE_COLOURS = {"#010a01": "ink", "#010a02": "line", "#010a03": "curve", "#010a04": "target", "#010a05": "other-curve"}
INK, LINE, CURVE, TARGET, OTHER_CURVE = PAGE_COLOURS
# Without these, matplotlib writes a block that names outside addresses.
NO_METADATA = {"Creator": None, "Date": None, "Format": None, "Type": None}


def new_figure(width_in: float, height_in: float) -> Figure:
    """Make an empty, transparent figure.

    Parameters
    ----------
    width_in, height_in
        Size in inches.
    """
    from matplotlib.figure import Figure

    return Figure(figsize=(width_in, height_in), dpi=150, facecolor="none", edgecolor="none", layout="constrained")


def png_of(figure: Figure, background: str) -> bytes:
    """Draw a figure as a PNG of 150 pixels an inch on a background colour."""
    return _saved(figure, "png", background)


def svg_of(figure: Figure, prefix: str) -> str:
    """Draw a figure as an ``<svg>`` element for the inside of an HTML page.

    Parameters
    ----------
    figure
        Drawn with the colours of this module, which become CSS variables.
    prefix
        Put before every id, since the ids of two figures would clash in one page.

    Returns
    -------
    str
        The element, without the XML prolog, outside references and page-wide styles that matplotlib adds. It takes
        the width of what it is put into, and is hidden from screen readers: give its holder a label.
    """
    svg = _saved(figure, "svg", "none").decode()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<style.*?</style>|<!--.*?-->", "", svg, flags=re.DOTALL)
    opening, rest = svg.split(">", maxsplit=1)
    view = re.search(r'viewBox="[^"]*"', opening)
    assert view is not None, "matplotlib's svg has no viewBox"
    svg = f'<svg {view.group()} aria-hidden="true" focusable="false">{rest}'
    svg = re.sub(r'(\bid="|\bhref="#|url\(#)', rf"\g<1>{prefix}-", svg)
    for colour, name in PAGE_COLOURS.items():
        svg = svg.replace(colour, f"var(--{name})")
    return svg


def _saved(figure: Figure, file_format: str, background: str) -> bytes:
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        text.set(usetex=False, parse_math=False, fontfamily="DejaVu Sans")  # the font that matplotlib itself carries
    content = BytesIO()
    figure.savefig(
        content,
        format=file_format,
        dpi=150,
        facecolor=background,
        edgecolor="none",
        bbox_inches=figure.bbox_inches,  # the whole figure; None would mean rcParams["savefig.bbox"]
        metadata=NO_METADATA if file_format == "svg" else None,
    )
    return content.getvalue()
