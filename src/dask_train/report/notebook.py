"""What stands below a notebook's cell and is drawn again in its place.

Not rich's: that needs ipywidgets, and warns at every turn where they are missing (rich 15.0).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

# What a notebook's line of text may be wide, in letters.
NOTEBOOK_COLUMNS = 120


class NotebookOutput:
    """An output of a notebook that is shown anew in place; plain HTML, so that it stays in a saved notebook."""

    def __init__(self) -> None:
        self._display: Any = None

    def show(self, text: str, html: str) -> None:
        """Draw it, in place of what was drawn before."""
        shown = {"text/plain": text, "text/html": html}
        if self._display is None:
            self._display = sys.modules["IPython"].display.display(shown, raw=True, display_id=True)
        else:
            self._display.update(shown, raw=True)


class NotebookButton:
    """A button below an output, where ipywidgets are installed; gone from the notebook when it is closed.

    Parameters
    ----------
    label
        What stands on it.
    pressed
        Called in the kernel's main thread, when no cell is running.
    """

    def __init__(self, label: str, pressed: Callable[[], None]) -> None:
        self._button: Any = None
        self._shown: Any = None
        if find_spec("ipywidgets") is not None:
            import ipywidgets

            self._button = ipywidgets.Button(description=label, icon="stop")
            self._button.on_click(lambda _: pressed())
            self._shown = sys.modules["IPython"].display.display(self._button, display_id=True)

    def close(self) -> None:
        """Take it away."""
        if self._button is not None:
            self._shown.update({"text/plain": ""}, raw=True)
            self._button.close()
