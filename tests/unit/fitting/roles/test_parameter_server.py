"""What parameter servers count, keep and tell, asked by workers over real lines."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from types import SimpleNamespace

import keras
import numpy as np
import pytest
from keras import layers

from dask_train.data.columns import Columns
from dask_train.fitting.backends import backend_of
from dask_train.fitting.roles.models import build
from dask_train.fitting.roles.parameter_server import ParameterServer
from dask_train.fitting.roles.servers import servers_of
from dask_train.fitting.roles.weights import value_of
from dask_train.fitting.roles.worker_counts import WorkerCounts
from dask_train.fitting.spec import FitTask
from dask_train.frameworks.ports import hold_port
from dask_train.keras_models.serialization import model_to_parts
from dask_train.role.time_spent import TimeSpent

TWO = WorkerCounts(((0, 2),))


def made():
    keras.utils.set_random_seed(1)
    model = keras.Sequential([layers.Input((3,)), layers.Dense(2), layers.BatchNormalization(), layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.1), "mse")
    build(model, Columns(features=0))
    return model


@pytest.fixture
def run():
    """Two servers, and workers: each a model, and its lines."""
    with ExitStack() as opened:
        addresses = [f"127.0.0.1:{opened.enter_context(hold_port()).getsockname()[1]}" for _ in range(2)]
        header, arrays = model_to_parts(made())
        task = FitTask(header=header, arrays=arrays, columns=Columns(features=0), collective_timeout_s=20.0)

        def session(rank):
            link = SimpleNamespace(spent=TimeSpent())
            return SimpleNamespace(peers={"ps": addresses}, size=2, rank=rank, host="127.0.0.1", tls=None, _link=link)

        it = SimpleNamespace(roles=[])
        for rank in range(2):
            it.roles.append(ParameterServer(task, session(rank), backend_of("tensorflow")))
            opened.callback(it.roles[-1].close)

        def worker(rank):
            model = made()
            lines = servers_of(task, model, session(rank))
            opened.callback(lines.close)
            return model, lines

        it.worker = worker
        it.first, it.lines = worker(0)
        yield it


def begun(run):
    assert run.lines.begin(0, 5.0) == (False, 0, None), "the first worker brings the weights"
    for number, weight in enumerate(run.first.weights):
        weight.assign(np.full(weight.shape, number + 0.5))
    run.lines.bring([{}, {}], {}, TWO, 0)


def step(lines, rank, steps, counted=(0, None), statistics=False):
    return lines.step(rank=rank, steps=steps, counted=counted, statistics=statistics, weights=True)[1]


def test_others_begin_when_the_first_worker_has_brought_its_weights(run, in_threads):
    model, lines = run.worker(1)

    def first():
        begun(run)

    _, (ready, steps, remembered) = in_threads(first, lambda: lines.begin(1, 5.0))
    assert (ready, steps, remembered) == (True, 0, None)
    for one, other in zip(model.trainable_weights, run.first.trainable_weights, strict=True):
        np.testing.assert_array_equal(value_of(one), value_of(other))


def test_who_waits_for_the_first_weights_is_answered_in_time(run):
    """A worker's question ends with an error of its own, which knows less than the run does."""
    _, other = run.worker(1)
    assert other.begin(1, 0.01) == (False, 0, None)
    assert other.pull(-1, 0.01)["steps"] == -1
    run.roles[0]._ready.set()
    assert other.pull(-1, 0.01)["steps"] == -1, "the other server has none"


def test_one_that_takes_the_first_ones_place_is_told_what_it_would_have_taken_along(run):
    begun(run)
    run.lines.remember({"callbacks": b"held"})
    step(run.lines, 0, 1)
    _, again = run.worker(0)
    assert again.begin(0, 5.0) == (True, 1, {"callbacks": b"held"})
    _, other = run.worker(1)
    assert other.begin(1, 5.0) == (True, 0, None)


def test_rows_count_once_however_often_a_step_is_told(run):
    begun(run)
    counts = [np.array([2.0, 1.0])]
    assert step(run.lines, 0, 1, (0, counts))["counted"][0].tolist() == [2.0, 1.0]
    assert step(run.lines, 0, 1, (0, counts))["counted"][0].tolist() == [2.0, 1.0], "it was told again"
    _, other = run.worker(1)
    other.begin(1, 5.0)
    assert step(other, 1, 1, (0, counts))["counted"][0].tolist() == [4.0, 2.0]
    assert step(other, 1, 2, (1, counts))["counted"][0].tolist() == [2.0, 1.0], "of another epoch"
    told = run.lines.everything()
    assert told["steps"] == {0: 1, 1: 2}
    assert [told["counted"][epoch][0].tolist() for epoch in (0, 1)] == [[4.0, 2.0], [2.0, 1.0]]


def test_a_step_without_rows_is_told_what_others_have_counted(run):
    begun(run)
    assert step(run.lines, 0, 1)["counted"] is None, "nobody has counted a row"
    _, other = run.worker(1)
    other.begin(1, 5.0)
    step(other, 1, 1, (0, [np.array([2.0, 1.0])]))
    assert step(run.lines, 0, 2)["counted"][0].tolist() == [2.0, 1.0]
    assert step(run.lines, 0, 3, (1, None))["counted"] is None, "of another epoch"


def test_counts_of_epochs_before_a_checkpoint_are_kept_with_the_next(run):
    """A checkpoint gives single numbers back as such."""
    run.lines.begin(0, 5.0)
    run.lines.bring([{}, {}], {0: [2.0, np.ones(2)]}, TWO, 0)
    step(run.lines, 0, 1, (1, [np.float64(3.0), np.ones(2)]))
    counted = run.lines.everything()["counted"]
    assert [[np.asarray(one).tolist() for one in counted[epoch]] for epoch in (0, 1)] == [[2, [1, 1]], [3, [1, 1]]]


def test_moving_averages_are_the_mean_over_the_workers(run):
    begun(run)
    model, other = run.worker(1)
    other.begin(1, 5.0)
    for one, lines, rank in ((run.first, run.lines, 0), (model, other, 1)):
        one.layers[1].moving_mean.assign([rank, 4.0])
        step(lines, rank, 1, (0, []), statistics=True)
    assert other.pull(0, 5.0)["steps"] == 2
    np.testing.assert_array_equal(value_of(model.layers[1].moving_mean), [0.5, 4.0])


def test_who_waits_for_another_step_is_answered_with_it(run, in_threads):
    begun(run)
    _, scorer = run.worker(5)
    assert scorer.pull(-1, 0.0)["steps"] == 0
    assert scorer.pull(0, 0.01)["steps"] == 0, "none has come in time"
    told = threading.Event()

    def waits():
        told.set()
        return scorer.pull(0, 20.0)["steps"]

    def steps():
        assert told.wait(60)
        step(run.lines, 0, 1, (0, [np.ones(1)]))

    assert in_threads(waits, steps)[0] == 1


def test_steps_are_counted_on_from_a_checkpoint(run):
    """Else the run would take a scorer's reports for those of an earlier attempt."""
    run.lines.begin(0, 5.0)
    run.lines.bring([{0: (40, 0)}] * 2, {}, TWO, 70)
    _, scorer = run.worker(5)
    assert scorer.pull(-1, 0.0)["steps"] == 70
    step(run.lines, 0, 41, (0, [np.ones(1)]))
    assert scorer.pull(70, 20.0)["steps"] == run.lines.everything()["num_steps"] == 71


def test_the_first_worker_ends_all(run, in_threads):
    begun(run)
    _, other = run.worker(1)
    other.begin(1, 5.0)
    assert not step(other, 1, 1)["stop"]
    assert in_threads(lambda: run.lines.ended(set(), 20.0), lambda: other.end(1))[0] == ({1}, {1: 1})
    run.lines.end(0, stop=True)
    assert step(other, 1, 2)["stop"]


def test_another_number_shares_the_batches_from_a_step_that_no_worker_has_begun(run):
    begun(run)
    _, other = run.worker(1)
    other.begin(1, 5.0)
    step(run.lines, 0, 1)
    step(other, 1, 4)
    assert run.lines.share(4, 3) == (False, 4), "worker 1 has begun the step after 4"
    assert run.lines.counts == TWO
    assert run.lines.share(5, 3) == (True, 4)
    assert other.counts == TWO
    step(other, 1, 5)
    assert other.counts == run.lines.counts == TWO.then(5, 3)


def test_a_change_that_one_that_joins_may_have_heard_of_stays(run):
    begun(run)
    assert run.lines.share(20, 4) == (True, 0)
    _, joins = run.worker(2)
    assert joins.begin(2, 5.0) == (True, 0, None)
    for first in (19, 20):
        assert run.lines.share(first, 2) == (False, 20)
    assert run.lines.counts == joins.counts == TWO.then(20, 4)
    assert run.lines.share(21, 2) == (True, 20)
    joins.skip(2, joins.counts.next_of(2, 0))
    assert step(joins, 2, 21)["counts"].next_of(2, 21) is None
    assert joins.counts.changes == ((0, 2), (20, 4), (21, 2))


def test_one_that_joins_hears_of_its_share_and_continues_after_the_steps_of_others(run, in_threads):
    begun(run)
    _, joins = run.worker(2)
    assert joins.begin(2, 5.0) == (True, 0, None)
    joins.wait_for_counts(0.01)
    assert joins.counts == TWO
    in_threads(lambda: joins.wait_for_counts(20.0), lambda: run.lines.share(5, 3))
    assert joins.counts == TWO.then(5, 3)
    joins.skip(2, 5)
    joins.skip(2, 3)
    assert joins.begin(2, 5.0)[1] == 5
    assert run.lines.everything()["progress"] == [{2: (5, 0)}] * 2, "else they would drop its gradients"


def test_moving_averages_of_one_that_has_left_are_not_among_the_means_and_one_that_joins_has_these(run):
    begun(run)
    model, other = run.worker(1)
    other.begin(1, 5.0)
    run.lines.share(2, 1)
    for one, lines, rank in ((run.first, run.lines, 0), (model, other, 1)):
        one.layers[1].moving_mean.assign([rank, 4.0 + rank])
        for steps in (1, 2):
            step(lines, rank, steps, statistics=True)
    third, joins = run.worker(2)
    joins.begin(2, 5.0)
    np.testing.assert_array_equal(value_of(third.layers[1].moving_mean), [0.0, 4.0])


def test_servers_end_when_all_have_hung_up(run):
    begun(run)
    run.lines.close()
    for role in run.roles:
        role.wait_until_alone(20.0)
        assert not role._served
