"""Numbered post, and the records of runs."""

from __future__ import annotations

from dask_train.process.messages import Diagnose, from_plain
from dask_train.run.messages import RoleProcess, Stop
from dask_train.scheduler.runs import KEPT_OUTPUT, KEPT_RECORDS, KnownRun, Mailbox, Runs, worker_lost


def test_post_waits_until_it_is_taken():
    post = Mailbox()
    post.put(["a", "b", "c"])
    assert post.since(0, 10) == ["a", "b", "c"]
    assert post.since(0, 2) == ["a", "b"], "asked again, it comes again"
    post.taken(2)
    assert (post.since(2, 10), post.since(3, 10)) == (["c"], [])
    post.put(["d"])
    assert post.since(2, 10) == ["c", "d"]
    assert post.since(0, 10) == ["c", "d"], "what was taken does not come again"
    post.taken(99)
    assert (post.since(99, 10), post.first) == ([], 4)


def test_post_wakes_who_waits():
    post = Mailbox()
    for act in (lambda: post.put(["a"]), lambda: post.taken(1), post.wake):
        changed = post.changed
        act()
        assert changed.is_set()
        assert not post.changed.is_set()


def make(*names: str) -> Runs:
    runs = Runs()
    for name in names:
        runs.by_id[name] = KnownRun(name, "me", {})
    return runs


def test_runs_are_found_by_the_beginning_of_their_name():
    runs = make("run-12", "run-1", "other-1")
    assert runs.find("run-1").id == "run-1", "exactly"
    assert runs.find("run-12").id == "run-12"
    assert runs.find("run") is None, "two begin so"
    assert runs.find("oth").id == "other-1"
    assert runs.find("x") is None
    runs.end(runs.by_id["other-1"], {})
    assert runs.find("oth").over


def test_those_that_are_over_count_too():
    runs = make("run-1", "run-2")
    for name in ("run-1", "run-2"):
        runs.end(runs.by_id[name], {})
    assert runs.find("run") is None
    assert runs.find("run-2").over


def test_output_is_kept_by_attempt_the_newest_first():
    run = KnownRun("run-1", "me", {})
    run.keep_output(("worker", 0), 0, 900, b"first\n")
    run.keep_output(("worker", 0), 0, 906, b"first\nlater\n")
    run.keep_output(("worker", 0), 2, 4, b"new\n")
    assert run.output["worker", 0] == [(0, 906, b"first\nlater\n"), (2, 4, b"new\n")]
    run.keep_output(("worker", 0), 1, KEPT_OUTPUT - 7, b"x" * (KEPT_OUTPUT - 7))
    assert [(attempt, end, len(data)) for attempt, end, data in run.output["worker", 0]] == [
        (0, 906, 3),
        (1, KEPT_OUTPUT - 7, KEPT_OUTPUT - 7),
        (2, 4, 4),
    ]
    run.keep_output(("worker", 0), 3, KEPT_OUTPUT, b"x" * KEPT_OUTPUT)
    assert [attempt for attempt, _, _ in run.output["worker", 0]] == [3]


def test_the_record_of_a_run_that_is_over():
    runs = make("run-1")
    run = runs.by_id["run-1"]
    run.summary = {"phase": "running", "losses": []}
    run.places["worker", 0] = ("a", {})
    runs.add_agent(run, "agent", "a")
    assert run.report()["places"] == [["worker", 0, "a"]]
    assert run.report()["agents"] == [("agent", "a")]
    waiting = [run.events.changed, run.inboxes["agent"].changed]
    runs.end(run, {"phase": "over"})
    assert all(changed.is_set() for changed in waiting), "who waits is told"
    assert (run.report()["summary"], run.inboxes) == ({"phase": "over", "losses": []}, {})
    assert run.ended >= run.started
    runs.end(run, {"phase": "again"})
    assert (run.summary["phase"], len(runs.records)) == ("over", 1)


def test_so_many_records_are_kept():
    runs = make(*(f"run-{number}" for number in range(KEPT_RECORDS + 3)))
    for run in list(runs.by_id.values()):
        runs.end(run, {})
    assert (len(runs.records), runs.records[0].id) == (KEPT_RECORDS, "run-3")


def test_a_dask_worker_that_left_is_told_to_those_it_concerns():
    runs = make("role", "agent", "neither")
    runs.by_id["role"].places["worker", 0] = ("a", {})
    runs.add_agent(runs.by_id["agent"], "one", "a")
    runs.add_agent(runs.by_id["agent"], "two", "b")
    inbox = runs.by_id["agent"].inboxes["one"].changed
    for run in runs.by_id.values():
        runs.agents_left(run, "a", runs.agents_on(run, "a"))
    told = {name: run.events.since(0, 9) for name, run in runs.by_id.items()}
    event = worker_lost("a")
    assert told == {"role": [event], "agent": [event], "neither": []}
    assert inbox.is_set()
    assert (list(runs.by_id["agent"].agents), list(runs.by_id["agent"].inboxes)) == (["two"], ["two"])
    runs.agents_left(runs.by_id["agent"], "a", runs.agents_on(runs.by_id["agent"], "a"))
    assert len(runs.by_id["agent"].events.messages) == 1


def test_a_dask_worker_that_came_back_is_no_news():
    runs = make("agent")
    runs.add_agent(runs.by_id["agent"], "one", "a")
    runs.agents_left(runs.by_id["agent"], "a", ["one"], is_news=False)
    assert (runs.by_id["agent"].agents, list(runs.by_id["agent"].events.messages)) == ({}, [])


def test_a_run_is_asked_to_stop_as_long_as_it_goes_on():
    runs = make("r")
    run = runs.by_id["r"]
    run.ask_to_stop("enough")
    assert [from_plain(event) for event in run.events.messages] == [(Stop(reason="enough"), None)]
    runs.end(run, {})
    run.ask_to_stop("again")
    assert list(run.events.messages) == []


def test_stacks_of_a_role_are_asked_of_the_newest_agent_where_it_is():
    runs = make("r")
    run = runs.by_id["r"]
    assert not run.ask_for_stacks(("worker", 1), 0), "it has no place yet"
    run.places["worker", 1] = ("b", {})
    assert not run.ask_for_stacks(("worker", 1), 0)
    for agent, address in (("old", "b"), ("other", "a"), ("new", "b")):
        runs.add_agent(run, agent, address)
    assert run.ask_for_stacks(("worker", 1), 2)
    asked = {agent: list(map(from_plain, inbox.messages)) for agent, inbox in run.inboxes.items()}
    assert asked == {"old": [], "other": [], "new": [(Diagnose(), RoleProcess("worker", 1, 2))]}
