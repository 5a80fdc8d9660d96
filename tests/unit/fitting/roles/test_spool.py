"""Weights on their way to a scorer: the latest win, the last are waited for, and scores stay with their epochs."""

from __future__ import annotations

import math
import threading
from types import SimpleNamespace

import keras
import numpy as np
import pytest
from keras import layers

from dask_train.fitting.roles.spool import Spool, SpooledWeights, spool_credentials
from dask_train.fitting.roles.validation import ValidationBeside
from dask_train.frameworks.ports import address_of, hold_port


def network(value):
    model = keras.Sequential([layers.Input((2,)), layers.Dense(1, use_bias=False)])
    model.compile("adam", "mse")
    model.set_weights([np.full((2, 1), value, np.float32)])
    return model


class StepLogs:
    """Who looks at scores."""

    def __init__(self):
        self.told = []

    def expect_scores(self, epochs):
        self.told.append(sorted(epochs))

    def take_scores(self, epoch, found):
        self.told.append((epoch, found["val_loss"]))


@pytest.fixture
def ends():
    """Both ends, and what tells the scorer to stop."""
    stopped = threading.Event()
    with hold_port() as holder:
        address = address_of("127.0.0.1", holder)
        session = SimpleNamespace(peers={"worker": [address]}, tls=None, should_stop=stopped.is_set)
        task = SimpleNamespace(secret=b"run", collective_timeout_s=5.0)
        told = StepLogs()
        spool = Spool(address, spool_credentials(task, session), told)
        model = network(0.0)
        scorer = SpooledWeights(task, model, session)
        yield SimpleNamespace(
            spool=spool, scorer=scorer, model=model, stopped=stopped, session=session, task=task, told=told.told
        )
        stopped.set()
        scorer.close()
        spool.close()


def test_the_latest_win_and_the_last_is_waited_for(ends):
    spool, scorer = ends.spool, ends.scorer
    assert scorer.next(0.0) is None
    for epoch in range(3):
        spool.put(epoch, network(float(epoch)))
    assert scorer.next(1.0) == {"epoch": 2}
    np.testing.assert_array_equal(ends.model.get_weights()[0], np.full((2, 1), 2.0))
    assert scorer.next(0.0) is None, "it has begun with these"
    spool.put(3, network(3.0))
    scorer.scored({"val_loss": 0.5})
    moves = []
    assert not spool.wait_for_last(0.3, moved=lambda: moves.append(1), should_stop=lambda: False)
    assert not spool.wait_for_last(60.0, moved=lambda: None, should_stop=lambda: True)

    def score():
        assert scorer.next(1.0) == {"epoch": 3}
        scorer.moved()
        scorer.scored({"val_loss": 0.25})

    scoring = threading.Thread(target=score)
    scoring.start()
    assert spool.wait_for_last(60.0, moved=lambda: moves.append(2), should_stop=lambda: False)
    scoring.join()
    assert moves
    assert ends.told == [[0], [1], [2], [2, 3], (2, 0.5), [3], (3, 0.25), []]
    (values,) = spool.aligned(range(4)).values()
    assert values == pytest.approx([math.nan, math.nan, 0.5, 0.25], nan_ok=True)


def test_another_scorer_begins_with_what_was_not_scored(ends):
    ends.spool.put(4, network(4.0))
    assert ends.scorer.next(1.0) == {"epoch": 4}
    ends.scorer.close()  # it was killed
    other = SpooledWeights(ends.task, ends.model, ends.session)
    assert other.next(1.0) == {"epoch": 4}
    ends.spool.put(5, network(5.0))
    other.close()  # killed as well
    other = SpooledWeights(ends.task, ends.model, ends.session)
    assert other.next(1.0) == {"epoch": 5}
    ends.spool._on_scored(None, epoch=4, scores={"val_loss": 9.0})  # of the first one, after all
    other.scored({"val_loss": 1.0})
    other.close()
    assert (ends.told, ends.spool.scores) == ([[4], [4, 5], [5], (5, 1.0), []], {5: {"val_loss": 1.0}})
    third = SpooledWeights(ends.task, ends.model, ends.session)
    assert third.next(0.0) is None
    third.close()


def test_one_whose_worker_has_ended_ends_with_the_run(ends):
    assert ends.scorer.next(0.0) is None
    ends.spool.close()
    threading.Timer(0.1, ends.stopped.set).start()
    assert ends.scorer.next(0.0) is None


@pytest.mark.parametrize(
    ("freq", "values", "known", "notices"),
    [
        (1, [3.0, math.nan, 1.0], {0: {"val_loss": 3.0}, 2: {"val_loss": 1.0}}, 0),
        (2, [2.0], {1: {"val_loss": 2.0}}, 0),
        (1, [2.0], {}, 1),
    ],
)
def test_scores_of_a_checkpoint_keep_their_epochs(freq, values, known, notices):
    told = []
    task, session = SimpleNamespace(validation_freq=freq), SimpleNamespace(notice=told.append)
    spool = SimpleNamespace(scores={})
    history = {"loss": [3.0, 2.0, 1.0], "val_loss": list(values)}
    ValidationBeside(task, session, network(0.0), spool).take_known(history, [0, 1, 2])
    assert (spool.scores, history) == (known, {"loss": [3.0, 2.0, 1.0]})
    assert len(told) == notices
