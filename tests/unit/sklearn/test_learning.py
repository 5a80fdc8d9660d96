"""Each batch is learnt once, also by what resumes from a checkpoint; in this process, without a cluster."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import SGDClassifier

import dask_train as dt
from dask_train.errors import CheckpointError
from dask_train.sklearn import learning
from dask_train.sklearn.learning import Learning

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(50, 3))
Y = np.where(X[:, 0] > 0, "yes", "no")
WEIGHTS = RANDOM.integers(1, 3, 50).astype(float)
CLASSES = {"classes": np.array(["no", "yes"])}


def learnt(folder=None, *, data=(X, Y), alpha=1e-3, n_jobs=None, stop=None, every=1, **settings):
    """What comes of it; an SGDClassifier counts its rows."""
    estimator = SGDClassifier(alpha=alpha, random_state=0, n_jobs=n_jobs)
    task = {"epochs": 2, "batch_size": 8, "shuffle": True, "seed": 3, "more": CLASSES, "has_weights": False}
    role = Learning(estimator=estimator, **{**task, **settings}, keeps=folder is not None)
    kept = {} if folder is None else {"checkpoint": dt.Checkpoint(folder, every_steps=every), "resume": True}
    result = dt.train(role, roles={"worker": 0}, data=data, stop=stop, **kept)
    return learning.learnt(result.results["worker"][0])


def test_batches_are_learnt_in_order_with_their_weights(pool):
    found = learnt(data=(X, Y, WEIGHTS), has_weights=True, shuffle=False)
    wanted = SGDClassifier(alpha=1e-3, random_state=0)
    for start in [*range(0, 50, 8)] * 2:
        at = slice(start, start + 8)
        wanted.partial_fit(X[at], Y[at], sample_weight=WEIGHTS[at], **CLASSES)
    np.testing.assert_array_equal(found.coef_, wanted.coef_)


@pytest.mark.parametrize("every", [1, 4])
def test_what_goes_on_learns_the_rest_once_and_nothing_once_it_is_through(pool, tmp_path, every):
    whole = learnt()
    assert learnt(tmp_path, stop="steps >= 5", every=every).t_ == 1 + 40
    for n_jobs in (1, None, None):  # the last two have nothing left to do
        found = learnt(tmp_path, every=every, n_jobs=n_jobs)
        assert found.t_ == whole.t_ == 1 + 100
        np.testing.assert_array_equal(found.coef_, whole.coef_)
    more = learnt(tmp_path, epochs=3)
    assert more.t_ == 1 + 150
    np.testing.assert_array_equal(more.coef_, learnt(epochs=3).coef_)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"batch_size": 4}, "batch_size was 8, and is 4"),
        ({"seed": 4, "shuffle": False}, "shuffle was True, and is False; seed was 3, and is 4"),
        ({"alpha": 0.5}, r"estimator__alpha was 0\.001, and is 0\.5"),
        ({"data": (X[:40], Y[:40])}, "rows was 50, and is 40"),
        (
            {"data": (X, np.where(Y == "no", "a", "b")), "more": {"classes": np.array(["a", "b"])}},
            r"classes\[0\] was \"'no'\", and is \"'a'\"; classes\[1\] was \"'yes'\", and is \"'b'\"",
        ),
    ],
)
def test_other_batches_or_another_estimator_are_no_way_to_go_on(pool, tmp_path, settings, told):
    learnt(tmp_path, stop="steps >= 5")
    with pytest.raises(CheckpointError, match=rf"The checkpoint was begun with something else: {told}\."):
        learnt(tmp_path, **settings)


def test_a_checkpoint_of_an_earlier_version_is_refused(pool, tmp_path):
    def as_then(session):
        next(session.batches(batch_size=8))
        session.save_checkpoint(lambda folder: (folder / "estimator.pickle").write_bytes(b""))

    dt.train(as_then, roles={"worker": 0}, data=(X, Y), checkpoint=tmp_path)
    with pytest.raises(CheckpointError, match=r"has the files estimator\.pickle, .*Pass checkpoint= another folder"):
        learnt(tmp_path)


def test_parameters_that_are_not_numbers_or_words_are_known_by_their_text(pool, tmp_path):
    for seed in (np.random.RandomState(0), np.int64(3)):
        found = learning._configuration(SGDClassifier(random_state=seed, alpha=np.nan, n_jobs=4))
        assert found["estimator__alpha"] == "nan", "equal to itself"
        assert "estimator__n_jobs" not in found
        assert found.get("estimator__random_state") == (repr(seed) if isinstance(seed, np.int64) else None)
