"""What a rank of a linear model's fit is in a run."""

from __future__ import annotations

import pickle
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import sparse

from dask_train.linear_model.rank_role import FOUND, Linear, LinearRole, _told_apart
from dask_train.role.time_spent import TimeSpent
from dask_train.trainers.common.task import LoopTask

X, Y = np.arange(12.0).reshape(6, 2), np.array(["a", "b", "a", "c", "b", "a"], object)


class Session:
    """What a role sees of its run."""

    num_rows, peers, attempt, _state_memory = 6, {}, 0, None

    def __init__(self, rank, *parts):
        self.world_rank, self.world_size, self._parts = rank, 1, parts
        self._link = SimpleNamespace(spent=TimeSpent())

    def partitions(self):
        return iter(self._parts)

    def all_reduce(self, arrays):
        return arrays


def role(problem):
    return LinearRole(problem=problem, task=LoopTask())


def test_the_result_comes_back_once():
    found = [role(lambda ranks: f"of {ranks.world_rank}")(Session(rank)) for rank in range(3)]
    assert found[0].header == {FOUND: "of 0"}
    assert found[1:] == [None, None]


def test_a_problem_has_the_partitions_and_the_rest_of_the_session():
    seen = role(lambda ranks: [[len(each[0]) for each in ranks.partitions()], ranks.num_rows])
    assert seen(Session(0, (X[:2],), (X[2:],))).header == {FOUND: [[2, 4], 6]}


def test_it_travels_with_its_problem():
    again = pickle.loads(pickle.dumps(role(len)))
    assert again.__name__ == "linear-model", "as runs are listed"
    assert again.problem is len


def told(*parts):
    return _told_apart(Session(0), parts)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int8])
def test_rows_are_told_apart_by_their_bits_and_not_by_how_they_are_cut(dtype):
    x = X.astype(dtype)
    whole = told((x, Y))
    assert told((x[:1], Y[:1]), (x[1:], Y[1:])) == whole
    changed = x.copy()
    changed[3, 1] += 1
    assert told((changed, Y))["X"] != whole["X"]
    assert told((x, np.where(Y == "c", "d", Y)))["y"] != whole["y"]
    assert told((x, Y, np.ones(6)))["sample_weight"] != whole["sample_weight"]


def test_rows_are_told_apart_by_which_labels_they_have():
    whole, odd = told((X, Y)), "rows of X with those of y"
    exchanged = told((X, Y[::-1].copy()))
    assert {name for name in whole if whole[name] != exchanged[name]} == {odd}
    assert told((X[:, ::-1], Y))["X"] != whole["X"]


def test_sparse_rows_are_told_apart_by_their_places_too():
    one, other = np.zeros((2, 3)), np.zeros((2, 3))
    one[0, 1] = other[0, 2] = 5.0
    assert told((sparse.csr_array(one), Y[:2])) != told((sparse.csr_array(other), Y[:2]))


def test_sparse_rows_are_not_told_apart_by_how_they_are_cut():
    x = sparse.csr_array(np.where(np.median(X) < X, X, 0.0))
    assert told((x[:1], Y[:1]), (x[1:4], Y[1:4]), (x[4:], Y[4:])) == told((x, Y))


def test_its_process_imports_the_solvers_and_no_dask():
    code = f"import sys, {', '.join(Linear.imports)}; assert not {{'dask', 'distributed'}} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
