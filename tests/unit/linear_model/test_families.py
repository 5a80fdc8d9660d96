"""Losses of linear models: their derivatives are those of their values, and they are scikit-learn's."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import log_loss, mean_tweedie_deviance

from dask_train.linear_model.families import Family, Logistic, Multinomial, Tweedie, tweedie_deviance

RAW = np.linspace(-2.0, 2.0, 9)
FAMILIES = {
    "squares": (Family(), RAW[::-1] * 3),
    "logistic": (Logistic(), (RAW > 0.3).astype(float)),
    **{f"tweedie {power:g}": (Tweedie(power), np.arange(1.0, 10.0)) for power in (-1, 0, 1, 1.5, 2, 3)},
}
ALL = pytest.mark.parametrize(("family", "y"), FAMILIES.values(), ids=list(FAMILIES))


@ALL
def test_the_gradient_is_that_of_the_loss(family, y):
    step = 1e-6
    numeric = (family.loss(y, RAW + step) - family.loss(y, RAW - step)) / (2 * step)
    np.testing.assert_allclose(family.gradient(y, RAW), numeric, rtol=1e-5, atol=1e-6)


@ALL
def test_the_curvature_is_that_of_the_loss_or_what_is_expected_of_it(family, y):
    """Where targets are means: that is where what is expected is what is."""
    y = family.inverse_link(RAW) if isinstance(family, Tweedie) else y
    step = 1e-5
    numeric = (family.gradient(y, RAW + step) - family.gradient(y, RAW - step)) / (2 * step)
    found = family.curvature(y, RAW)
    np.testing.assert_allclose(found, numeric, rtol=1e-5, atol=1e-7)
    assert (found >= 0).all()


@pytest.mark.parametrize("power", [-1, 0, 1, 1.5, 2, 3])
def test_curvature_is_never_below_0(power):
    y, raw = np.meshgrid(np.array([0.0, 0.1, 1.0, 50.0]), np.linspace(-4, 4, 9))
    assert (Tweedie(power).curvature(y.ravel(), raw.ravel()) >= 0).all()


def test_far_predictions_of_classes_are_finite():
    raw, y = np.array([-1e4, 1e4, 1e4, -1e4]), np.array([0.0, 1.0, 0.0, 1.0])
    np.testing.assert_allclose(Logistic().loss(y, raw), [0, 0, 1e4, 1e4])
    assert np.isfinite(Logistic().gradient(y, raw)).all()
    many = Multinomial(2)
    np.testing.assert_allclose(many.loss(np.array([0, 1]), np.array([[1e4, 0], [1e4, 0]])), [0, 1e4])


def test_several_classes():
    rng = np.random.default_rng(0)
    raw, y, step, family = rng.normal(size=(6, 3)), rng.integers(0, 3, 6), 1e-6, Multinomial(3)
    chances = np.exp(raw) / np.exp(raw).sum(1, keepdims=True)
    assert family.loss(y, raw).mean() == pytest.approx(log_loss(y, chances, labels=[0, 1, 2]))
    for out in range(3):
        ahead, behind = raw.copy(), raw.copy()
        ahead[:, out] += step
        behind[:, out] -= step
        numeric = (family.loss(y, ahead) - family.loss(y, behind)) / (2 * step)
        np.testing.assert_allclose(family.gradient(y, raw)[:, out], numeric, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("power", [0, 1, 1.5, 2, 3])
def test_deviances_are_scikit_learns(power):
    rng = np.random.default_rng(1)
    y, mean = rng.random(20) + 0.1, rng.random(20) + 0.1
    y[0] = 0.0 if 1 <= power < 2 else y[0]
    expected = mean_tweedie_deviance(y, mean, power=power)
    assert tweedie_deviance(y, mean, power).mean() == pytest.approx(expected)


@pytest.mark.parametrize("power", [1, 1.5, 2, 3])
def test_a_deviance_is_twice_what_the_loss_is_above_its_least(power):
    y, raw = np.array([0.5, 1.0, 7.0]), np.array([0.3, -1.0, 1.0])
    family = Tweedie(power)
    above = family.loss(y, raw) - family.loss(y, np.log(y))
    np.testing.assert_allclose(2 * above, tweedie_deviance(y, np.exp(raw), power), rtol=1e-9)


@pytest.mark.parametrize(
    ("power", "y", "refused"),
    [
        (0, [-1.0], ""),
        (1, [0.0], ""),
        (1, [-0.1], "below 0"),
        (1.9, [-0.1], "below 0"),
        (2, [0.0], "not above 0"),
        (2, [0.1], ""),
        (3, [-1.0], "not above 0"),
        (-1, [-1.0], ""),
    ],
)
def test_targets_that_can_not_be(power, y, refused):
    assert Tweedie(power).refused(np.array(y)) == refused


def test_where_to_begin():
    assert Tweedie(1).link(np.e) == pytest.approx(1.0)
    assert Tweedie(0).link(-3.0) == 0.0
    assert Family().link(-3.0) == -3.0


@pytest.mark.parametrize("power", [-1.5, 0, 1, 1.5, 2, 3])
def test_deviances_are_those_of_scikit_learn(power):
    y, mean = np.array([0.5, 2.0, 3.0]), np.array([1.0, 2.5, 0.1])
    found = tweedie_deviance(y, mean, power).mean()
    assert found == pytest.approx(mean_tweedie_deviance(y, mean, power=power), rel=1e-12)
