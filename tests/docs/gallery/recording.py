"""Run a program as a user does, keep what some of its functions had when they returned, and draw that."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

Look = Callable[[Mapping[str, Any]], Any]


class Recorder:
    """What functions of a program had when they returned: of each call, in order.

    Parameters
    ----------
    program
        Whose functions.
    looks
        What to keep of a function's variables, by its name; called when it returns, since some are closed later.
    """

    def __init__(self, program: str, looks: Mapping[str, Look]) -> None:
        self._program, self._looks = program, looks
        self.seen: dict[str, list[Any]] = {name: [] for name in looks}

    def __call__(self, frame: FrameType, event: str, value: Any) -> Any:
        """As ``sys.settrace`` asks at each call."""
        code = frame.f_code
        if code.co_filename != self._program or code.co_name not in self._looks:
            return None
        frame.f_trace_lines = False
        return self._returned

    def _returned(self, frame: FrameType, event: str, value: Any) -> Any:
        if event == "return":
            name = frame.f_code.co_name
            self.seen[name].append(self._looks[name](frame.f_locals))
        return self._returned


def run(program: str, recorder: Recorder | None, arguments: list[str]) -> None:
    """Run a program to its end, which has to be a good one."""
    sys.argv = [program, *arguments]
    sys.path.insert(0, str(Path(program).parent))
    sys.settrace(recorder)
    try:
        runpy.run_path(program, run_name="__main__")
    except SystemExit as ended:
        if ended.code:
            raise
    finally:
        sys.settrace(None)


def main() -> None:
    """Run the program that is named, in the folder for its picture."""
    name, program = sys.argv[1:3]
    sys.path.insert(0, str(Path(__file__).parent))
    from drawings import DRAWINGS

    drawing = DRAWINGS.get(name)
    recorder = Recorder(program, drawing.looks) if drawing else None
    run(program, recorder, [] if name.startswith("loops-") else ["--small"])
    sys.stdout.flush()
    if drawing and recorder:
        figure = drawing.draw(*recorder.seen.values(), *([Path("said.txt").read_text()] if drawing.reads else []))
        figure.savefig(f"{name}.png", dpi=125)


if __name__ == "__main__":
    main()
