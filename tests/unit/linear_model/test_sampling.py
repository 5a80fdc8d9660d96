"""A fit of many rows begins at the minimum of a sample, and ends where it would have."""

from __future__ import annotations

import numpy as np
import pytest

from dask_train import linear_model as ours
from dask_train.linear_model import sampling
from dask_train.linear_model.families import Logistic, Tweedie
from dask_train.linear_model.objective import Objective
from dask_train.linear_model.ranks import Alone
from dask_train.linear_model.rows import rows_of
from dask_train.linear_model.sampling import sample_of
from dask_train.linear_model.solving import SOLVERS, WITH_L1, solved

RNG = np.random.default_rng(0)
X = RNG.normal(size=(20_000, 4)) * [1.0, 5.0, 0.1, 2.0] + [0.0, 7.0, 0.0, 0.0]
SIGNAL = (X - X.mean(axis=0)) @ [1.0, -0.1, 3.0, 0.0]
BINARY = (SIGNAL + RNG.logistic(size=len(X)) > 0).astype(float)


@pytest.fixture
def of_few_rows(monkeypatch):
    """Samples also of what tests have."""
    monkeypatch.setattr(sampling, "FEWEST_ROWS", 1000)


def counted(orders, cls=Objective):
    """Notes how many rows are looked at for which order of derivatives."""

    class Counted(cls):
        def _of_rows(self, coef, order):
            orders[order] += sum(len(y) for _, y, _ in self._parts) / len(X)
            return super()._of_rows(coef, order)

    return Counted


def problem(ranks, parts, orders, l1=0.0):
    settings = {"fit_intercept": True, "penalty": 1e-4, "l1": l1, "total": float(len(X))}
    return counted(orders)(ranks, parts, Logistic(), 4, **settings)


@pytest.mark.parametrize(("solver", "l1"), [(name, 0.0) for name in SOLVERS] + [(name, 0.01) for name in WITH_L1])
def test_all_solvers_end_where_they_would_without_it_and_look_at_fewer_rows(solver, l1, ranks_of):
    halves = [[rows_of(X[at], BINARY[at])] for at in (slice(0, 4000), slice(4000, None))]

    def task(rank, orders, is_sampled):
        of = problem(rank, list(rank.partitions()), orders, l1)
        sample = sample_of(rank, of._parts, len(X), of.size)
        assert sample is None
        sample = sampling.Sample(*drawn(rank, of._parts), 1e-3) if is_sampled else None
        return solved(rank, of, solver, np.zeros(of.size), 1e-9, 1000, sample)

    def drawn(rank, parts):
        found = [(x[::10], y[::10], weight[::10]) for x, y, weight in parts]
        return found, float(rank.all_reduce(np.array(sum(len(y) for _, y, _ in found))))

    with_all, with_sample = [0.0] * 3, [0.0] * 3
    wanted = ranks_of(halves, lambda rank: task(rank, with_all, is_sampled=False))[0]
    found, other = ranks_of(halves, lambda rank: task(rank, with_sample, is_sampled=True))
    np.testing.assert_array_equal(found[0], other[0])
    assert wanted[2]
    assert found[2]
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-6, atol=1e-7)
    if solver == "newton-cholesky":
        assert with_sample[2] < with_all[2] / 2, "its Hessian matrix is that of the sample"


def test_a_sample_is_drawn_alike_from_run_to_run_and_has_its_share(of_few_rows):
    parts = [rows_of(X[:15_000], BINARY[:15_000]), rows_of(X[15_000:], BINARY[15_000:], np.full(5000, 2.0))]
    one, again = (sample_of(Alone(), parts, len(X), 5) for _ in range(2))
    for part, other in zip(one.parts, again.parts, strict=True):
        for column, same in zip(part, other, strict=True):
            np.testing.assert_array_equal(column, same)
    num_rows = [len(y) for _, y, _ in one.parts]
    assert sum(num_rows) == pytest.approx(len(X) / 32, rel=0.2)
    assert one.total == num_rows[0] + 2 * num_rows[1]


def test_rows_are_drawn_alike_with_any_number_of_ranks(of_few_rows, ranks_of):
    parts = [rows_of(X[at : at + 5000], BINARY[at : at + 5000]) for at in range(0, len(X), 5000)]

    def drawn(*ranks):
        found = ranks_of(ranks, lambda rank: sample_of(rank, list(rank.partitions()), len(X), 5))
        return sorted((part[0].tolist() for each in found for part in each.parts), key=repr)

    assert drawn(parts) == drawn([parts[1], parts[3]], [parts[0]], [parts[2]])


def test_there_is_none_where_it_does_not_pay(of_few_rows):
    parts = [rows_of(X, BINARY)]
    assert sample_of(Alone(), parts, 999, 5) is None, "too few rows"
    assert sample_of(Alone(), parts, len(X), 100) is None, "it would be half of the rows"
    assert sample_of(Alone(), [rows_of(X, BINARY, np.zeros(len(X)))], len(X), 5) is None, "none that counts"


def test_a_sample_that_leads_astray_is_left(ranks_of):
    wrong = [rows_of(X[:500], np.exp(50 - 300 * X[:500, 2]))]
    parts = [rows_of(X, np.exp(SIGNAL / 3))]
    of = Objective(Alone(), parts, Tweedie(1), 4, fit_intercept=True, penalty=1e-6, total=float(len(X)))
    wanted = solved(Alone(), of, "newton-cholesky", np.zeros(5), 1e-9, 100)
    found = solved(Alone(), of, "newton-cholesky", np.zeros(5), 1e-9, 100, sampling.Sample(wrong, 500.0, 1e-3))
    assert found[2]
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-6, atol=1e-8)


def test_a_feature_that_no_row_of_the_sample_has(of_few_rows):
    x = np.column_stack([X, np.zeros(len(X))])
    x[:6, -1] = 1e3  # too few to be drawn
    y = np.append([1.0, 0.0, 1.0, 0.0, 0.0, 1.0], BINARY[6:])
    for solver in SOLVERS:
        found = ours.LogisticRegression(solver=solver, tol=1e-9, max_iter=2000).fit(x, y)
        wanted = ours.LogisticRegression(tol=1e-9, warm_start=True)
        wanted.classes_, wanted.coef_, wanted.intercept_ = np.array([0.0, 1.0]), np.zeros((1, 5)), np.zeros(1)
        np.testing.assert_allclose(found.coef_, wanted.fit(x, y).coef_, rtol=1e-5, atol=1e-7)


def test_the_estimators_draw_one_and_begin_anew_where_they_are_told_to(of_few_rows, monkeypatch):
    drawn = []

    def sampled(*given):
        drawn.append(found := sample_of(*given))
        return found

    monkeypatch.setattr("dask_train.linear_model.fitting.sample_of", sampled)
    model = ours.LogisticRegression(tol=1e-9, warm_start=True).fit(X, BINARY)
    assert drawn[0] is not None
    coef = model.coef_
    np.testing.assert_allclose(model.fit(X, BINARY).coef_, coef, rtol=1e-6)
    assert len(drawn) == 1, "a warm start is nearer"
