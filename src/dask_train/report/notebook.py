"""Text below a notebook's cell that is drawn again in its place.

Not rich's: that needs ipywidgets, and warns at every turn where they are missing (rich 15.0).
"""

from __future__ import annotations

import sys
from html import escape
from typing import Any

# What a notebook's line may be wide, in letters.
NOTEBOOK_COLUMNS = 120


def in_notebook() -> bool:
    """Whether this is a kernel of Jupyter, which draws, although its standard error is no terminal."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and type(ipython.get_ipython()).__name__ == "ZMQInteractiveShell"


class NotebookText:
    """One such text."""

    def __init__(self) -> None:
        self._display: Any = None

    def show(self, text: str) -> None:
        """Draw it, in place of what was drawn before."""
        shown = {"text/plain": text, "text/html": f"<pre>{escape(text)}</pre>"}
        if self._display is None:
            self._display = sys.modules["IPython"].display.display(shown, raw=True, display_id=True)
        else:
            self._display.update(shown, raw=True)
