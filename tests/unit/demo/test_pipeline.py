"""The main job's steps over stand-ins for the network and Dask's futures; nothing is computed but on dask arrays."""

from __future__ import annotations

import time
from types import SimpleNamespace

import dask
import numpy as np
import pytest

from dask_train.demo import pipeline
from dask_train.demo.pipeline import PreparedData, feed_until_over, mnist_many_times, pictures, results_of
from dask_train.errors import RoleFailedError, RoleLostError, StalledError


class Role:
    """The future of a role."""

    def __init__(self, value=None, status="finished"):
        self.value, self.status = value, status

    def result(self, timeout):
        if isinstance(self.value, Exception):
            raise self.value
        return self.value


class Feeding:
    """A network whose feeds are delivered after two looks, and boards that are good enough after ``num_looks``."""

    def __init__(self, num_looks):
        self.num_looks, self.fed, self.cancelled = num_looks, [], 0

    def good_enough(self):
        self.num_looks -= 1
        return self.num_looks < 0

    def feed(self, batches, *, to):
        self.fed.append((list(batches), to))
        self.waiting = 2
        return self

    def wait(self, timeout_s):
        self.waiting -= 1
        if self.waiting:
            raise StalledError("There is no room.")

    def cancel(self):
        self.cancelled += 1


def feed(net, roles=None, seconds=60.0, tick=lambda boards: None):
    prepared = PreparedData(None, None, ["a", "b"])
    return feed_until_over(net, prepared, net, roles or {}, time.monotonic() + seconds, tick)


def test_passes_follow_each_other_until_the_score_is_good_enough():
    net, ticks = Feeding(num_looks=5), []
    assert feed(net, tick=ticks.append) == 3
    assert net.fed == [(["a", "b"], "worker")] * 3
    assert (ticks, net.cancelled) == ([net] * 5, 1)


@pytest.mark.parametrize(("num_looks", "seconds"), [(0, 60.0), (9, -1.0)])
def test_what_is_over_before_it_begins_feeds_nothing(num_looks, seconds):
    net = Feeding(num_looks)
    assert feed(net, seconds=seconds) == 0
    assert (net.fed, net.cancelled) == ([], 0)


def test_the_role_that_failed_is_told_though_others_still_train():
    still_training = Role(TimeoutError(), status="pending")
    roles = {"ps": [still_training], "worker": [still_training, Role(ZeroDivisionError("oh"), status="error")]}
    with pytest.raises(RoleFailedError, match="worker 1 raised ZeroDivisionError: oh"):
        feed(Feeding(num_looks=2), roles)


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (RoleLostError("worker 0 is gone."), RoleLostError, "worker 0 is gone"),
        (TimeoutError(), StalledError, r"scorer 1 did not end within \d+ s"),
        (KeyError("x"), RoleFailedError, "scorer 1 raised KeyError: 'x'"),
    ],
)
def test_what_a_role_ends_with(value, error, text):
    assert results_of("scorer", [Role(1), Role(2)]) == [1, 2]
    with pytest.raises(error, match=text):
        results_of("scorer", [Role(1), Role(value)])


@pytest.fixture
def mnist(monkeypatch):
    """A small MNIST, of 7 pictures, of which the first two are for validation."""
    images = np.arange(7 * 784, dtype=np.int64).reshape(7, 28, 28).astype(np.uint8)
    made = SimpleNamespace(train_images=images, train_labels=np.arange(7, dtype=np.uint8))
    monkeypatch.setattr(pipeline, "load_mnist", lambda: made)
    monkeypatch.setattr(pipeline, "NUM_VALIDATION_ROWS", 2)
    return made


def test_rows_are_repeated_and_validation_rows_are_none_of_them(mnist):
    assert pipeline.training_rows("labels").argmax(1).tolist() == [2, 3, 4, 5, 6]
    rows = pipeline.training_rows("images")
    assert (rows.dtype, rows.shape) == (np.float32, (5, 784))
    assert np.allclose(rows[0], mnist.train_images[2].reshape(-1) / 255)


def test_blocks_have_the_rows_of_a_batch():
    images, labels = mnist_many_times(copies=2, rows_per_batch=30_000)
    assert images.chunks == ((30_000, 30_000, 30_000, 20_000), (784,))
    assert labels.chunks == ((30_000, 30_000, 30_000, 20_000), (10,))
    assert (images.dtype, labels.dtype) == (np.float32, np.float32)


def test_pictures_are_of_all_rows():
    images = np.random.default_rng(0).random((6, 784), np.float32)
    with dask.config.set(scheduler="synchronous"):
        shown = pictures(PreparedData(dask.array.from_array(images, chunks=(2, 784)), None))
    assert {name: rows.shape for name, rows in shown.items()} == dict.fromkeys(shown, (28, 28))
    assert np.array_equal(shown["one image"].reshape(-1), images[1])
    assert np.allclose(shown["mean"].reshape(-1), images.mean(0), rtol=1e-5)
    assert np.allclose(shown["variance"].reshape(-1), images.var(0), rtol=1e-4)
