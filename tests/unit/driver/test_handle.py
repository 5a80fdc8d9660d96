"""The handle of a run, with an asynchronous client: what goes through it, and how it ends what nobody holds."""

from __future__ import annotations

import asyncio
import gc
import json
import pickle

import pytest

from dask_train.driver.handle import Run
from dask_train.errors import ClosedError, RoleFailedError, StalledError
from dask_train.process import messages
from dask_train.run.messages import Failed, Stop
from dask_train.run.replay import replay
from dask_train.run.state import Phase


@pytest.fixture
def held(driven):
    """``async with held(worker=2) as (it, run)``: a run that is driven, and its handle."""
    from contextlib import asynccontextmanager

    @asynccontextmanager
    async def holds(finish=None, **settings):
        async with driven(**settings) as it:
            it.scheduler.asynchronous = True
            yield it, Run(it.driver, finish)

    return holds


async def test_values_go_both_ways(held):
    async with held(worker=2) as (it, run):
        await it.running()
        await run.send({"a": 1}, rank=1)
        await run.send("all")
        await it.scheduler.until(lambda: len(it.scheduler.sent(messages.Value)) == 3)
        sent = [(of.rank, pickle.loads(message.value)) for _, message, of in it.scheduler.sent(messages.Value)]
        assert sorted(sent, key=str) == [(0, "all"), (1, "all"), (1, {"a": 1})]
        for value in (3, 4):
            it.scheduler.tells(messages.Value(value=pickle.dumps(value)), "worker", 1)
        assert [await run.receive(30.0), await run.receive()] == [("worker", 1, 3), ("worker", 1, 4)]
        with pytest.raises(StalledError, match=r"No role of run run has sent a value within 0\.01 s"):
            await run.receive(0.01)
        it.returns(0)
        it.returns(1)
        with pytest.raises(ClosedError, match="Run run is over: its training roles have returned"):
            await run.receive()


@pytest.mark.parametrize(("role", "rank"), [("scorer", None), ("worker", 2), ("scorer", 0)])
async def test_roles_that_there_are_not(held, role, rank):
    async with held(worker=2, ps=1) as (_, run):
        for call in (lambda: run.send(1, role, rank), lambda: run.logs(role, rank)):
            with pytest.raises(ValueError, match=r"There is no role .* in this run; it has worker=2, ps=1\."):
                call()
        with pytest.raises(TypeError, match="value"):
            run.send(asyncio.get_running_loop())
        await run.stop("enough")


async def test_what_the_functions_returned_is_its_result(held):
    async with held(worker=2, ps=1) as (it, run):
        await it.running()
        it.scheduler.tells(messages.Reported(scores=[{"loss": 0.5, "role": "worker", "rank": 1}]), "worker", 1)
        it.returns(0, "zero")
        it.returns(1, {"one": 1})
        result = await run.result()
    assert result.results == {"worker": ["zero", {"one": 1}], "ps": [None]}
    assert [score["loss"] for score in result.scores] == [0.5]
    assert (result.run_id, result.stop_reason) == ("run", "")
    assert "its training roles have returned" in repr(run)
    assert run.status()["outcome"] == "its training roles have returned"


async def test_a_verb_makes_its_own_of_the_result(held):
    async with held(worker=1, finish=lambda result: result.results["worker"][0] * 2) as (it, run):
        await it.running()
        it.returns(0, 21)
        assert await run.result() == 42


async def test_an_exception_of_a_role_is_raised(held):
    async with held(worker=1) as (it, run):
        await it.running()
        failed = Failed(error="ValueError: no.", launching=False, traceback="Traceback of the role", exception=b"")
        it.scheduler.tells(failed, "worker", 0)
        with pytest.raises(RoleFailedError, match=r"worker 0 raised ValueError: no\."):
            await run.result()


async def test_one_that_goes_on_is_told_and_goes_on(held):
    async with held(worker=1) as (it, run):
        await it.running()
        with pytest.raises(StalledError, match=r"Run run still runs after 0\.01 s: running: 1 running"):
            await run.result(0.01)
        with pytest.raises(ValueError, match="watch= is for clients that wait"):
            run.result(watch=print)
        assert it.driver.state.phase is Phase.RUNNING
        it.returns()


async def test_it_is_stopped_in_order(held):
    async with held(worker=1) as (it, run):
        await it.running()
        stopping = asyncio.ensure_future(run.stop("enough"))
        await it.scheduler.until(lambda: it.scheduler.sent(Stop))
        it.returns(0, "in order")
        await stopping
        assert (await run.result()).results == {"worker": ["in order"]}
        assert (await run.result()).stop_reason == "enough"
        run.stop_soon("again")  # does no harm
        await run.replaced()


async def test_one_whose_cell_runs_again_ends(held):
    async with held(worker=1) as (it, run):
        replacing = asyncio.ensure_future(run.replaced())
        await replacing
        assert it.driver.finish.what == "its cell was run again"


async def test_one_that_nobody_holds_ends(driven):
    async with driven(worker=1) as it:
        it.scheduler.asynchronous = True
        run = Run(it.driver)
        assert it.driver.finish is None
        del run
        gc.collect()
    assert it.driver.finish.what == "nobody holds it any more"


async def test_scores_come_until_it_ends(held):
    async with held(worker=1) as (it, run):
        await it.running()

        seen = []

        async def follow():
            async for score in run.scores():
                seen.append(score["loss"])
                it.scheduler._changes()

        following = asyncio.ensure_future(follow())
        for loss in (3.0, 2.0, 1.0):
            it.scheduler.tells(messages.Reported(scores=[{"loss": loss, "role": "worker", "rank": 0}]), "worker")
            await it.scheduler.until(lambda loss=loss: seen[-1:] == [loss])  # each as soon as it is there
        it.returns()
        await following
        assert seen == [3.0, 2.0, 1.0]
        assert [score["loss"] async for score in run.scores()] == [3.0, 2.0, 1.0], "from the first on"


async def test_what_roles_printed_is_prefixed_where_there_are_several(held):
    async with held(worker=2) as (it, run):
        parts = [
            ("worker", 0, 0, 0, "größe\n".encode()),
            ("worker", 1, 0, 0, b"lost"),
            ("worker", 1, 1, 0, b"one\ntwo\n"),
        ]
        it.scheduler.answers["train_run_show"] = {"status": "OK", "output": parts}
        await run.stop()
        assert await run.logs() == "[worker 0] größe\n[worker 1] one\n[worker 1] two\n"
        assert await run.logs("worker", 0) == "größe\n"
        assert await run.logs("worker") == await run.logs()


async def test_its_event_log_replays(held, tmp_path):
    async with held(worker=2) as (it, run):
        await it.running()
        it.returns(0)
        it.returns(1)
        await run.result()
        run.event_log(tmp_path / "log")
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    compared = replay(lines)
    assert len(compared) == len(lines) - 1 > 5
    assert all(then == now for then, now in compared)


async def test_ctrl_c_while_the_log_is_waited_for_leaves_the_result(held, monkeypatch):
    def at_once(function, *args):
        """Run what need not wait, as the run is over."""
        with pytest.raises(StopIteration) as returned:
            function(*args).send(None)
        return returned.value.value

    def interrupted(history, result):
        raise KeyboardInterrupt

    async with held(worker=1, finish=lambda result: result.results["worker"][0] * 2) as (it, run):
        await it.running()
        it.returns(0, 21)
        assert await run.result() == 42
        monkeypatch.setattr("dask_train.driver.history.History.deliver", interrupted)
        monkeypatch.setattr(it.scheduler, "asynchronous", False)
        monkeypatch.setattr(it.scheduler, "run", at_once)
        with pytest.raises(KeyboardInterrupt) as raised:
            run.result()
    assert raised.value.result == 42
