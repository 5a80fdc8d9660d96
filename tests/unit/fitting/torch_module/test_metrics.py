"""What metrics have counted over batches: exact over uneven ones, and when counting goes on from a checkpoint."""

from __future__ import annotations

import copy
import math

import pytest
import torch

from dask_train.fitting.torch_module.metrics import ModuleMetrics

torch.manual_seed(0)
OUTPUTS, Y = torch.randn(7, 3), torch.randint(3, (7,))
BATCHES = [slice(0, 4), slice(4, 6), slice(6, 7)]


class Rows:
    """Counts by itself, as metrics of torchmetrics do."""

    def __init__(self, *told):
        self.told, self.rows = told, 0

    def to(self, device):
        """It has no tensors."""

    def reset(self):
        self.rows = 0

    def update(self, outputs, y):
        self.rows += len(y)

    def compute(self):
        return {name: torch.tensor([self.rows, 2 * self.rows]) for name in self.told} if self.told else self.rows

    def keys(self):
        return self.told


def correct(outputs, y):
    return outputs.argmax(1) == y


def largest(outputs, y):
    return outputs.max()


def counted(given, batches, state=None):
    metrics = ModuleMetrics(given)
    lacking = None if state is None else metrics.restore(state)
    for rows in batches:
        metrics.update(len(Y[rows]) / 10, OUTPUTS[rows], Y[rows], len(Y[rows]))
    return metrics, lacking


def test_means_are_over_rows_and_lists_are_told_under_their_own_names():
    given = {"largest": largest, "rows": Rows(), "correct": correct, "parts": Rows("a", "b")}
    found = counted(given, BATCHES)[0].results()
    assert list(found) == ["loss", "largest", "rows", "correct", "a", "b"]
    assert found["correct"] == pytest.approx(float(correct(OUTPUTS, Y).double().mean()))
    assert found["loss"] == pytest.approx((4 * 0.4 + 2 * 0.2 + 0.1) / 7)
    assert found["largest"] == pytest.approx(sum(float(OUTPUTS[at].max()) * len(Y[at]) for at in BATCHES) / 7)
    assert (found["rows"], found["a"]) == (7, [7, 14])


def test_of_no_rows_nothing_is_known():
    metrics, _ = counted({"correct": correct}, BATCHES)
    metrics.reset()
    assert all(math.isnan(value) for value in metrics.results().values())


def test_counting_goes_on_where_it_was():
    given = {"correct": correct, "rows": Rows(), "largest": largest}
    wanted = counted(copy.deepcopy(given), BATCHES)[0].results()
    state = counted(copy.deepcopy(given), BATCHES[:1])[0].state()
    metrics, lacking = counted(given, BATCHES[1:], state)
    assert (metrics.results(), lacking) == (wanted, [])
    metrics.reset()
    metrics.update(1.0, OUTPUTS[:2], Y[:2], 2)
    assert (metrics.results()["rows"], given["rows"].rows) == (2, 2), "those that were given count the next epoch"


@pytest.mark.parametrize(
    ("then", "now"),
    [(correct, Rows()), (Rows(), correct), (None, correct), (None, Rows()), (Rows("a"), Rows("a", "b"))],
    ids=["function", "by itself", "none", "none by itself", "fewer"],
)
def test_a_metric_that_was_another_one_then_has_only_the_rows_since(then, now):
    before = {"rows": Rows()} if then is None else {"rows": Rows(), "it": then}
    state = counted(before, BATCHES[:1])[0].state()
    metrics, lacking = counted({"rows": Rows(), "it": now}, BATCHES[1:], state)
    assert lacking == ["it"]
    wanted = counted({"it": now}, BATCHES[1:])[0].results()
    found = metrics.results()
    assert found["rows"] == 7
    assert {name: found[name] for name in wanted if name != "loss"} == {k: v for k, v in wanted.items() if k != "loss"}


@pytest.mark.parametrize("names", [("a", "a"), ("loss",), ("correct",)])
def test_two_results_of_one_name_are_not_told_as_one(names):
    given = {"correct": correct, **{f"parts {number}": Rows(name) for number, name in enumerate(names)}}
    metrics, _ = counted(given, BATCHES)
    with pytest.raises(ValueError, match=rf"Two metrics tell {names[0]!r}.*prefix="):
        metrics.results()


def test_those_that_are_like_others_count_apart():
    given = {"rows": Rows()}
    like = ModuleMetrics.like(given, "cpu")
    like.update(0.0, OUTPUTS, Y, 7)
    assert (like.results()["rows"], given["rows"].rows) == (7, 0)
    assert like.look_at_rows
    assert not ModuleMetrics({}).look_at_rows
