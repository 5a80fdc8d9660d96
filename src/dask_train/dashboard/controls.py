"""What a reader can ask for: the stacks of a role; and, where that is allowed, the end of a run."""

from __future__ import annotations

import time
from typing import Any

from .actions import REASON, PageReader
from .traces import Trace
from .widgets import set_value

# How long a press on the button waits for the second one.
CONFIRM_S = 8.0
# How long an agent may take to tell stacks, half a second of which the role takes.
STACKS_S = 5.0
# In the stacks of the two threads that carry a role's messages, which are always there.
_OURS = "dask_train/role/link.py"


class StopButton:
    """Stops the run that is shown, when it is pressed twice."""

    def __init__(self, reader: PageReader) -> None:
        from bokeh.models import Button

        self._reader = reader
        self.root = Button(label="Stop", button_type="default", width=260, visible=False, margin=(23, 5, 5, 5))
        self.root.on_click(self._press)
        self._run: Any | None = None
        self._pressed = 0.0
        self._stopped = ""

    def update(self, run: Any | None) -> None:
        """Show this run from now on."""
        if (run and run.id) != (self._run and self._run.id) or time.monotonic() - self._pressed > CONFIRM_S:
            self._pressed = 0.0
        self._run = run
        set_value(self.root, "visible", self._reader.may_stop and run is not None and not run.ended)
        if run is not None:
            is_asked = self._stopped == run.id
            label = f"Press again to stop {run.id}" if self._pressed else f"Stop {run.id}"
            set_value(self.root, "label", f"{run.id} was asked to stop" if is_asked else label)
            set_value(self.root, "button_type", "danger" if self._pressed else "default")
            set_value(self.root, "disabled", is_asked)

    def _press(self) -> None:
        now, run = time.monotonic(), self._run
        if not self._reader.may_stop or run is None or run.ended:
            return
        if self._pressed and now - self._pressed <= CONFIRM_S:
            run.ask_to_stop(REASON)
            self._stopped, self._pressed = run.id, 0.0
        else:
            self._pressed = now
        self.update(run)


class Stacks:
    """Shows what a role of the run does now, when it is asked."""

    # Nothing here waits: the question goes to the role's agent, and what it tells is seen at one of the next looks.

    def __init__(self, reader: PageReader) -> None:
        from bokeh.layouts import column
        from bokeh.models import Button, PreText, Select

        self._reader = reader
        self._select = Select(title="Role", width=200, options=[])
        self._button = Button(label="Show its stacks and output", width=220, margin=(23, 5, 5, 5))
        self._button.on_click(self._press)
        self._text = PreText(
            text="", visible=False, sizing_mode="stretch_width", styles={"overflow": "auto", "max-height": "420px"}
        )
        chosen = column(self._select, self._button, styles={"flex-flow": "row wrap"})
        self.root = column(chosen, self._text, sizing_mode="stretch_width")
        self._run: Any | None = None
        self._asked: tuple[str, str, float] | None = None  # run, role, when

    def update(self, run: Any | None, trace: Trace, now: float) -> None:
        """Show this run from now on."""
        if (run and run.id) != (self._run and self._run.id):
            self._asked = None
            self._say("")
        self._run = run
        names = _alive(run)
        set_value(self._select, "options", list(names))
        if names and self._select.value not in names:
            self._select.value = next(iter(names))
        set_value(self.root, "visible", self._reader.may_ask and (bool(names) or bool(self._text.text)))
        if self._asked is None:
            return
        _, name, since = self._asked
        role, _, rank = name.rpartition(" ")
        picture = trace.pictures.get((role, int(rank)))
        if picture is not None and picture[0] >= since:
            self._tell(picture_text(name, picture[1]))
        elif now - since > STACKS_S:
            self._tell(f"The agent of {name} has not answered within {STACKS_S:g} s.")

    def _press(self) -> None:
        run, name, now = self._run, self._select.value, time.time()
        known = _alive(run).get(name)
        if not self._reader.may_ask or run is None or known is None:
            return
        key, attempt = known
        if run.ask_for_stacks(key, attempt):
            self._asked = (run.id, name, now)
            self._button.disabled = True
            self._say(f"Asked the agent of {name} ...")
        else:
            self._say(f"{name} has no agent at this moment.")

    def _tell(self, text: str) -> None:
        self._asked = None
        self._say(text)

    def _say(self, text: str) -> None:
        set_value(self._button, "disabled", self._asked is not None)
        set_value(self._text, "text", text)
        set_value(self._text, "visible", bool(text))


def _alive(run: Any | None) -> dict[str, tuple[tuple[str, int], int]]:
    """Return the roles that have a process, by name; their key and attempt."""
    roles = () if run is None or run.ended else run.summary.get("roles", ())
    return {f"{role} {rank}": ((role, rank), attempt) for role, rank, _, attempt, _, pid, *_ in roles if pid}


def picture_text(name: str, picture: Any) -> str:
    """Return a picture of a role, as ``dask_train.process.messages.Pictured`` has it, for people."""
    threads = [thread for thread in picture["stacks"].split("\n\n") if thread and _OURS not in thread]
    parts = [
        f"{name}, process {picture['pid']}, is {picture['state']}: {picture['doing']} since {picture['for_s']:g} s, "
        f"{picture['steps']} batches",
        *(threads or ["No stacks: the process does not answer."]),
    ]
    if printed := picture.get("printed", "").rstrip():
        parts += [f"It printed last:\n{printed}"]
    return "\n\n".join(parts)
