"""A figure that a notebook shows without pyplot: imported where it is drawn, since matplotlib takes a second."""

from __future__ import annotations

from io import BytesIO

from matplotlib.figure import Figure


class ShownFigure(Figure):
    """A ``matplotlib.figure.Figure`` that is its own picture as the last value of a notebook's cell.

    Jupyter draws figures once ``matplotlib.pyplot`` was imported; before that it would show their ``repr``.
    """

    def _repr_png_(self) -> bytes:
        content = BytesIO()
        self.savefig(content, format="png")
        return content.getvalue()
