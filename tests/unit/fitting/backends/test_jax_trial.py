"""Which steps workers may take together, of steps that are played: gradients and logs that are means over rows."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

jax = pytest.importorskip("jax")

from dask_train.fitting.backends.base import StepError  # noqa: E402
from dask_train.fitting.backends.jax_trial import Found, check_step, is_mean_of_other_rows  # noqa: E402
from dask_train.fitting.backends.tried_gathers import TriedGather, TriedGathers  # noqa: E402

RNG = np.random.default_rng(0)


def model(dtype="float32"):
    return SimpleNamespace(name="net", _flatten_layers=lambda include_self=True: [SimpleNamespace(compute_dtype=dtype)])


def checked(step, rows=20, *, looks_at_logs=True, dtype="float32", gathers=None):
    """What is found of a step: a function of rows, and of what a metric has counted."""
    batch = {"x": jax.numpy.asarray(RNG.normal(size=(rows, 3)) + 2), "y": None}

    def tried(given, batch):
        return step(np.asarray(batch["x"], np.float64), *given[-1])

    given = (None, [np.zeros(2)])
    return check_step(tried, given, batch, gathers or TriedGathers(), model=model(dtype), looks_at_logs=looks_at_logs)


def means(x, counted, gradient=None, **logs):
    counted = counted + np.array([x.sum(), len(x)])
    results = {"mean": counted[0] / counted[1]}
    logs = {name: value(x, results["mean"]) for name, value in logs.items()}
    gradient = x.mean(0) if gradient is None else gradient(x)
    return Found({"mean": results["mean"], **logs}, [counted], results, [gradient, np.zeros(3)])


@pytest.mark.parametrize("rows", [1, 2, 3, 8, 9, 20])
@pytest.mark.parametrize(
    "gradient",
    [
        lambda x: x.mean(0),
        lambda x: np.zeros(3),
        lambda x: x.mean(0) * np.nan,
        lambda x: x.mean(0) * np.inf,
        lambda x: np.zeros((0, 3)),
    ],
    ids=["mean", "zero", "nan", "infinite", "of nothing"],
)
def test_means_over_rows_are_taken(rows, gradient):
    assert checked(lambda x, counted: means(x, counted, gradient), rows) == frozenset()


@pytest.mark.parametrize("rows", [1, 2, 3, 8, 9, 20])
@pytest.mark.parametrize(
    "gradient",
    [
        lambda x: x.sum(0),
        lambda x: np.sqrt(len(x)) * x.mean(0),
        lambda x: x.mean(0) + 0.01 * len(x),
    ],
    ids=["sum", "root", "and a little more"],
)
def test_others_are_refused(rows, gradient):
    for looks in (True, False):
        with pytest.raises(StepError, match="Model 'net' has a loss of its own that is no mean over rows"):
            checked(lambda x, counted: means(x, counted, gradient), rows, looks_at_logs=looks)


def test_a_trial_begins_when_its_rows_are_there():
    begun = []

    def tried(given, batch):
        begun.append(batch["x"].is_ready())
        return Found({}, [], {}, [np.asarray(batch["x"]).mean(0)])

    rows = jax.numpy.ones((2000, 2000))
    for _ in range(3):
        batch = {"x": rows @ rows @ rows}  # which is computed in a thread of JAX, as what is made of it
        assert is_mean_of_other_rows(tried, (), batch, TriedGathers(), model())
    assert begun == [True] * 9


def test_masks_that_leave_as_much_of_each_row_are_told_of():
    x = np.where(np.arange(12)[:, None] % 2 == np.arange(2), RNG.random((12, 2)) + 1, -1.0)
    batch, given = {"x": jax.numpy.asarray(x)}, (None, [np.zeros(2)])

    def found_of(gradient):
        def tried(given, batch):
            with np.errstate(all="ignore"):
                return means(np.asarray(batch["x"], np.float64), given[-1][0], gradient)

        check_step(tried, given, batch, TriedGathers(), model=model(), looks_at_logs=False)
        return is_mean_of_other_rows(tried, given, batch, TriedGathers(), model())

    assert found_of(lambda x: x.mean(0))
    assert not found_of(lambda x: (x * (x > 0)).sum(0) / (x > 0).sum())
    assert found_of(lambda x: x.mean(0) / (x[0, 0] * x[0, 1] < 0)), "sorted rows have no finite gradients"


@pytest.mark.parametrize("rows", [1, 2, 3, 8, 9, 20])
@pytest.mark.parametrize(
    ("loss", "is_taken"),
    [
        # The derivatives of a loss by a worker's rows and by those of all.
        (lambda own, all_rows: (0 * own, 2 * all_rows), True),
        (lambda own, all_rows: (np.ones_like(own) * all_rows.sum(0) / len(own), np.full_like(all_rows, 1.0)), True),
        (lambda own, all_rows: (np.ones_like(own) * all_rows.sum(0), np.full_like(all_rows, 1.0) * len(own)), False),
        (lambda own, all_rows: (np.ones_like(own) * own.sum(0), 0 * all_rows), False),
    ],
    ids=["of all rows alone", "a mean beside all rows", "a sum beside all rows", "a worker's rows with each other"],
)
def test_steps_that_gather_rows_are_tried_with_those_of_all(rows, loss, is_taken):
    gathers = TriedGathers()

    def step(x, counted):
        place = TriedGather()
        all_rows = gathers.gather(place, x)
        assert len(all_rows) == max(rows, 2)
        by_own, by_all = loss(x, all_rows)
        return Found({}, [], {}, [(by_own + gathers.spread(place, by_all)).sum(0)])

    if is_taken:
        assert checked(step, rows, looks_at_logs=False, gathers=gathers) == frozenset()
    else:
        with pytest.raises(StepError):
            checked(step, rows, looks_at_logs=False, gathers=gathers)


def test_how_much_gradients_may_be_rounded_goes_by_the_dtype():
    def rounded(x, counted):
        return means(x, counted, lambda x: x.mean(0) * (1 + 1e-3 * (len(x) % 3)))

    assert checked(rounded, dtype="bfloat16") == frozenset()
    with pytest.raises(StepError):
        checked(rounded)


def test_what_is_left_of_a_gradient_that_is_none_counts_for_nothing():
    def step(x, counted):
        found = means(x, counted)
        return found._replace(gradients=[found.gradients[0], np.full(3, 1e-7 * x[0, 0])])

    assert checked(step) == frozenset()


def test_logs_are_what_metrics_say_or_means_over_rows():
    def step(x, counted):
        return means(x, counted, own=lambda x, _: x.mean(), rate=lambda *_: 0.1, undefined=lambda *_: np.nan)

    assert checked(step) == {"own", "rate", "undefined"}
    assert checked(step, looks_at_logs=False) == frozenset()


@pytest.mark.parametrize(
    "log",
    [
        lambda x, _: x.sum(),
        lambda x, _: x.max(),
        lambda x, _: np.sqrt(np.square(x).mean()),
        lambda _, mean: mean**2,
        lambda x, mean: x.mean() - mean,
    ],
    ids=["sum", "largest", "root", "of a metric", "of both"],
)
def test_other_logs_are_refused(log):
    with pytest.raises(StepError, match="Model 'net' logs 'own', which is neither what a metric says nor a mean"):
        checked(lambda x, counted: means(x, counted, own=log))
