"""All parameter servers as one worker sees them; what they do with it is in test_parameter_server."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest

from dask_train.data.columns import Columns
from dask_train.errors import LaunchError
from dask_train.fitting.roles import servers as servers_module
from dask_train.fitting.roles.models import build
from dask_train.fitting.roles.servers import Servers
from dask_train.role.time_spent import OTHERS, TimeSpent

PATIENCE_S = 20.0


class Line:
    """Keeps what a server is told, and answers what the test says."""

    def __init__(self, address: str, columns: Any) -> None:
        self.address, self.is_closed = address, False
        self.out = [np.full(shape, np.nan, dtype) for shape, dtype in columns]
        self.into = [np.full(shape, number, dtype) for number, (shape, dtype) in enumerate(columns)]

    def put(self, first: int, values: Any) -> None:
        for place, value in enumerate(values, first):
            np.copyto(self.out[place], value)

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def model() -> Any:
    made = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2), keras.layers.Dense(1)])
    made.compile(keras.optimizers.SGD(0.1), "mse")
    build(made, Columns(features=0))
    return made


@pytest.fixture
def dialled(monkeypatch):
    """Lines in the order in which they were dialled, what was asked over them, and how they answer."""
    made: list[Line] = []
    monkeypatch.setattr(
        servers_module,
        "slot_of",
        lambda model, shard: [(tuple(each.shape), "f4") for each in servers_module.columns_of(model, shard)],
    )

    def dial(address: str, columns: Any, host: str, credentials: str, timeout_s: float) -> Line:
        assert (host, credentials) == ("here", "credentials")
        if address == "silent":
            raise LaunchError("Nobody answers.")
        made.append(Line(address, columns))
        made[-1].dialled_for_s = timeout_s
        return made[-1]

    monkeypatch.setattr(servers_module, "dial", dial)
    return made


@pytest.fixture
def asked(monkeypatch):
    """What was asked: the address, the order, and what was told with it."""
    found: list[tuple[str, str, dict[str, Any]]] = []
    found_answers: dict[str, Any] = {}

    def ask(lines: list[Line], messages: list[Any], timeout_s: float) -> list[Any]:
        assert timeout_s == PATIENCE_S
        found.extend((line.address, *message) for line, message in zip(lines, messages, strict=True))
        return [dict(found_answers) for _ in lines]

    monkeypatch.setattr(servers_module, "ask", ask)
    return found, found_answers


def opened(model: Any, *addresses: str, spent: TimeSpent | None = None) -> Servers:
    return Servers(model, addresses, "here", "credentials", PATIENCE_S, spent or TimeSpent())  # type: ignore[arg-type]


def test_servers_that_build_a_large_model_are_waited_for_as_long_as_a_setting_says(model, dialled):
    for patience_s in (180.0, 1800.0, 3.0):
        Servers(model, ["a"], "here", "credentials", patience_s, TimeSpent())
    assert [line.dialled_for_s for line in dialled] == [pytest.approx(108.0), pytest.approx(1080.0), 30.0]


def test_where_one_does_not_answer_none_stays_connected(model, dialled):
    with pytest.raises(LaunchError):
        opened(model, "a", "b", "silent")
    assert [(line.address, line.is_closed) for line in dialled] == [("a", True), ("b", True)]


def test_all_are_hung_up_on(model, dialled):
    lines = opened(model, "a", "b")
    assert not any(line.is_closed for line in dialled)
    lines.close()
    assert all(line.is_closed for line in dialled)


def test_gradients_go_to_the_servers_of_their_variables(model, dialled, asked):
    lines = opened(model, "a", "b")
    told, _ = asked
    variables = model.trainable_variables
    gradients = [(np.full(tuple(variable.shape), 10.0 + place, "f4"),) for place, variable in enumerate(variables)]
    lines.apply(range(len(variables)), gradients, rank=0, steps=1, index=0, optimizer=0, scale=1.0)
    assert [(address, order) for address, order, _ in told] == [("a", "apply"), ("b", "apply")]
    found = {}
    for line, (_, _, message), shard in zip(dialled, told, lines.shards, strict=True):
        for number in message["places"]:
            found[shard.weights[number]] = line.out[number]
    assert sorted(found) == list(range(len(variables))), "each goes to one of them"
    for place, array in found.items():
        np.testing.assert_array_equal(array, gradients[place][0])
        line, number = lines._place_on_line[place]
        assert lines.given(place) is dialled[line].into[number]


def test_rows_of_a_table_go_with_the_message(model, dialled, asked):
    lines = opened(model, "a", "b")
    rows = (np.array([1]), np.ones((1, 2), "f4"))
    lines.apply([0], [rows], rank=0, steps=1, index=0, optimizer=0, scale=1.0)
    line, number = lines._place_on_line[0]
    slices = [message["slices"] for _, _, message in asked[0]]
    assert slices[line] == {number: rows}
    assert slices[1 - line] == {}
    assert np.isnan(dialled[line].out[number]).all(), "its array was not touched"


def test_what_others_are_set_to_is_fetched_once_a_version(model, dialled, asked):
    lines = opened(model, "a", "b")
    told, answers = asked
    assert not lines.take_others(), "nothing was set"
    answers.update(version=3, steps=7, values=[np.array(variable) for variable in lines._others])
    assert lines.pull(0, 0.0)["steps"] == 7
    assert [order for _, order, _ in told] == ["weights", "weights", "others"]
    lines.pull(0, 0.0)
    assert [order for _, order, _ in told].count("others") == 1
    assert [address for address, order, _ in told if order == "others"] == ["a"], "the first server has them"


def test_waiting_for_them_is_accounted_for(model, dialled, asked, monkeypatch):
    spent = TimeSpent()
    lines = opened(model, "a", spent=spent)
    monkeypatch.setattr(servers_module, "ask", lambda *_: seen.append(spent.busy_with) or [{"ended": {1}, "steps": {}}])
    seen: list[str] = []
    assert lines.ended(set(), 0.0) == ({1}, {})
    lines.end(0)
    assert seen == [OTHERS, OTHERS]
    assert spent.busy_with != OTHERS
