"""An error in a notebook: a card with what, why and what to change, and the tracebacks folded.

IPython asks an exception for ``_render_traceback_``, and shows the lines that it returns below what it has drawn.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Mapping

from dask_train.cards import Card, FoldedText


def draw_error(error: BaseException, parts: Mapping[str, str]) -> list[str]:
    """Draw an error as a card below the notebook's cell; return the lines of text that stand below it.

    Parameters
    ----------
    error
        As it was raised.
    parts
        What it says, by the name of each part; what happened is the first.
    """
    ipython = sys.modules["IPython"]
    cell = ipython.get_ipython().execution_count
    if vars(error).get("_drawn_in") != cell:  # IPython asks twice: to show the error, and for its history
        vars(error)["_drawn_in"] = cell
        text = "".join(traceback.format_exception(error))
        ipython.display.display({"text/plain": text, "text/html": card_of(error, parts).html()}, raw=True)
    return [f"{type(error).__name__}: {next(iter(parts.values()))}"]


def card_of(error: BaseException, parts: Mapping[str, str]) -> Card:
    """Return the card of an error: its parts, short notes, and the rest to be unfolded."""
    notes = [note.strip() for note in getattr(error, "__notes__", ())]
    facts = [*parts.items(), *(("", note) for note in notes if "\n" not in note)]
    folds = [_fold(note) for note in notes if "\n" in note]
    return Card(
        kind=type(error).__name__,
        facts=[(name, text) for name, text in facts if text],
        folds=[*folds, FoldedText(title="Traceback in this notebook", text=_frames(error))],
    )


def _fold(note: str) -> FoldedText:
    """Fold a note whose first line says what it is, such as the traceback of a role."""
    title, _, text = note.partition("\n")
    return FoldedText(title=title.rstrip(":"), text=text)


def _frames(error: BaseException) -> str:
    """Return where the error passed in the notebook's process, from the cell on, without its notes."""
    frames = traceback.extract_tb(error.__traceback__)
    cells = [number for number, frame in enumerate(frames) if "ipykernel_" in frame.filename]
    return "".join(traceback.format_list(frames[cells[0] if cells else 0 :])).rstrip()
