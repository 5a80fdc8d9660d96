"""``fit(recovery="in_place")`` of boosted trees: all workers start again, from a round that was kept in memory."""

from __future__ import annotations

import os
import re
import signal
import time

import dask.array as da
import lightgbm
import numpy as np
import psutil
import pytest
import xgboost

import dask_train as dt

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(1200, 4)).round(1).astype(np.float32)
Y = X[:, 0] + X[:, 1] ** 2 + RANDOM.normal(size=1200)
# Rounds that all take before one is lost.
BEFORE = 9
# Rounds take some time, so that the states of most are kept.
ROUND_S = 0.02
XGBOOST = {"max_depth": 3, "subsample": 0.7, "colsample_bytree": 0.6, "early_stopping_rounds": 4}
LIGHTGBM = {"num_leaves": 7, "early_stopping_round": 4, "verbose": -1}


class Gate(xgboost.callback.TrainingCallback):
    """Holds all workers after some rounds until there is a file."""

    def __init__(self, file, after=BEFORE):
        self.file, self.after, self.order, self.num_calls = str(file), after, 0, 0

    def after_iteration(self, model, epoch, evals_log):
        self.num_calls += 1
        time.sleep(ROUND_S)
        while epoch >= self.after and not os.path.exists(self.file):
            time.sleep(0.02)

    def __call__(self, env):
        self.after_iteration(None, env.iteration, None)


class Loss(xgboost.callback.TrainingCallback):
    """Ends a worker's process, or its Dask worker, once, after some rounds."""

    def __init__(self, file, rank, *, with_dask_worker=False):
        self.file, self.rank, self.with_dask_worker = file, rank, with_dask_worker

    def after_iteration(self, model, epoch, evals_log):
        time.sleep(ROUND_S)
        if epoch != BEFORE or xgboost.collective.get_rank() != self.rank or self.file.exists():
            return
        self.file.touch()
        parents = psutil.Process().parents() if self.with_dask_worker else ()
        for parent in [parent for parent in parents if parent.cmdline()[1:4] == ["-m", "dask", "worker"]][:1]:
            parent.kill()
        os.kill(os.getpid(), signal.SIGKILL)


def fitted(library, gate, rows=None, *, n_estimators=60, **settings):
    """Begin a fit; the estimator, and its run or result."""
    rows = rows or (da.from_array(X, chunks=(300, 4)), da.from_array(Y, chunks=300))
    settings = {"validation_data": (X[:300], Y[:300] + 1), "workers": 2, **settings}
    if library == "xgboost":
        model = xgboost.XGBRegressor(**XGBOOST, n_estimators=n_estimators, callbacks=[gate])
    else:
        model, settings["callbacks"] = lightgbm.LGBMRegressor(**LIGHTGBM, n_estimators=n_estimators), [gate]
    return model, dt.fit(model, *rows, **settings)


@pytest.fixture(scope="module")
def undisturbed(train_client, tmp_path_factory):
    """The fits that nothing disturbs, by library and number of workers."""
    file, found = tmp_path_factory.mktemp("open") / "open", {}
    file.touch()

    def of(library, workers=2):
        if (library, workers) not in found:
            found[library, workers] = fitted(library, Gate(file), workers=workers, client=train_client)
        return found[library, workers]

    return of


def bits(model):
    if isinstance(model, xgboost.XGBModel):
        return model.get_booster().save_raw("ubj")
    return re.sub(r"(?m)^\[(machines|local_listen_port): .*$", "", model.booster_.model_to_string())


def check_same(model, result, whole, wanted):
    """Compare with a fit that was not disturbed: the model, and what was scored."""
    assert bits(model) == bits(whole)
    assert (result.history, result.epoch, result.best_epoch) == (wanted.history, wanted.epoch, wanted.best_epoch)
    assert len(result.epoch) > BEFORE
    ledger = result.ledger
    assert (ledger.trained, ledger.dropped) == (1200, 0)


def round_of(result):
    """The round from which all have continued, as the run tells it."""
    (told,) = [text for text in result.notices if "started again" in text]
    found = re.fullmatch(r"All workers have started again, from round (\d+), whose state was kept in memory\.", told)
    assert found, told
    return int(found[1])


@pytest.mark.parametrize(
    ("library", "workers", "lost"),
    [
        ("xgboost", 2, 1),
        ("lightgbm", 2, 0),
        pytest.param("lightgbm", 1, 0, marks=pytest.mark.slow),
        pytest.param("xgboost", 1, 0, marks=pytest.mark.slow),
        pytest.param("xgboost", 2, 0, marks=pytest.mark.nightly),
        pytest.param("lightgbm", 2, 1, marks=pytest.mark.nightly),
    ],
)
def test_all_continue_from_a_round_in_memory(client, tmp_path, until, undisturbed, library, workers, lost):
    whole, wanted = undisturbed(library, workers)
    gate = Gate(tmp_path / "open")
    model, run = fitted(library, gate, workers=workers, recovery="in_place", wait=False)
    os.kill(until(run, BEFORE)["worker", lost]["pid"], signal.SIGKILL)
    gate_file = tmp_path / "open"
    gate_file.touch()
    result = run.result()
    assert len(result.attempts) == 2
    check_same(model, result, whole, wanted)
    rounds = [score["round"] for score in result.scores if score["attempt"] == 1]
    assert rounds == list(range(round_of(result) + 1, len(result.epoch) + 1)), "rounds that were kept were not repeated"
    assert gate.num_calls == len(result.epoch), "callbacks hold what they would hold"


def test_the_copy_of_another_dask_worker_is_taken(client, tmp_path, until, undisturbed):
    whole, wanted = undisturbed("xgboost")
    model, run = fitted("xgboost", Gate(tmp_path / "open"), recovery="in_place", wait=False)
    where = until(run, BEFORE)["worker", 0]["address"]
    os.kill(client.run(os.getpid, workers=[where])[where], signal.SIGKILL)
    (tmp_path / "open").touch()
    result = run.result()
    assert len(result.attempts) == 2
    check_same(model, result, whole, wanted)
    assert round_of(result) >= 1


@pytest.mark.slow
def test_without_a_copy_the_last_checkpoint_is_taken_and_else_all_begin_anew(
    client, tmp_path, until, wait_for, undisturbed
):
    whole, wanted = undisturbed("lightgbm", 1)
    kept = dt.Checkpoint(tmp_path / "kept", every_steps=4, every_s=None)
    for settings, told in (({"checkpoint": kept}, r"the checkpoint of round \d+"), ({}, "the beginning")):
        (tmp_path / "open").unlink(missing_ok=True)
        gate = Gate(tmp_path / "open")
        model, run = fitted("lightgbm", gate, workers=1, recovery="in_place", wait=False, **settings)
        where = until(run, BEFORE)["worker", 0]["address"]
        if settings:
            wait_for(lambda: any(path.stat().st_size for path in kept.url.glob("checkpoint*.json")), "a checkpoint")
        os.kill(client.run(os.getpid, workers=[where])[where], signal.SIGKILL)
        (tmp_path / "open").touch()
        result = run.result()
        check_same(model, result, whole, wanted)
        (notice,) = [text for text in result.notices if "started again" in text]
        assert re.search(f"from {told}: no Dask worker of theirs has a state in memory", notice), notice


@pytest.mark.slow
def test_losses_count_and_nothing_stays_when_the_run_ends(client, tmp_path, until):
    once = dt.RecoveryPolicy(scope="in_place", max_restarts=0)
    _, run = fitted("xgboost", Gate(tmp_path / "open"), recovery=once, wait=False)
    os.kill(until(run, BEFORE)["worker", 1]["pid"], signal.SIGKILL)
    with pytest.raises(dt.RoleLostError, match="worker 1 is lost"):
        run.result()


@pytest.mark.nightly
def test_over_two_hosts_the_state_goes_to_the_one_that_has_none(hosts, no_leaks, tmp_path):
    with no_leaks(), hosts(2, workers_per_host=2) as cluster:
        client = cluster.client
        rows = dt.persist(
            da.from_array(X, chunks=(300, 4)), da.from_array(Y, chunks=300), progress=False, client=client
        )
        settings = {"client": client, "n_estimators": BEFORE + 5}  # rounds over several hosts take longer
        whole, wanted = fitted("xgboost", Loss(tmp_path / "none", None), rows, **settings)
        for rank, with_dask_worker in ((0, False), (1, False), (0, True)):
            loss = Loss(tmp_path / f"lost-{rank}-{with_dask_worker}", rank, with_dask_worker=with_dask_worker)
            model, result = fitted("xgboost", loss, rows, recovery="in_place", **settings)
            assert len(result.attempts) == 2
            assert round_of(result) >= 1
            if with_dask_worker:  # its rows may be another host's now, and sums of another order
                assert result.epoch == wanted.epoch
                np.testing.assert_allclose(model.predict(X), whole.predict(X), rtol=1e-4, atol=1e-5)
            else:
                check_same(model, result, whole, wanted)
