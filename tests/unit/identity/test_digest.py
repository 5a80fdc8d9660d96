"""Digests: the same in each process for the same content, another one for another."""

from __future__ import annotations

import functools
import json
import os
import runpy
import subprocess
import sys
import threading
from collections import OrderedDict, namedtuple
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dask_train.identity.digest import code_digest, digest

Pair = namedtuple("Pair", "one other")


class Color(Enum):
    RED = 1
    BLUE = 2


@dataclass
class Settings:
    rate: float = 0.1
    names: list[str] = field(default_factory=list)


class Holding:
    def __init__(self, **values: Any) -> None:
        vars(self).update(values)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 1.0),
        (1, True),
        (0.0, -0.0),
        ("1", 1),
        ("1", b"1"),
        ([1], (1,)),
        ([1, [2]], [[1], 2]),
        (["ab", "c"], ["a", "bc"]),
        ({1, 2}, {1, 3}),
        ({1, 2}, frozenset({1, 2})),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        (OrderedDict(a=1), {"a": 1}),
        (np.float32(1), np.float64(1)),
        (np.zeros(4), np.zeros((2, 2))),
        (np.zeros(2, "f4"), np.zeros(2, "i4")),
        (np.array(["a", None], object), np.array(["b", None], object)),
        (np.ma.masked_array([1, 2], [0, 1]), np.ma.masked_array([1, 2], [1, 0])),
        (Pair(1, 2), Pair(2, 1)),
        (Pair(1, 2), (1, 2)),
        (Color.RED, Color.BLUE),
        (Settings(0.1), Settings(0.2)),
        (Holding(a=1), Holding(a=2)),
        (pd.DataFrame({"a": [1]}), pd.DataFrame({"a": [2]})),
        (np.random.RandomState(0), np.random.RandomState(1)),
        (range(3), range(4)),
        (None, "None"),
    ],
)
def test_what_differs_has_another_digest(one, other):
    assert digest(one) != digest(other)


@pytest.mark.parametrize(
    "make",
    [
        lambda: [1, (2.5, "a"), None, ..., 1j, 10**40, bytearray(b"a")],
        lambda: {"a", "b", ("c", 1)},
        lambda: np.arange(6).reshape(2, 3),
        lambda: np.array([("a", 1)], [("name", "U4"), ("value", "i8")]),
        lambda: pd.DataFrame({"a": [1.5], "b": ["x"], "c": pd.Categorical(["u"])}),
        lambda: Settings(names=["a"]),
        lambda: np.random.RandomState(3),
        lambda: Pair(Color.RED, slice(1, None)),
    ],
)
def test_what_is_equal_has_the_same(make):
    assert digest(make()) == digest(make())
    assert len(digest(make())) == 32


def test_strided_arrays_count_by_their_numbers():
    numbers = np.arange(12.0).reshape(3, 4)
    assert digest(numbers[:, ::2]) == digest(numbers[:, ::2].copy())
    assert digest(numbers) == digest(np.asfortranarray(numbers))


def test_bytes_between_fields_count_for_nothing():
    dtype = np.dtype({"names": ["a", "b"], "formats": ["u1", "f8"], "offsets": [0, 8], "itemsize": 16})
    one, other = np.frombuffer(bytes(16), dtype), np.frombuffer(b"\0" + b"x" * 7 + bytes(8), dtype)
    assert one.tobytes() != other.tobytes()
    assert digest(one) == digest(other)


def test_the_order_of_attributes_and_which_equal_texts_are_one_count_for_nothing():
    one, other = Holding(a=1, b=2), Holding(b=2, a=1)
    assert digest(one) == digest(other)
    text = "".join(["some", " text"])
    assert digest([text, text]) == digest([text, "some text"])
    assert digest([np.ones(2)] * 2) == digest([np.ones(2), np.ones(2)])


def test_objects_that_hold_themselves_and_long_chains_end():
    def cycle(value: int) -> Holding:
        one = Holding(value=value)
        one.me, one.several = one, [one]
        return one

    def chain(value: int) -> Any:
        last = value
        for _ in range(5000):
            last = Holding(next=last)
        return last

    for make in (cycle, chain):
        assert digest(make(1)) == digest(make(1))
        assert digest(make(1)) != digest(make(2))


class Linked:
    def __init__(self, name):
        self.name, self.others = name, set()


def linked(*names):
    """Objects that all lead to each other, by sets; the first of them."""
    members = list(map(Linked, names))
    for each in members:
        each.others.update(members)
    return members[0]


def test_sets_that_lead_back_to_themselves_end():
    assert digest(linked("a", "b", "c")) == digest(linked("a", "c", "b"))
    assert len({digest(linked(*names)) for names in ("a", "ab", "ac", "ba", "abc", "abd")}) == 6
    alone = Linked("a")
    alone.others.add(frozenset([alone]))
    assert digest(alone) != digest(linked("a"))
    sets = ({1, 2}, frozenset([frozenset([3]), 4]))
    assert digest(*sets, sets) == "200318d4f9f11a1e3a4390c1ddd26db9", "which others have stored"


def test_sets_with_too_many_ways_back_are_refused(monkeypatch):
    monkeypatch.setattr("dask_train.identity.digest.MOST_AROUND", 1000)
    with pytest.raises(TypeError, match=r"lead back to themselves in more than 1,000 ways.* Use lists or dicts where"):
        digest(linked(*"abcdefghijkl"))


def test_what_can_not_be_pickled_is_refused():
    with pytest.raises(TypeError, match=r"A _thread.lock can't be pickled: .* open them where they are used") as error:
        digest({"a": [threading.Lock()]})
    assert isinstance(error.value.__cause__, TypeError)


SCRIPT = """
import json
import sys
from dataclasses import dataclass, field

import numpy as np

from dask_train.identity.digest import digest

FACTOR = {factor}
NAMES = {{"a", "b", "c"}}


def scale(x):
    return x * FACTOR if len(NAMES) in {{1, 2, 3}} else x


@dataclass
class Sums:
    weights: np.ndarray
    names: set = field(default_factory=lambda: set(NAMES))

    def predict(self, x):
        return scale(x) @ self.weights


class More(Sums):
    def predict(self, x):
        return super().predict(x) + 1


found = [digest(Sums(np.arange(3.0))), digest(More(np.arange(3.0))), digest(lambda x: More(x).names), digest(scale)]
print(json.dumps(found))
"""


def of_script(path: Path, seed: str) -> list[str]:
    """What a script tells in a process of its own."""
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    done = subprocess.run([sys.executable, path], env=environment, capture_output=True, text=True, check=True)
    return list(json.loads(done.stdout))


def test_classes_and_functions_of_a_script_are_the_same_in_other_processes(tmp_path, capsys):
    one, changed = tmp_path / "one.py", tmp_path / "changed.py"
    one.write_text(SCRIPT.format(factor=3))
    moved = tmp_path / "folder" / "moved.py"
    moved.parent.mkdir()
    moved.write_text("# A comment, which says nothing.\n\n" + SCRIPT.format(factor=3))
    changed.write_text(SCRIPT.format(factor=4))
    found = of_script(one, "1")
    assert found == of_script(moved, "2")
    assert len(set(found)) == 4
    runpy.run_path(str(changed), run_name="__main__")
    assert not set(found) & set(json.loads(capsys.readouterr().out))


def test_of_code_alone_what_it_fills_and_reads_does_not_count():
    def build(rate, filled=(), read=None):
        filled, partial = [*filled], functools.partial(max, read)

        def function(trial):
            filled.append(trial)
            return helper(trial, rate), read, partial

        def helper(trial, rate):
            return trial + rate

        return code_digest(function)

    one = build(0.1)
    assert one == build(0.1, filled=[1, threading.Lock()])
    assert build(0.1, read=threading.Lock()) == build(0.1, read=threading.Lock())
    assert one != build(0.2)
    assert code_digest(lambda trial: trial + 1) != code_digest(lambda trial: trial + 2)
    assert code_digest(Holding(a=1)) == code_digest(Holding(a=2)) != code_digest(Color.RED)


def test_an_object_with_a_name_counts_by_that() -> None:
    one, other = Holding(values=[1]), Holding(values=[2])

    def look() -> Any:
        return one, other

    digests = [digest(look, [one, one], names={id(one): "one", id(other): "other"})]
    one.values.append(3)
    digests.append(digest(look, [one, one], names={id(one): "one", id(other): "other"}))
    assert digests[0] == digests[1]
    assert digest([one], names={id(one): "one"}) == digest([other], names={id(other): "one"})
    assert digest([one], names={id(one): "one"}) != digest([one], names={id(one): "two"})
    assert digest([one], names={id(other): "one"}) == digest([one])
