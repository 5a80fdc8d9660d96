"""Losses of linear models: what a row loses for a prediction before the link, and its two derivatives.

The formulas are those of McCullagh and Nelder, "Generalized Linear Models" (1989), as half unit deviances less what
does not depend on the prediction.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit, logsumexp, softmax, xlogy


class Family:
    """Half the squared error, with the identity as its link; the root of the others.

    Attributes
    ----------
    num_outputs
        Predictions of a row; 0 if it is a number.
    """

    num_outputs = 0

    def loss(self, y: np.ndarray, raw: np.ndarray) -> np.ndarray:
        """Return the loss of each row, ``(n,)``."""
        return 0.5 * (raw - y) ** 2

    def gradient(self, y: np.ndarray, raw: np.ndarray) -> np.ndarray:
        """Return the derivative of the loss by the prediction, of its shape."""
        return raw - y

    def curvature(self, y: np.ndarray, raw: np.ndarray) -> np.ndarray:  # noqa: ARG002 - of some it depends on y
        """Return the second derivative, ``(n,)``, never below 0: where it may be, what is expected of it."""
        return np.ones_like(raw)

    def inverse_link(self, raw: np.ndarray) -> np.ndarray:
        """Return the mean that a prediction means."""
        return raw

    def link(self, mean: float) -> float:
        """Return the prediction of a mean; where to begin."""
        return mean

    def refused(self, y: np.ndarray) -> str:  # noqa: ARG002 - some refuse
        """Return what of the targets is invalid, in words; empty if nothing is."""
        return ""

    def check(self, y: np.ndarray) -> None:
        """Check that all targets are valid.

        Raises
        ------
        ValueError
            Some can't.
        """
        if problem := self.refused(y):
            raise ValueError(f"Some value(s) of y are out of the valid range of the loss: they are {problem}.")


class Logistic(Family):
    """Binary logistic regression; targets are 0 and 1."""

    def loss(self, y: np.ndarray, raw: np.ndarray) -> np.ndarray:
        """See :class:`Family`."""
        # As numpy.logaddexp(0, raw) - y * raw, in less than half the time.
        return np.maximum(raw, 0.0) - y * raw + np.log1p(np.exp(-np.abs(raw)))

    def gradient(self, y: np.ndarray, raw: np.ndarray) -> np.ndarray:
        """See :class:`Family`."""
        return expit(raw) - y

    def curvature(self, y: np.ndarray, raw: np.ndarray) -> np.ndarray:  # noqa: ARG002
        """See :class:`Family`."""
        return expit(raw) * expit(-raw)


@dataclass
class Multinomial(Family):
    """Multinomial logistic regression; targets are numbers of classes, predictions ``(n, num_outputs)``.

    Its curvature is a matrix a row, of the probabilities: see :meth:`Objective <.objective.Objective>`.
    """

    num_outputs: int

    def loss(self, y: np.ndarray, raw: np.ndarray) -> np.ndarray:
        """See :class:`Family`."""
        return np.asarray(logsumexp(raw, axis=1)) - raw[np.arange(len(y)), y.astype(int)]

    def gradient(self, y: np.ndarray, raw: np.ndarray) -> np.ndarray:
        """See :class:`Family`."""
        gradient: np.ndarray = softmax(raw, axis=1)
        gradient[np.arange(len(y)), y.astype(int)] -= 1
        return gradient


@dataclass
class Tweedie(Family):
    """A Tweedie distribution with the logarithm as its link; of power 1 Poisson's, of 2 the gamma distribution."""

    power: float

    def loss(self, y: np.ndarray, raw: np.ndarray) -> np.ndarray:
        """See :class:`Family`."""
        if self.power == 1:
            return np.exp(raw) - y * raw
        if self.power == 2:
            return raw + y * np.exp(-raw)
        one, two = 1 - self.power, 2 - self.power
        return np.exp(two * raw) / two - y * np.exp(one * raw) / one

    def gradient(self, y: np.ndarray, raw: np.ndarray) -> np.ndarray:
        """See :class:`Family`."""
        return np.exp((2 - self.power) * raw) - y * np.exp((1 - self.power) * raw)

    def curvature(self, y: np.ndarray, raw: np.ndarray) -> np.ndarray:
        """See :class:`Family`."""
        one, two = 1 - self.power, 2 - self.power
        if one <= 0 <= two:
            return two * np.exp(two * raw) - one * y * np.exp(one * raw)
        return np.exp(two * raw)

    def inverse_link(self, raw: np.ndarray) -> np.ndarray:
        """See :class:`Family`."""
        return np.exp(raw)

    def link(self, mean: float) -> float:
        """See :class:`Family`."""
        return float(np.log(mean)) if mean > 0 else 0.0  # below power 0 targets may be anything

    def refused(self, y: np.ndarray) -> str:
        """See :class:`Family`."""
        if self.power >= 2 and (y <= 0).any():
            return "not above 0"
        return "below 0" if 1 <= self.power < 2 and (y < 0).any() else ""


@dataclass
class IdentityTweedie(Tweedie):
    """A Tweedie distribution with the identity as its link; predictions are means, which are above 0."""

    def loss(self, y: np.ndarray, raw: np.ndarray) -> np.ndarray:
        """See :class:`Family`."""
        if self.power == 1:
            losses = raw - y * np.log(raw)
        elif self.power == 2:
            losses = np.log(raw) + y / raw
        else:
            one, two = 1 - self.power, 2 - self.power
            losses = raw**two / two - y * raw**one / one
        return np.where(raw < 0, np.inf, losses)  # so that no step leaves the range

    def gradient(self, y: np.ndarray, raw: np.ndarray) -> np.ndarray:
        """See :class:`Family`."""
        return (raw - y) * raw**-self.power

    def curvature(self, y: np.ndarray, raw: np.ndarray) -> np.ndarray:  # noqa: ARG002
        """See :class:`Family`."""
        return raw**-self.power

    def inverse_link(self, raw: np.ndarray) -> np.ndarray:
        """See :class:`Family`."""
        return raw

    def link(self, mean: float) -> float:
        """See :class:`Family`."""
        if mean <= 0:
            raise ValueError(
                f"The mean of y is {mean:g}, and with link='identity' a Tweedie distribution of power {self.power} has "
                "means above 0. Pass power=0, which takes any."
            )
        return mean


def tweedie_deviance(y: np.ndarray, mean: np.ndarray, power: float) -> np.ndarray:
    """Return the unit deviances of targets, ``(n,)``, as in :func:`sklearn.metrics.mean_tweedie_deviance`."""
    if power == 0:
        return (y - mean) ** 2
    if power == 1:
        return 2 * (xlogy(y, y / mean) - y + mean)
    if power == 2:
        return 2 * (np.log(mean / y) + y / mean - 1)
    one, two = 1 - power, 2 - power
    return 2 * (np.maximum(y, 0) ** two / (one * two) - y * mean**one / one + mean**two / two)
