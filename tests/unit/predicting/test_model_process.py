"""Model processes, real ones, with a framework that is there at once: opened, asked, lost, ended."""

from __future__ import annotations

import os
import pickle
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from dask_train.config import PredictLimits, TemplateSettings
from dask_train.data.columns import Column, Columns
from dask_train.errors import PredictionError, StalledError
from dask_train.predicting.model_process import ModelProcess, ProcessLostError
from dask_train.predicting.server.values import Call, ModelParts
from dask_train.process.child import Starting
from dask_train.process.launch import Process, spawn
from dask_train.process.templates import ProcessStart

# Takes the place of torch: adds its weights to each row, unless the first value is an order.
FRAMEWORK = """
import os, sys, time, types
import numpy as np
class Runner:
    def __init__(self, model, num_threads):
        self.weights = [array.copy() for array in model]
    def predict(self, call, columns, out, beat):
        for view, weight in zip(out, self.weights, strict=True):
            view[:] = columns[0] + weight
        self.obey(columns[0].flat[0], beat)
    def evaluate(self, call, columns, beat):
        return [columns[0].sum(0)]
    def obey(self, order, beat):
        print("last words", flush=True)
        if order == -1:
            raise ZeroDivisionError("no such row")
        if order == -2:
            os.kill(os.getpid(), 9)
        while order == -3:
            time.sleep(60)
        for _ in range(20 if order == -4 else 0):
            time.sleep(0.1)
            beat()
def open_parts(kind, header, arrays):
    if header == b"not a model":
        raise ValueError("it is not a model")
    return arrays
module = types.ModuleType("dask_train.predicting.server.torch_model")
module.TorchRunner, module.open_parts = Runner, open_parts
sys.modules[module.__name__] = module
"""
RAISES, DIES, HANGS, IS_SLOW = -1.0, -2.0, -3.0, -4.0
WEIGHTS = (np.arange(3.0), np.ones(3))
PARTS = ModelParts(kind="torch", name="a model", token="t", header=b"", arrays=WEIGHTS, opened_bytes=48)  # noqa: S106
COLUMN = Column(dtype="<f8", row_shape=(3,))
CALL = Call(verb="predict", columns=Columns.of_batch(1).with_rows([COLUMN]), outputs=(COLUMN,) * 2, batch_size=4)
LIMITS = replace(PredictLimits.from_dask_config(), launch_s=30.0, timeout_s=20.0, template=TemplateSettings(idle_s=0.0))


def started_now(start: ProcessStart) -> Future[Process]:
    """Start a process as a Dask worker would whose event loop is free."""
    done: Future[Process] = Future()
    done.set_result(spawn(start.launch))
    return done


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_leaks: Any) -> Iterator[Callable[..., ModelProcess]]:
    """Makes model processes, which leave nothing when they are ended."""
    (tmp_path / "sitecustomize.py").write_text(FRAMEWORK)
    monkeypatch.syspath_prepend(str(tmp_path))
    with no_leaks(), ExitStack() as stack:

        def make(
            parts: ModelParts = PARTS, limits: PredictLimits = LIMITS, starting: Starting = started_now
        ) -> ModelProcess:
            process = ModelProcess(parts, limits, 1, starting)
            stack.callback(process.end, "the test is over")
            return process

        yield make


def rows(first: float, num: int = 5) -> list[np.ndarray]:
    """A block whose first value is an order."""
    return [np.full((num, 3), first)]


def test_what_it_says(model):
    process = model()
    for num in (5, 1, 2000):
        found = process.ask(CALL, rows(2.0, num), "block 0")
        for output, weight in zip(found, WEIGHTS, strict=True):
            np.testing.assert_array_equal(output, 2.0 + weight + np.zeros((num, 3)))
    (counted,) = process.ask(replace(CALL, verb="evaluate", outputs=()), rows(2.0), "block 1")
    np.testing.assert_array_equal(counted, [10.0] * 3)
    assert psutil.Process(process.pid).ppid() == os.getpid()


def test_its_template_imports_modules_that_users_name(model):
    launches = []

    def starting(start):
        launches.append(start.launch)
        return started_now(start)

    model(limits=replace(LIMITS, template=TemplateSettings(idle_s=5.0, imports=("wave",))), starting=starting)
    (preload,) = (launch.preload for launch in launches)
    assert (preload.modules[0], preload.modules[-1], preload.idle_s) == ("torch", "wave", 5.0)


def test_what_it_prints_is_taken_out_of_memory(model):
    process = model()
    output = process._child.output
    for number in range(2):
        process.ask(CALL, rows(1.0), f"block {number}")
        assert output._read_to == os.fstat(output.descriptor).st_size > 0


def test_a_model_without_weights(model):
    parts = replace(PARTS, arrays=(np.empty((0, 3)), np.zeros(3)))
    found = model(parts).ask(replace(CALL, verb="evaluate", outputs=()), rows(1.0), "block 0")
    np.testing.assert_array_equal(found[0], [5.0] * 3)
    none = replace(PARTS, arrays=(np.empty((0,)),))
    assert model(none).pid


def test_what_the_model_raises_ends_nothing(model):
    process = model()
    with pytest.raises(PredictionError, match="Model 'a model' failed on block 3: ZeroDivisionError: no such") as told:
        process.ask(CALL, rows(RAISES), "block 3")
    assert isinstance(told.value.__cause__, ZeroDivisionError)
    assert process.ask(CALL, rows(1.0), "block 4")[1][0, 0] == 2.0


def test_a_model_that_can_not_be_opened(model):
    with pytest.raises(PredictionError, match="can't be opened on the Dask worker: ValueError: it is not a model"):
        model(replace(PARTS, header=b"not a model"))


def test_a_process_that_dies_with_a_block(model):
    process = model()
    with pytest.raises(ProcessLostError, match=r"was killed by SIGKILL; the end of its output:\nlast words") as lost:
        process.ask(CALL, rows(DIES), "block 0")
    assert lost.value.served
    assert process.ended
    assert not psutil.pid_exists(process.pid)
    with pytest.raises(ProcessLostError, match="SIGKILL") as lost:
        process.ask(CALL, rows(1.0), "block 1")
    assert not lost.value.served


def test_a_process_that_hangs_shows_where(model):
    process = model(limits=replace(LIMITS, timeout_s=1.0))
    with pytest.raises(StalledError, match=r"did nothing for 1 s, a batch of block 0 awaited(?s:.)* in obey"):
        process.ask(CALL, rows(HANGS), "block 0")
    assert not psutil.pid_exists(process.pid)


def test_one_that_works_is_not_taken_for_one_that_hangs(model):
    process = model(limits=replace(LIMITS, timeout_s=1.5))
    assert process.ask(CALL, rows(IS_SLOW), "block 0")[1][0, 0] == IS_SLOW + 1


def test_tasks_take_turns_and_an_end_wakes_them(model):
    process = model()
    with ThreadPoolExecutor(4) as pool:
        blocks = [pool.submit(process.ask, CALL, rows(float(number)), "a block") for number in range(8)]
        assert [block.result(60)[1][0, 0] for block in blocks] == [number + 1 for number in range(8)]
        hanging = [pool.submit(process.ask, CALL, rows(HANGS), "a block") for _ in range(4)]
        threading.Timer(0.2, process.end, ["the Dask worker closes"]).start()
        for block in hanging:
            with pytest.raises(ProcessLostError, match="the Dask worker closes"):
                block.result(60)


def test_a_start_that_takes_too_long_is_ended_when_it_comes(model, monkeypatch, no_leaks):
    awaited: Future[Process] = Future()
    orders: list[ProcessStart] = []

    def later(start: ProcessStart) -> Future[Process]:
        orders.append(start)
        return awaited

    with no_leaks():
        with pytest.raises(StalledError, match=r"did not start a process for model .a model. within 0\.01 s"):
            ModelProcess(PARTS, replace(LIMITS, launch_s=0.01), 1, later)
        process = spawn(orders[0].launch)
        awaited.set_result(process)
        assert process.returncode == -signal.SIGKILL


def test_exceptions_that_can_not_be_made_again_are_told_in_words():
    from dask_train.predicting.model_process import _cause
    from dask_train.predicting.server.messages import Raised

    assert _cause(Raised(error="x", traceback="", exception=b"")) is None
    assert _cause(Raised(error="x", traceback="", exception=b"no pickle")) is None
    assert isinstance(_cause(Raised(error="x", traceback="", exception=pickle.dumps(KeyError(1)))), KeyError)
