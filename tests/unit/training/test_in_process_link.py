"""The link of a role in the client's own process: who is asked when to stop, and what nobody else is there for."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from dask_train.checkpoint.manifest import Cover
from dask_train.driver.history import History
from dask_train.driver.settings import RunSettings, RunSources
from dask_train.errors import ClosedError
from dask_train.frameworks.registry import find_framework
from dask_train.run.recovery import RecoveryPolicy
from dask_train.run.stopping import Patience
from dask_train.run.transitions import begin
from dask_train.training import launch
from dask_train.training.in_process_link import ROLE, InProcessLink


@pytest.fixture
def linked():
    """Makes a link of a run that is to stop by a rule."""

    def make(stop=None):
        plan = launch.plan_of({"worker": 1}, RunSources(), find_framework(None), RecoveryPolicy(), set())
        job = SimpleNamespace(id="run-1", plan=plan, run=RunSettings(stop=stop))
        history = History(job)
        history.begin(begin(plan, 0.0)[0])
        return InProcessLink(job, history, data=None), history

    return make


def test_a_rule_is_asked_after_each_report_and_batch_and_its_first_reason_stays(linked):
    link, history = linked("loss < 0.5 or steps >= 3")
    link.report({"loss": 0.9})
    link.moved("a batch", batches=2, rows=8)
    assert link.stop_reason == ""
    link.moved("a batch", batches=1)
    first = link.stop_reason
    assert "steps" in first
    link.report({"loss": 0.1})
    link.ask_to_stop("by hand")
    assert link.stop_reason == first
    assert (len(history.scores), history.most_steps) == (2, 3)


def test_a_score_counts_although_a_better_one_came_before_anybody_asked(linked):
    link, _ = linked("loss < 0.5")
    link.report({"loss": 0.1})
    link.report({"loss": 0.9})
    assert "loss" in link.stop_reason


def test_each_report_is_seen_once_by_rules_that_count(linked):
    link, _ = linked(Patience("loss", 2))
    for value, stops in ((0.9, False), (1.0, False), (0.8, False), (0.8, False), (0.8, True)):
        link.report({"loss": value})
        assert [bool(link.stop_reason) for _ in range(3)] == [stops] * 3


def test_whoever_asks_to_stop_first_says_why(linked):
    link, _ = linked()
    assert link.stop_reason == ""
    for reason in ("by hand", "again"):
        link.ask_to_stop(reason)
    assert link.stop_reason == "by hand"
    link.wait_until_stopped()


def test_nobody_is_waited_for(linked):
    link, _ = linked()
    for wait in (link.wait_until_stopped, lambda: link.receive(None), lambda: link.receive(1.0)):
        with pytest.raises(ClosedError, match=r"where nobody else is .*Pass roles=\{'worker': 1\}"):
            wait()
    link.send(b"a value")


def test_what_is_shown_is_how_it_stands_now_and_after_each_report(linked):
    link, history = linked()
    link.report({"loss": 0.9})
    shown = []
    link.note("reading")
    link.show(shown.append)
    link.moved("training", batches=2)
    link.report({"loss": 0.5})
    assert [each["num_scores"] for each in shown] == [1, 2]
    assert [(role["doing"], role["num_batches"]) for (role,) in (each["roles"] for each in shown)] == [
        ("reading", 0),
        ("training", 2),
    ]
    assert shown[1]["last_scores"] == [["worker", 0, {"loss": 0.5}]]
    link.notice("odd")
    assert history.notices == ["odd"]


def test_what_a_checkpoint_covers_is_in_the_ledger(linked):
    link, history = linked()
    records = [(0, 0, 0, 4, 0, 2, 2)]
    covers: list[Cover] = [("run-1", ROLE.role, records)]
    link.went_on(covers)
    assert history.ledger({("worker", 0): 10}).trained == 8
