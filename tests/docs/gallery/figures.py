"""How the pictures of the gallery look: their size, colours and axes."""

from __future__ import annotations

from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

mpl.rcParams.update(
    {
        **dict.fromkeys(("axes.titlesize", "axes.labelsize", "xtick.labelsize", "ytick.labelsize"), 8.5),
        **dict.fromkeys(("axes.spines.top", "axes.spines.right", "legend.frameon"), False),
        "legend.fontsize": 8,
    }
)

# Colours that people who see no red, or no green, tell apart (Okabe and Ito, 2008).
BLUE, RED, GREEN, PINK, ORANGE, SKY, GREY = "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#999999"
COLOURS = (BLUE, RED, GREEN, PINK, ORANGE, SKY, "#000000", "#8c6d31")
SIZE_IN = (4.8, 3.0)


def charts(num: int = 1, **settings: Any) -> tuple[Figure, list[Any]]:
    """A figure with axes beside each other, without a frame at the top and the right."""
    figure = Figure(figsize=SIZE_IN, layout="constrained")
    return figure, list(np.ravel(figure.subplots(1, num, **settings)))


def bars(values: dict[str, float], text: str, *, low: float = 0.0, marked: str = "") -> Figure:
    """A bar a name, the first at the top, with its value beside it as ``text`` formats it."""
    figure, (axes,) = charts()
    colours = [RED if name == marked else BLUE for name in values]
    drawn = axes.barh(list(values), list(values.values()), color=colours, height=0.6)
    axes.bar_label(drawn, [text.format(value) for value in values.values()], padding=4, fontsize=9)
    axes.invert_yaxis()
    axes.set_xlim(low, low + (max(values.values()) - low) * 1.18)
    axes.tick_params(axis="y", length=0)
    return figure


def alike(one: np.ndarray, other: np.ndarray, of_one: str, of_other: str, what: str) -> Figure:
    """Numbers that should be the same, one against the other, and how far the furthest are apart."""
    figure, (axes,) = charts()
    picked = np.random.default_rng(0).permutation(len(one))[:2000]
    ends = [float(one[picked].min()), float(one[picked].max())]
    axes.plot(ends, ends, color=GREY, lw=1, zorder=1)
    axes.plot(one[picked], other[picked], ".", color=BLUE, ms=4, alpha=0.5, zorder=2)
    axes.set(xlabel=of_one, ylabel=of_other)
    apart = float(np.abs(one - other).max())
    axes.set_title(
        f"{len(one):,} {what}, the furthest {apart:.0e} apart" if apart else f"{len(one):,} {what}, all equal"
    )
    return figure
