"""Colours of the page: light or dark, as the reader's system has it."""

from __future__ import annotations

from typing import Any

# The first bokeh whose charts are known to take colours from CSS (https://github.com/bokeh/bokeh/pull/13828). With an
# older one dark pages would have charts in dark letters, so all of it stays light.
_FROM_BOKEH = (3, 9)
# As on Dask's own pages: what is behind a chart is seen through it.
_CHARTS = {
    "Plot": {
        "background_fill_color": None,
        "border_fill_color": None,
        "min_border_left": 10,
        "min_border_right": 10,
    },
    "Toolbar": {"logo": None},
}
# Of the page around bokeh's parts, which is Dask's: its background and navigation bar.
_PAGE = """
@media (prefers-color-scheme: dark) {
  html { background: #16191d; color: #e6e6e6; color-scheme: dark; }
  .navbar ul, .dropdown-content { background-color: #23282e; }
  .navbar li a { color: #e6e6e6; }
  .navbar li:hover, .navbar li.active { background-color: #8a5a2b; }
  .bk-Tooltip { --color: #e6e6e6; --background-color: #2a3037; --divider-color: #565e66; }
  .bk-Tooltip { --tooltip-arrow-color: #2a3037; }
  #navbar-toggle-icon img { filter: invert(1); }
}
"""
# Of each of bokeh's parts: it has a shadow root of its own, where bokeh sets these variables anew.
_PART = """
@media (prefers-color-scheme: dark) {
  :host {
    color-scheme: dark;
    --color: #e6e6e6; --inverted-color: #fff; --placeholder-color: #9aa0a6; --icon-color: #b4bac0;
    --background-color: #1e2329; --surface-background-color: #2a3037; --hover-color: #2f363d;
    --border-color: #565e66; --divider-color: #444b52; --outline-color: #8a9199; --shortcut-color: #9aa0a6;
    --active-bg: #24506f; --active-fg: #9ccbea; --inactive-bg: #2a3037; --inactive-fg: #9aa0a6;
    --disabled-color: #9aa0a6; --disabled-background-color: #2a3037;
    --default: #2a3037; --default-border: #565e66; --default-hover: #343b43; --default-hover-border: #6b747d;
    --default-active: #24506f; --default-active-border: #4f93c0; --default-disabled: #23282e;
    --special: #23282e; --odd: #1c2126; --muted-text: #9aa0a6; --selected: #24405a;
    --light: #24405a; --light-border: #3f6f97; --light-text: #9ccbea;
    --bk-text-color: #e6e6e6; --bk-label-text-color: #e6e6e6;
    --bk-axis-label-text-color: #cfd3d7; --bk-major-label-text-color: #cfd3d7;
    --bk-axis-line-color: #8a9199; --bk-major-tick-line-color: #8a9199; --bk-minor-tick-line-color: #8a9199;
    --bk-grid-line-color: #343b43; --bk-outline-line-color: #343b43;
  }
  .bk-grid .bk-label { color: var(--color) !important; }
  .slick-row, .slick-header-column { background-color: var(--background-color); color: var(--color); }
  .slick-header-column { border-right-color: var(--divider-color) !important; }
  .slick-row.odd { background-color: var(--odd); }
  .slick-cell { border-bottom-color: var(--divider-color); }
  .slick-cell.selected { background-color: var(--selected); }
  .choices__list[aria-expanded] { background-color: var(--background-color); border-color: var(--border-color); }
  .choices__list[aria-expanded] .choices__item.is-highlighted { background-color: var(--surface-background-color); }
  select.bk-input { background-image: none; appearance: auto; }
}
"""
# A chart is drawn once; where the system changes, it is drawn again in the other colours.
_REDRAW = """
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    for (const view of Bokeh.index.all_views?.() ?? []) view.request_repaint?.()
})
"""


def set_theme(doc: Any) -> None:
    """Give a document, which has its parts, the colours that the reader's system asks for."""
    import bokeh
    from bokeh.events import DocumentReady
    from bokeh.models import CustomJS, GlobalInlineStyleSheet
    from bokeh.themes import Theme

    if tuple(map(int, bokeh.__version__.split(".")[:2])) < _FROM_BOKEH:
        doc.theme = Theme(json={"attrs": _CHARTS})
        return
    doc.theme = Theme(json={"attrs": {**_CHARTS, "StyledElement": {"stylesheets": [_PART]}}})
    doc.roots[0].stylesheets = [_PART, GlobalInlineStyleSheet(css=_PAGE)]
    doc.js_on_event(DocumentReady, CustomJS(code=_REDRAW))
