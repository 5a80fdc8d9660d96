"""What a reader can ask for: the end of a run, and the stacks of a role."""

from __future__ import annotations

import pytest

from dask_train.dashboard import controls
from dask_train.process.messages import Diagnose, Pictured, from_plain
from dask_train.run.messages import Stop

pytest.importorskip("bokeh")

from bokeh.models import PreText


def test_a_run_is_stopped_by_the_second_press(shown):
    shown.run()
    shown.press("Stop r")
    assert list(shown.asks.runs.by_id["r"].events.messages) == []
    shown.press("Press again to stop r")
    (event,) = shown.asks.runs.by_id["r"].events.messages
    assert from_plain(event) == (Stop(reason="it was stopped on the dashboard"), None)
    assert shown.button("r was asked to stop").disabled


def test_a_press_that_is_not_confirmed_is_forgotten(shown, monkeypatch):
    shown.run()
    shown.press("Stop r")
    monkeypatch.setattr(controls, "CONFIRM_S", -1.0)
    shown.page.update()
    assert shown.button("Press again") is None
    assert list(shown.asks.runs.by_id["r"].events.messages) == []


def test_who_may_not_act_has_no_button(shown_to_others):
    shown_to_others.run()
    assert shown_to_others.button("Stop") is None


def test_who_may_act_no_more_finds_the_buttons_dead(shown):
    shown.run()
    shown.press("Stop r")
    stop, stacks = shown.button("Press again"), "Show its stacks"
    shown.reader.revoke()
    shown.press("Press again")
    shown.press(stacks)
    assert list(shown.asks.runs.by_id["r"].events.messages) == []
    assert not shown.asks.runs.by_id["r"].inboxes["g"].messages
    shown.page.update()
    assert not stop.visible


def test_stacks_come_from_the_roles_agent(shown):
    shown.run()
    shown.press("Show its stacks")
    (command,) = shown.asks.runs.by_id["r"].inboxes["g"].messages
    assert from_plain(command) == (Diagnose(), shown.of)
    assert shown.button("Show its stacks").disabled, "while the answer is awaited"
    ours = 'Thread 1:\n  File "dask_train/role/link.py", line 1'
    told = {"pid": 7, "state": "sleeping", "doing": "reading", "for_s": 1.0, "steps": 3}
    shown.tell(Pictured(**told, stacks=f"{ours}\n\nThread 2:\n  File 'mine.py', line 2"))
    (text,) = shown.all(PreText)
    assert text.text == (
        "worker 0, process 7, is sleeping: reading since 1 s, 3 batches\n\nThread 2:\n  File 'mine.py', line 2"
    )
    assert not shown.button("Show its stacks").disabled
    shown.press("Show its stacks")
    shown.tell(Pictured(**told, stacks="", printed="loss 0.5\nloss 0.4\n"))
    assert text.text.endswith("No stacks: the process does not answer.\n\nIt printed last:\nloss 0.5\nloss 0.4")


def test_an_agent_that_does_not_answer_is_not_waited_for(shown, monkeypatch):
    shown.run()
    shown.press("Show its stacks")
    monkeypatch.setattr(controls, "STACKS_S", -1.0)
    shown.page.update()
    (text,) = shown.all(PreText)
    assert text.text.startswith("The agent of worker 0 has not answered within")
    shown.asks.runs.by_id["r"].inboxes.clear()
    shown.press("Show its stacks")
    assert text.text == "worker 0 has no agent at this moment."
