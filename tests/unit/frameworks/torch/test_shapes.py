"""Errors of shapes, which any rows raise, and errors of values."""

from __future__ import annotations

import logging

import pytest
import torch

from dask_train.frameworks.torch.shapes import is_of_shapes, without_values

ROWS = torch.ones(2, 3)


def positive(x):
    if x.min() > 0:
        raise RuntimeError("too large")
    return x


@pytest.mark.parametrize(
    ("attempt", "told"),
    [
        (lambda: ROWS @ torch.ones(4), True),
        (lambda: torch.nn.functional.cross_entropy(ROWS, torch.ones(2, 2, dtype=torch.long)), True),
        (lambda: torch.relu(ROWS).nothing, True),
        (lambda: torch.nn.Linear(3, 1)(ROWS.long()), True),
        (lambda: ROWS @ ROWS.T.double(), True),
        (lambda: torch.nn.Conv1d(2, 1, 1)(ROWS[None].long()), True),
        (lambda: torch.nn.Embedding(3, 1)(ROWS), True),
        (lambda: torch.nn.functional.nll_loss(ROWS, torch.ones(2)), True),
        (lambda: torch.nn.functional.softmax(ROWS.long(), -1), True),
        (lambda: torch.linalg.cholesky(torch.zeros_like(ROWS[:, :2])), False),
        (lambda: torch.nn.functional.nll_loss(ROWS, torch.tensor([3, 3])), False),
        (lambda: positive(ROWS * 1), False),
        (lambda: positive((ROWS * 1).numpy()), False),
    ],
    ids=[
        "columns",
        "axes",
        "attribute",
        "linear",
        "matrices",
        "convolution",
        "embedding",
        "numbers as classes",
        "softmax",
        "decomposition",
        "classes",
        "by value",
        "in NumPy",
    ],
)
def test_errors_of_shapes_are_told_from_those_of_values(attempt, told, capfd):
    with pytest.raises(Exception) as caught:  # noqa: PT011 - any
        attempt()
    assert is_of_shapes(caught.value, attempt) is told
    assert capfd.readouterr().err == "", "torch prints such errors as well"


def test_tensors_from_outside_stay_as_they_are():
    with without_values():
        made = (ROWS @ ROWS.T).exp()
    assert made.shape == (2, 2)
    assert ROWS.tolist() == [[1] * 3] * 2
    assert not logging.getLogger("torch._subclasses.fake_tensor").disabled
