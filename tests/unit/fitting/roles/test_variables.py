"""Variables of the user's that callbacks change: what comes back from a copy of them, and what is named as lost."""

from __future__ import annotations

import functools
import importlib
import sys
import threading
from collections import Counter, defaultdict, deque

import numpy as np
import pytest

from dask_train.fitting.roles.sent_callbacks import (
    held_by,
    matched,
    open_callbacks,
    progress_of,
    send_callbacks,
    states_of,
    take_states,
)
from dask_train.fitting.roles.variables import Variables


class Calling:
    """A callback that calls a function, as Keras' LambdaCallback does."""

    def __init__(self, function=None, **values):
        self.function = function
        vars(self).update(values)


class Tracker:
    def __init__(self):
        self.values, self.count = [], 0

    def log(self, value):
        self.values.append(value)
        self.count += 1


def ran(callbacks, run, before=None):
    """Run something with copies of callbacks, as in the first worker; what is lost, and what was let alone here."""
    variables = Variables.of(callbacks)
    there, theirs = open_callbacks(send_callbacks(callbacks, variables))
    run(*there)
    lost = theirs.lost()
    if before is not None:
        before()
    return lost, take_states(callbacks, states_of(there, theirs), variables, keep_changed=True)


def test_what_closures_attributes_and_defaults_gather_comes_back():
    seen, by_name, handed, counts, marks = [0], {"a": []}, deque(), Counter(), set()
    nested, numbers = defaultdict(list), np.zeros(3)

    def gather(value, into=(last := [])):
        seen.append(value)
        by_name["a"].append(value)
        by_name["b"] = [value]
        counts["calls"] += 1
        marks.add(value)
        nested["new"].append(value)
        numbers[1] = value
        into.append(value)

    inner = by_name["a"]
    callbacks = [Calling(gather), Calling(None, into=handed, same=seen)]

    def run(one, other):
        one.function(5)
        other.into.append(7)
        other.same.append(8)

    assert ran(callbacks, run) == ([], [])
    assert (seen, by_name, inner) == ([0, 5, 8], {"a": [5], "b": [5]}, [5])
    assert by_name["a"] is inner, "which others may hold"
    assert callbacks[1].into is handed
    assert callbacks[1].same is seen
    assert (list(handed), counts, marks, nested, numbers[1], last) == ([7], {"calls": 1}, {5}, {"new": [5]}, 5, [5])


def test_bound_methods_and_objects_of_the_users_own_classes():
    tracker, seen = Tracker(), []
    values = tracker.values
    callbacks = [Calling(tracker.log), Calling(functools.partial(seen.append, 3)), Calling(None, tracker=tracker)]

    def run(one, other, third):
        one.function(1)
        other.function()
        third.tracker.log(2)

    assert ran(callbacks, run) == ([], [])
    assert (tracker.values, tracker.count, seen) == ([1, 2], 2, [3])
    assert values is tracker.values
    assert callbacks[2].tracker is tracker


def test_parts_of_an_object_that_stay_the_same_are_no_copies_and_need_not_be_pickled_again():
    tracker = Tracker()
    tracker.part = part = Calling(None)

    def change(one):
        one.function.__self__.log(1)
        one.function.__self__.part.lock = threading.Lock()

    lost, _ = ran([Calling(tracker.log)], change)
    assert (tracker.values, tracker.count, tracker.part is part) == ([1], 1, True)
    assert lost == ["Calling.function.part"]


def test_long_lists_are_looked_at_once():
    seen = list(range(300_000))
    assert ran([Calling(seen.append)], lambda one: one.function(-1)) == ([], [])
    assert seen[-2:] == [299_999, -1]


def of_script(source):
    """The names of a script, whose functions travel by value."""
    names = {"__name__": "__main__"}
    exec(source, names)  # noqa: S102
    return names


def test_globals_of_a_script_come_back():
    names = of_script(
        """
losses, best, count, unused = [], {"loss": None}, 0, []
def helper(value):
    losses.append(value)
class Own:
    marks = []
    def __call__(self, value):
        global count
        helper(value)
        best["loss"] = value
        self.marks.append(value)
        count += 1
own = Own()
"""
    )
    losses, marks = names["losses"], names["Own"].marks
    callbacks = [Calling(names["own"])]
    assert ran(callbacks, lambda one: one.function(2.5)) == ([], [])
    assert (names["losses"], names["best"], names["count"], marks) == ([2.5], {"loss": 2.5}, 1, [2.5])
    assert names["losses"] is losses


def test_what_a_function_assigns_comes_back():
    count = 0

    def gather():
        nonlocal count
        count += 1

    assert ran([Calling(gather)], lambda one: [one.function(), one.function()]) == ([], [])
    assert count == 2


def test_what_can_not_come_back_is_named():
    locks, objects, seen = [], [Tracker()], []

    def gather():
        locks.append(threading.Lock())
        objects.append(1)
        seen.append(1)

    lost, _ = ran([Calling(gather)], lambda one: one.function())
    assert sorted(lost) == ["locks", "objects"]
    assert (locks, len(objects), seen) == ([], 1, [1])


def test_what_a_module_gathers_is_named(tmp_path, monkeypatch):
    (tmp_path / "own_gathering.py").write_text(
        "SEEN, OTHER = [], []\nclass Own:\n    def __call__(self, value):\n        SEEN.append(value)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("own_gathering")
    try:
        lost, _ = ran([Calling(module.Own())], lambda one: one.function(1))
    finally:
        del sys.modules["own_gathering"]
    assert lost == ["own_gathering.SEEN"]


def test_what_has_changed_here_meanwhile_is_let_alone_and_named():
    seen, other = [], []

    def gather():
        seen.append(1)
        other.append(1)

    assert ran([Calling(gather)], lambda one: one.function(), lambda: seen.append("here")) == ([], ["seen"])
    assert (seen, other) == (["here"], [1])


def test_one_that_resumes_drops_what_came_after_the_checkpoint():
    seen = ["before"]
    callbacks = [Calling(seen.append, into=seen)]
    sent = send_callbacks(callbacks, Variables.of(callbacks))
    (lost,), variables = open_callbacks(sent)
    progress = progress_of([lost])
    lost.function(0)
    kept = held_by(progress, variables)
    lost.function("lost with its worker")
    (again,), variables = open_callbacks(sent)
    states, missed = matched([again], kept, variables)
    take_states([again], states, variables)
    again.function(1)
    assert missed == []
    assert (again.into, variables.changed) == (["before", 0, 1], ["Calling.into#0"])
    assert again.function.__self__ is again.into


def test_functions_of_one_that_resumes_are_those_of_now():
    def counting(step):
        count = 0

        def gather():
            nonlocal count
            count += step

        return [Calling(gather)], lambda: count

    earlier, _ = counting(1)
    variables, progress = Variables.of(earlier), progress_of(earlier)
    earlier[0].function()
    kept = held_by(progress, variables)
    later, count = counting(10)
    states, _ = matched(later, kept, Variables.of(later))
    take_states(later, states, Variables.of(later))
    assert count() == 1
    later[0].function()
    assert count() == 11, "by its own code"


def test_a_checkpoint_of_other_callbacks_is_read():
    seen = []
    earlier = [Calling(None, a=1), Calling(None, into=seen)]
    variables, progress = Variables.of(earlier), progress_of(earlier)
    seen.append(3)
    kept = held_by(progress, variables)
    later = [Calling(None, others=[])]
    states, _ = matched(later, kept[1:], Variables.of(later))
    take_states(later, states, Variables.of(later))
    assert later[0].into == [3]


def test_lists_that_are_arguments_are_those_of_the_call_that_resumes():
    earlier, later = [Calling(None, levels=[1], seen=[])], [Calling(None, levels=[2], seen=[])]
    variables, progress = Variables.of(earlier), progress_of(earlier)
    earlier[0].seen.append(3)
    kept = held_by(progress, variables)
    states, _ = matched(later, kept, Variables.of(later))
    take_states(progress_of(later), states, Variables.of(later))
    assert (later[0].levels, later[0].seen) == ([2], [3])


def test_lists_that_hold_again_what_they_held_first_are_kept():
    def calling(seen):
        return [Calling(lambda: seen.append(1))]

    seen, taken = [1], []  # the former as an earlier call has left it
    callbacks, later = calling(seen), calling(taken)
    variables, progress = Variables.of(callbacks), progress_of(callbacks)
    seen.clear()
    variables.note()
    callbacks[0].function()
    states, _ = matched(later, held_by(progress, variables), Variables.of(later))
    take_states(later, states, Variables.of(later))
    assert taken == [1]


@pytest.mark.parametrize("value", [np.mean, sys, threading.Lock(), iter([]), object()])
def test_other_values_are_no_variables(value):
    assert Variables.of([Calling(None, value=value)]).known == {}
