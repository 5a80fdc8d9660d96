"""What a model process does with what it is told: over a socket, with rows in memory; the model is a stand-in."""

from __future__ import annotations

import os
import pickle
import socket
from types import SimpleNamespace

import numpy as np
import pytest

from dask_train.data.columns import Column, Columns
from dask_train.data.text import packed
from dask_train.predicting.server import process
from dask_train.predicting.server.messages import Answered, Ask, Beat, ModelFiles, ModelOpened, Open, Raised
from dask_train.predicting.server.values import Call, size_bytes, views
from dask_train.settings.process import Settings
from dask_train.transport.frames import messages_from, send

PAIR = Column(dtype="<f8", row_shape=(2,))
DEFAULTS = Settings()
ONE = Column(dtype="<f4", row_shape=())
TEXT = Column(dtype="|O", row_shape=())


class Left(BaseException):
    """A process that would have ended, with its code."""


class Model:
    """Sums each row, and adds the first of its arrays."""

    def __init__(self, kind, header, arrays, num_threads):
        self.opened = kind, header, arrays, num_threads
        self.seen = []

    def predict(self, call, columns, out, beat):
        self.seen.append([column.copy() for column in columns])
        if header_says(self, "fails"):
            raise ZeroDivisionError("no such row")
        for _ in range(3):
            beat()
        out[0][...] = columns[0].sum(axis=1) + self.opened[2][0].sum()

    def evaluate(self, call, columns, beat):
        return [columns[0].sum(axis=0)]

    def logs(self, call, columns, beat):
        return {"loss": 0.5, "num_rows": len(columns[0])}


def header_says(model, word):
    return model.opened[1] == word.encode()


@pytest.fixture
def files():
    """Makes files in memory, which are closed in the end."""
    made = []

    def make(data=b""):
        made.append(os.memfd_create("test"))
        os.write(made[-1], data)
        return made[-1]

    yield make
    for descriptor in made:
        os.close(descriptor)


@pytest.fixture
def ends():
    ours, theirs = socket.socketpair()
    ours.settimeout(30)
    with ours, theirs:
        yield ours, theirs


@pytest.fixture
def world(ends, files, monkeypatch):
    """A server with a model of one array, and a slot that holds the rows that it is given."""
    made = SimpleNamespace(model=None, rows=files(), out=files(), arrays=files(np.arange(3.0).tobytes()))

    def opened(*given):
        if given[1] == b"not a model":
            raise SystemExit("it is not a model")
        made.model = Model(*given)
        return made.model

    def leave(code):
        raise Left(code)

    monkeypatch.setattr(process, "load_runner", opened)
    monkeypatch.setattr(process.os, "_exit", leave)
    ours, theirs = ends
    made.server, made.messages = process._Server(theirs), messages_from(ours)

    def open_with(header=b"", slots=1, places=(("<f8", (3,), 0),), settings=DEFAULTS):
        given = [os.dup(made.arrays), *[os.dup(each) for _ in range(slots) for each in (made.rows, made.out)]]
        made.descriptors = given
        data = ModelFiles(descriptors=given, places=places)
        made.server.open(Open(kind="torch", header=header, num_threads=3, settings=settings, data=data))
        return next(made.messages)

    def ask(columns, arrays, outputs=(ONE,), verb="predict"):
        num_rows, images = len(arrays[0]), [packed(a) for a, c in zip(arrays, columns, strict=True) if c.is_text]
        sizes = [len(image) for image in images]
        os.ftruncate(made.rows, size_bytes(columns, num_rows, sizes))
        os.ftruncate(made.out, size_bytes(outputs, num_rows))
        memory, waiting = np.memmap(f"/proc/self/fd/{made.rows}", mode="r+") if num_rows else None, iter(images)
        for view, array, column in zip(views(memory, columns, num_rows, sizes), arrays, columns, strict=True):
            view[...] = next(waiting) if column.is_text else array
        call = Call(verb=verb, columns=Columns.of_batch(1).with_rows(columns), outputs=outputs, batch_size=4)
        made.server.answer(Ask(call=call, num_rows=num_rows, text_sizes=sizes, slot=0))
        answers = [next(made.messages)]
        while isinstance(answers[-1], Beat):
            answers.append(next(made.messages))
        return answers

    def predicted(num_rows):
        return views(np.memmap(f"/proc/self/fd/{made.out}", mode="r"), (ONE,), num_rows)[0].tolist()

    made.open, made.ask, made.predicted = open_with, ask, predicted
    yield made
    for descriptor in made.descriptors[1:]:
        os.close(descriptor)


def test_a_model_is_opened_with_its_arrays_which_are_mapped(world):
    assert world.open(b"its header") == ModelOpened()
    kind, header, (array,), num_threads = world.model.opened
    assert (kind, header, num_threads) == ("torch", b"its header", 3)
    assert array.tolist() == [0, 1, 2]
    assert not array.flags.writeable, "other processes have the same memory"
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(world.descriptors[0])


def test_a_model_without_values_has_its_arrays_too(world):
    os.ftruncate(world.arrays, 0)
    assert world.open(places=(("<f8", (0, 3), 0), ("<f4", (0,), 0))) == ModelOpened()
    assert [(array.dtype.str, array.shape) for array in world.model.opened[2]] == [("<f8", (0, 3)), ("<f4", (0,))]


def test_it_is_opened_under_the_settings_that_it_was_sent_with(world, monkeypatch):
    opened, seen = process.load_runner, []
    monkeypatch.setattr(process, "load_runner", lambda *given: seen.append(np.geterr()["over"]) or opened(*given))
    with np.errstate():
        world.open(settings=Settings(changed={"numpy": {"over": "raise"}}))
    assert seen == ["raise"]


def test_a_model_that_can_not_be_opened_is_told_and_the_process_ends(world):
    with pytest.raises(Left, match="1"):
        world.open(b"not a model")
    answer = next(world.messages)
    assert isinstance(answer, Raised)
    assert answer.error == "SystemExit: it is not a model."
    assert isinstance(pickle.loads(answer.exception), SystemExit)


def test_predictions_lie_in_the_slot_also_where_blocks_grow_and_shrink(world):
    world.open()
    for num_rows in (2, 5000, 1):
        rows = np.arange(2.0 * num_rows).reshape(num_rows, 2)
        assert world.ask((PAIR,), [rows])[-1] == Answered()
        assert world.predicted(num_rows) == (rows.sum(axis=1) + 3).astype("f4").tolist()


def test_a_block_without_rows(world):
    world.open()
    assert world.ask((PAIR,), [np.empty((0, 2))])[-1] == Answered()
    assert world.model.seen[0][0].shape == (0, 2)


def test_columns_of_text_are_texts_again(world):
    world.open()
    texts = np.array(["Käfer", b"\xff", ""], object)
    world.ask((PAIR, TEXT), [np.ones((3, 2)), texts])
    numbers, found = world.model.seen[0]
    assert numbers.tolist() == [[1, 1]] * 3
    assert found.tolist() == ["Käfer", b"\xff", ""]


def test_what_metrics_count_and_say_comes_back(world):
    world.open()
    (counted,) = world.ask((PAIR,), [np.ones((3, 2))], outputs=(), verb="evaluate")[-1].counted
    assert counted.tolist() == [3, 3]
    assert world.ask((PAIR,), [np.ones((3, 2))], outputs=(), verb="logs")[-1].counted == {"loss": 0.5, "num_rows": 3}


def test_what_the_model_raises_is_told_and_it_goes_on(world):
    world.open(b"fails")
    for _ in range(2):
        (answer,) = world.ask((PAIR,), [np.ones((3, 2))])
        assert answer.error == "ZeroDivisionError: no such row."
        assert isinstance(pickle.loads(answer.exception), ZeroDivisionError)
        assert "in predict" in answer.traceback


def test_progress_is_told_now_and_then(world, monkeypatch):
    world.open()
    times = iter([100.0, 100.1, 101.0, 101.2, 101.4, 101.4])
    monkeypatch.setattr(process, "time", SimpleNamespace(monotonic=lambda: next(times)))
    assert world.ask((PAIR,), [np.ones((3, 2))]) == [Beat(), Beat(), Answered()]
    assert world.ask((PAIR,), [np.ones((3, 2))]) == [Answered()], "also over blocks"


def test_where_the_dask_worker_is_gone_nothing_is_left_to_do(world, ends):
    world.open()
    ends[0].close()
    with pytest.raises(Left, match="0"):
        world.server.answer(None)


def test_it_obeys_until_its_socket_is_closed(ends, monkeypatch):
    ours, theirs = ends
    left, obeyed = [], []

    def leave(code):
        left.append(code)
        raise Left(code)

    monkeypatch.setattr(process.os, "_exit", leave)
    monkeypatch.setattr(process.sys, "stdout", SimpleNamespace(reconfigure=lambda **how: left.append(how)))
    monkeypatch.setattr(process, "_OBEYED", {Beat: lambda server, message: obeyed.append((server.end, message))})
    send(ours, Beat())
    send(ours, Beat())
    ours.shutdown(socket.SHUT_WR)
    with pytest.raises(Left, match="0"):
        process.serve(end := os.dup(theirs.fileno()))
    assert left == [{"line_buffering": True}, 0], "what the model prints is seen line by line"
    assert [message for _, message in obeyed] == [Beat(), Beat()]
    assert obeyed[0][0].fileno() == end
    obeyed[0][0].close()
