"""``fit`` of torch modules with sparse embeddings: the loop by hand, also after a worker is killed."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from functools import partial

import dask.array as da
import numpy as np
import pytest
import torch

import dask_train as dt

ROWS, BATCH_SIZE, INDICES = 301, 30, 40  # the last batch has one row: most workers have none
_random = np.random.default_rng(0)
USERS, WORDS = _random.integers(0, INDICES, (ROWS, 1)), _random.integers(0, INDICES, (ROWS, 4))
Y = _random.normal(size=(ROWS, 1))
MOMENTUM = partial(torch.optim.SGD, lr=0.1, momentum=0.9)
ADAGRAD = partial(torch.optim.Adagrad, lr=0.1)

pytestmark = pytest.mark.filterwarnings("ignore:Sparse invariant checks:UserWarning")  # torch's Adagrad


class Ratings(torch.nn.Module):
    """Looks up a user and some words; ends its process in one call of training, once, if there is a mark for it."""

    def __init__(self, mark=None, at=-1):
        super().__init__()
        torch.manual_seed(3)
        self.user = torch.nn.Embedding(INDICES, 5, sparse=True)
        self.words = torch.nn.EmbeddingBag(INDICES, 5, mode="mean", sparse=True)
        self.last = torch.nn.Linear(5, 1)
        self.mark, self.at, self.calls = mark, at, 0
        self.double()

    def forward(self, user, words):
        self.calls += self.training
        if self.calls == self.at:
            with suppress(FileExistsError):  # one of the workers that are here at the same time makes the mark
                open(self.mark, "x").close()
                os.kill(os.getpid(), signal.SIGKILL)
        return self.last(torch.tanh(self.user(user[:, 0]) + self.words(words)))


def fitted(client, module, optimizer, **settings):
    x = {"user": da.from_array(USERS, chunks=(70, 1)), "words": da.from_array(WORDS, chunks=(70, 4))}
    arguments = {"epochs": 2, "batch_size": BATCH_SIZE, "shuffle": False, "verbose": 0, **settings}
    y = da.from_array(Y, chunks=(70, 1))
    return dt.fit(module, x, y, loss=torch.nn.MSELoss(), optimizer=optimizer, client=client, **arguments)


def by_hand(optimizer, epochs=2):
    module, loss = Ratings(), torch.nn.MSELoss()
    made = optimizer(module.parameters())
    users, words, y = map(torch.from_numpy, (USERS, WORDS, Y))
    for _ in range(epochs):
        for first in range(0, ROWS, BATCH_SIZE):
            part = slice(first, first + BATCH_SIZE)
            made.zero_grad()
            loss(module(users[part], words[part]), y[part]).backward()
            made.step()
    return module


def check_same(module, other, tolerance=0.0):
    for one, wanted in zip(module.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(one, wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("workers", "tolerance"), [(1, 0.0), (3, 1e-9)])
@pytest.mark.parametrize("optimizer", [MOMENTUM, ADAGRAD], ids=["momentum", "adagrad"])
def test_workers_train_the_embeddings_of_a_loop_by_hand(client, optimizer, workers, tolerance):
    module = Ratings()
    fitted(client, module, optimizer, workers=workers)
    check_same(module, by_hand(optimizer), tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("recovery", [None, "in_place"])
def test_what_was_killed_ends_with_the_same_bits(client, tmp_path, recovery):
    whole, mark = Ratings(), tmp_path / "killed"
    fitted(client, whole, MOMENTUM, workers=2)
    killed = Ratings(str(mark), at=15)
    more = {"recovery": recovery} if recovery else {"checkpoint": dt.Checkpoint(tmp_path / "kept", every_steps=4)}
    result = fitted(client, killed, MOMENTUM, workers=2, **more)
    assert mark.exists()
    assert [len(each.places) for each in result.attempts] == [2, 1 if recovery else 2]
    check_same(result.model, whole)


@pytest.mark.slow
def test_one_worker_resumes_with_the_same_bits(client, tmp_path):
    """Momentum of its sparse gradients has several values of a row, as in the loop by hand."""
    folder = dt.Checkpoint(tmp_path / "kept", every_steps=4)
    killed = Ratings(str(tmp_path / "killed"), at=15)
    fitted(client, killed, MOMENTUM, workers=1, checkpoint=folder)
    check_same(killed, by_hand(MOMENTUM))
