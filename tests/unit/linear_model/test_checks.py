"""What estimators are told is checked when they fit."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from dask_train.linear_model.checks import check_class_weight, check_labels, check_number, check_solving, check_workers
from dask_train.linear_model.solving import SOLVERS, WITH_L1


def estimator(**settings):
    return SimpleNamespace(**{"tol": 1e-4, "max_iter": 100, "l1_ratio": 0, "solver": "lbfgs", **settings})


@pytest.mark.parametrize("value", [-1, -0.001, float("nan"), "1", None, True, 1j])
def test_what_is_no_number_from_0(value):
    with pytest.raises(ValueError, match=r"^alpha is .*; it is a number from 0\.$"):
        check_number("alpha", value)


def test_limits():
    for value in (0, 0.5, np.float32(2), np.int64(3)):
        check_number("alpha", value)
    check_number("C", 0.1, above=0)
    with pytest.raises(ValueError, match=r"C is 0; it is a number above 0\."):
        check_number("C", 0, above=0)


@pytest.mark.parametrize("l1_ratio", [0, 0.5, 1])
def test_solvers_by_their_penalties(l1_ratio):
    for solver in SOLVERS:
        if l1_ratio == 0 or solver in WITH_L1:
            check_solving(estimator(solver=solver, l1_ratio=l1_ratio))
        else:
            with pytest.raises(ValueError, match=f"solver is '{solver}'; with l1_ratio={l1_ratio} it is 'newton-cd'"):
                check_solving(estimator(solver=solver, l1_ratio=l1_ratio))


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"l1_ratio": 1.1}, "l1_ratio is 1.1; it is a number from 0 to 1"),
        ({"l1_ratio": -0.1}, "l1_ratio is -0.1"),
        ({"solver": "saga"}, "solver is 'saga'; it is 'newton-cholesky', .*, 'proximal_gradient' or 'admm'"),
        ({"solver": None}, "solver is None"),
        ({"tol": -1}, "tol is -1"),
        ({"max_iter": "many"}, "max_iter is 'many'"),
    ],
)
def test_what_can_not_be(settings, told):
    with pytest.raises(ValueError, match=told):
        check_solving(estimator(**settings))


@pytest.mark.parametrize("given", [None, "balanced", {}, {"a": 2}, {"a": 2, "b": 0, "c": 1}])
def test_weights_by_class(given):
    check_class_weight(given, ["a", "b"])


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("balancd", "class_weight is 'balancd'; it is None, 'balanced', or a dict"),
        ([1, 2], r"class_weight is \[1, 2\]"),
        ({"a": -1}, r"class_weight\['a'\] is -1; it is a number from 0"),
        ({0: 1, 1: 5}, "class_weight has weights of 0, 1, and none of the classes 'a', 'b'"),
    ],
)
def test_weights_that_would_not_count(given, told):
    with pytest.raises(ValueError, match=told):
        check_class_weight(given, ["a", "b"])


def test_labels_of_another_kind_than_those_that_were_learnt():
    for classes, y in (([0, 1], [1.0]), (["a", "b"], ["c"]), ([0, 1], [True])):
        check_labels(np.array(classes), np.array(y))
    check_labels(np.array(["a", "b"], object), np.array(["a"]))
    for classes, y in ((["0", "1"], [1]), ([0, 1], ["1"])):
        with pytest.raises(ValueError, match=r"y has labels of dtype .* Pass labels as fit had them"):
            check_labels(np.array(classes), np.array(y))


@pytest.mark.parametrize("workers", [-1, 1.5, "2", True])
def test_workers_are_told_by_the_parameter_s_name(workers):
    for given in (None, 0, 3, np.int64(2)):
        check_workers(given)
    with pytest.raises(ValueError, match=f"workers is {workers!r}; it is a whole number, 0 for this process itself"):
        check_workers(workers)
