"""Least squares by QR decompositions: beside NumPy's solution of all rows at once."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse

from dask_train.linear_model.least_squares import LeastSquares
from dask_train.linear_model.ranks import Alone

RANDOM = np.random.default_rng(0)
X = RANDOM.normal([0.0, 5.0, -1.0], size=(60, 3))
Y = X @ [[1.0, 0.0], [-2.0, 1.0], [0.5, 3.0]] + RANDOM.normal(size=(60, 2))
WEIGHTS = RANDOM.integers(0, 4, 60).astype(float)


def problem(alpha=0.0, fit_intercept=True, num_features=3):
    return LeastSquares(alpha=alpha, fit_intercept=fit_intercept, num_features=num_features)


def solution(x, y, weights=None, alpha=0.0, fit_intercept=True):
    """Of the normal equations, ``(features + 1, targets)``."""
    weights = np.ones(len(x)) if weights is None else weights
    rows = np.column_stack([x, np.full(len(x), float(fit_intercept))])
    gram = rows.T @ (weights[:, None] * rows) + np.diag([alpha] * x.shape[1] + [0.0 if fit_intercept else 1.0])
    return np.linalg.solve(gram, rows.T @ (weights[:, None] * y))


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("alpha", [0.0, 3.0])
@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["", "weights"])
def test_it_is_the_solution_of_the_normal_equations(alpha, fit_intercept, weights):
    columns = (X, Y) if weights is None else (X, Y, weights)
    found = problem(alpha, fit_intercept)(Alone(*columns))
    np.testing.assert_allclose(found, solution(X, Y, weights, alpha, fit_intercept), rtol=1e-9, atol=1e-12)
    if not fit_intercept:
        assert found[-1].tolist() == [0.0, 0.0]


def test_a_weight_of_2_is_the_row_twice_and_one_of_0_is_no_row():
    found = problem()(Alone(X, Y, WEIGHTS))
    again = np.repeat(np.arange(60), WEIGHTS.astype(int))
    np.testing.assert_allclose(found, problem()(Alone(X[again], Y[again])), rtol=1e-9)


@pytest.mark.parametrize(
    "cut",
    [
        [[slice(0, 60)], []],
        [[slice(0, 1), slice(1, 2)], [slice(2, 60)]],
        [[], [slice(0, 40), slice(40, 41)], [slice(41, 60)]],
    ],
    ids=["one has all", "fewer rows than columns", "without rows"],
)
def test_ranks_find_the_solution_of_all_rows(cut, ranks_of):
    parts = [[(X[at], Y[at], WEIGHTS[at]) for at in its] for its in cut]
    for found in ranks_of(parts, problem(2.0)):
        np.testing.assert_allclose(found, solution(X, Y, WEIGHTS, 2.0), rtol=1e-9)


def test_rows_of_more_than_a_block(monkeypatch):
    monkeypatch.setattr("dask_train.linear_model.rows.BLOCK_ROWS", 7)
    np.testing.assert_allclose(problem()(Alone(X, Y)), solution(X, Y), rtol=1e-9)


def test_sparse_and_narrow_features():
    sparse, narrow = scipy.sparse.csr_array(X), X.astype("f4")
    np.testing.assert_allclose(problem()(Alone(sparse, Y)), solution(X, Y), rtol=1e-9)
    np.testing.assert_allclose(problem()(Alone(narrow, Y)), solution(narrow.astype(float), Y), rtol=1e-9)


def test_targets_that_are_one_number_a_row_are_one_column():
    found = problem()(Alone(X, Y[:, 0]))
    assert found.shape == (4, 1)
    np.testing.assert_allclose(found, solution(X, Y[:, :1]), rtol=1e-9)


def test_digits_that_the_normal_equations_would_lose_are_kept():
    x = np.column_stack([X[:, 0], X[:, 0] + 1e-7 * X[:, 2]])
    found = problem(num_features=2, fit_intercept=False)(Alone(x, x @ [3.0, -4.0]))
    np.testing.assert_allclose(found[:2, 0], [3.0, -4.0], rtol=1e-6)


def test_means_far_from_0_cost_the_coefficients_nothing():
    far = X + 1e7
    found = problem()(Alone(far, Y + 1e9))
    np.testing.assert_allclose(found[:-1], solution(X, Y)[:-1], rtol=1e-6)
    np.testing.assert_allclose(far @ found[:-1] + found[-1], X @ solution(X, Y)[:-1] + solution(X, Y)[-1] + 1e9)


def test_of_columns_that_are_the_same_the_shortest_solution():
    found = problem(num_features=4)(Alone(np.column_stack([X, X[:, 0]]), Y))
    wanted = solution(X, Y)
    np.testing.assert_allclose(found[[0, 3]], np.stack([wanted[0] / 2] * 2), rtol=1e-9)


def test_of_fewer_rows_than_features_the_shortest_of_those_that_fit():
    x, y = X[:2], Y[:2]
    found = problem(fit_intercept=False)(Alone(x, y))
    np.testing.assert_allclose(found[:-1], np.linalg.pinv(x) @ y, rtol=1e-9)
    one = problem()(Alone(X[:1], Y[:1]))
    np.testing.assert_allclose(one, [[0.0, 0.0]] * 3 + [Y[0]], atol=1e-12)


def test_a_constant_column_has_no_coefficient():
    for value in (0.0, 0.1, 1e6):
        found = problem(num_features=4)(Alone(np.column_stack([X, np.full(60, value)]), Y))
        assert found[3].tolist() == [0.0, 0.0]
        np.testing.assert_allclose(found[:3], solution(X, Y)[:-1], rtol=1e-6)


def test_units_of_collinear_columns_that_are_far_apart():
    x = np.column_stack([1e-9 * X[:, 0], 1e9 * X[:, 1], 1e9 * X[:, 1]])
    found = problem(num_features=3)(Alone(x, Y))
    plain = solution(X[:, :2], Y)
    np.testing.assert_allclose(x @ found[:-1] + found[-1], X[:, :2] @ plain[:-1] + plain[-1], rtol=1e-6, atol=1e-6)


def test_where_no_row_counts_it_is_refused(ranks_of):
    with pytest.raises(ValueError, match="so no row counts"):
        problem()(Alone(X, Y, np.zeros(60)))

    def refused(rank):
        with pytest.raises(ValueError, match="so no row counts"):
            problem()(rank)
        return True

    assert ranks_of([[], []], refused) == [True, True]
