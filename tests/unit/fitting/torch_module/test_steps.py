"""Steps of several workers, as threads: the loss and the gradients of one process, whatever the loss does with rows."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch.nn import functional

from dask_train.data.columns import Columns
from dask_train.fitting.torch_module.steps import ModuleSteps, left_as_it_was, refilled

ROWS = 11
_random = np.random.default_rng(0)
X = _random.normal(size=(ROWS, 4))
CLASSES = _random.integers(0, 3, ROWS).astype(np.int32)
VALUES = _random.normal(size=(ROWS, 3))
WEIGHTS = _random.random(ROWS)
BY_CLASS = torch.tensor([1.0, 5.0, 0.2], dtype=torch.float64)


class Net(torch.nn.Module):
    """Has a part that a worker may not use, and one that nobody does."""

    def __init__(self):
        super().__init__()
        self.first, self.last = torch.nn.Linear(4, 5), torch.nn.Linear(5, 3)
        self.sometimes, self.never = torch.nn.Linear(4, 3), torch.nn.Linear(4, 3)
        self.double()

    def forward(self, x):
        found, some = self.last(torch.tanh(self.first(x))), x[:, 0] > 0.5
        return found.masked_scatter(some[:, None], self.sometimes(x[some])) if some.any() else found


torch.manual_seed(2)
NET = Net()  # ranks are threads, which would draw numbers in any order


def compares_rows(outputs, y):
    """No mean over rows: each is compared with all."""
    return torch.cdist(outputs, y).logsumexp((0, 1))


def changes_outputs(outputs, y):
    outputs[y < 0] = 0
    return functional.mse_loss(outputs.mul_(2), y)


def ignoring(outputs, y):
    return functional.cross_entropy(outputs, torch.where(y == 1, -100, y))


class Penalised(torch.nn.Module):
    """A loss with a penalty on weights of the module."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, outputs, y):
        return functional.mse_loss(outputs, y) + 0.1 * (self.net.last.weight**2).sum() + self.net.never.bias.sum()


def left_out(**settings):
    """Classes of which some count for nothing."""
    return torch.nn.CrossEntropyLoss(weight=BY_CLASS, ignore_index=1, label_smoothing=0.1, **settings)


class OfTheirOwn(torch.nn.MSELoss):
    """Compares rows, though it is one of torch's."""

    def forward(self, outputs, y):
        return super().forward(outputs - outputs.mean(0), y)


CHANCES = np.exp(VALUES) / np.exp(VALUES).sum(1, keepdims=True)
POSITIVE = {"pos_weight": torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)}
OF_ROWS = torch.from_numpy(WEIGHTS)[:, None]

# Of which each worker's part is enough.
OF_PARTS = {
    "mean": (lambda net: torch.nn.MSELoss(), VALUES, None),
    "sum": (lambda net: torch.nn.MSELoss(reduction="sum"), VALUES, None),
    "weights of classes": (lambda net: torch.nn.CrossEntropyLoss(weight=BY_CLASS), CLASSES, None),
    "classes left out": (lambda net: left_out(), CLASSES, None),
    "chances": (lambda net: partial(functional.cross_entropy, weight=BY_CLASS), CHANCES, None),
    "logits": (lambda net: torch.nn.BCEWithLogitsLoss(**POSITIVE, weight=BY_CLASS), CHANCES, None),
    "mean of a batch": (lambda net: torch.nn.KLDivLoss(reduction="batchmean"), CHANCES, None),
    "function": (lambda net: partial(functional.huber_loss, delta=0.3), VALUES, None),
    "weights of rows": (lambda net: partial(functional.cross_entropy, label_smoothing=0.1), CLASSES, WEIGHTS),
    "weighted sum": (lambda net: torch.nn.MSELoss(reduction="sum"), VALUES, WEIGHTS),
}
LOSSES = OF_PARTS | {
    "rows left out": (lambda net: ignoring, CLASSES, None),
    "rows compared": (lambda net: compares_rows, VALUES, None),
    "penalty": (Penalised, VALUES, None),
    "outputs changed in place": (lambda net: changes_outputs, VALUES, None),
    "a loss of one's own": (lambda net: OfTheirOwn(), VALUES, None),
    "weights by place": (
        lambda net: partial(functional.binary_cross_entropy_with_logits, weight=OF_ROWS),
        CHANCES,
        None,
    ),
    "pairs of rows": (lambda net: torch.nn.HingeEmbeddingLoss(), np.sign(VALUES[:, :1, None]), None),
    "weighted elements": (lambda net: partial(functional.mse_loss, weight=torch.ones(ROWS, 3)), VALUES, None),
    "outputs alone": (lambda net: lambda outputs: (outputs**2).mean(), None, None),
}
SHARES = {1: [range(ROWS)], 2: [range(6), range(6, ROWS)], 3: [range(0, 4), range(0), range(4, ROWS)]}


def columns_of(y, weights, rows):
    return [torch.from_numpy(np.array(each[list(rows)])) for each in (X, y, weights) if each is not None]


def stepped(loss, y, weights, rows, replicas, **asked):
    """The loss and the gradients of a step on some rows, and how often the optimizer was asked."""
    net, steps_taken = copy.deepcopy(NET), []
    steps = ModuleSteps(net, loss(net), replicas, **asked)
    layout = Columns.of_batch(1 + (y is not None) + (weights is not None))
    batch = steps.packed(layout, columns_of(y, weights, rows))

    def some_row():
        return steps.packed(layout, columns_of(y, weights, [3]))

    done = steps.train(batch, some_row, lambda: steps_taken.append(1))
    gradients = {name: one.grad for name, one in net.named_parameters()}
    with torch.no_grad():
        evaluated = steps.evaluate(batch, some_row)
    return done, gradients, evaluated, steps_taken


def noted(replicas, sent):
    """Notes what goes to all."""
    gather = replicas.gather

    def gathering(key, arrays):
        sent.update(array.nbytes for array in arrays)
        return gather(key, arrays)

    replicas.gather = gathering
    return replicas


@pytest.mark.parametrize("asks", [True, False], ids=["outputs are asked for", "they are not"])
@pytest.mark.parametrize("name", LOSSES)
def test_loss_and_gradients_are_those_of_one_process(on_each_rank, name, asks):
    loss, y, weights = LOSSES[name]
    alone, wanted, *_ = stepped(loss, y, weights, range(ROWS), None)
    for size in (2, 3):
        sent = set()

        def take_part(rank, replicas):
            share = SHARES[size][rank]  # noqa: B023
            return stepped(loss, y, weights, share, noted(replicas, sent), tells_outputs=asks)  # noqa: B023

        found = on_each_rank(take_part, size)
        assert (max(sent) == 16) == (name in OF_PARTS and not asks), "two numbers, or rows"
        for done, gradients, evaluated, taken in found:
            assert done.loss == pytest.approx(alone.loss, rel=1e-12)
            assert evaluated.loss == pytest.approx(alone.loss, rel=1e-12)
            if size == 2 and done.outputs is not None:
                torch.testing.assert_close(done.outputs, alone.outputs)
            assert (done.rows, evaluated.rows, taken) == (ROWS, ROWS, [1])
            for key, gradient in wanted.items():
                assert (gradients[key] is None) == (gradient is None), key
                if gradient is not None:
                    torch.testing.assert_close(gradients[key], gradient, rtol=1e-11, atol=1e-13)
        for key, gradient in found[0][1].items():  # to the last bit the same on all
            assert all(gradient is None or torch.equal(gradient, other[1][key]) for other in found)


class Bags(torch.nn.Module):
    """Looks up several words of a row, which may weigh something, and a word that stands for none."""

    def __init__(self, mode="sum", **settings):
        super().__init__()
        self.bags = torch.nn.EmbeddingBag(9, 3, mode=mode, padding_idx=0, dtype=torch.float64, **settings)
        self.last = torch.nn.Linear(3, 3).double()

    def forward(self, words, weights=None):
        return self.last(self.bags(words, per_sample_weights=weights))


WORDS = np.random.default_rng(1).integers(0, 9, (ROWS, 4))


@pytest.mark.parametrize(("mode", "weighted"), [("mean", False), ("max", False), ("sum", True)])
def test_bags_of_words_and_clipped_gradients_are_those_of_one_process(on_each_rank, mode, weighted):
    torch.manual_seed(4)
    bags, layout = Bags(mode), Columns(features=(0, 1) if weighted else 0, labels=1 + weighted)
    columns = [WORDS, X, CLASSES] if weighted else [WORDS, CLASSES]

    def trained(rows, replicas):
        module, norms = copy.deepcopy(bags), []
        optimizer = torch.optim.SGD(module.parameters(), lr=1.0)

        def clip(*_):
            norms.append(float(torch.nn.utils.clip_grad_norm_(module.parameters(), 0.05)))

        optimizer.register_step_pre_hook(clip)
        steps = ModuleSteps(module, torch.nn.CrossEntropyLoss(), replicas, tells_outputs=False)

        def packed(rows):
            return steps.packed(layout, [torch.from_numpy(one[list(rows)]) for one in columns])

        for _ in range(3):
            steps.train(packed(rows), lambda: packed([3]), optimizer.step)
        assert min(norms) > 0.05
        return norms, [one.detach() for one in module.parameters()]

    norms, wanted = trained(range(ROWS), None)
    assert torch.equal(wanted[0][0], bags.bags.weight[0]), "the word that stands for none"
    for size in (2, 3):
        for found, parameters in on_each_rank(lambda rank, all_: trained(SHARES[size][rank], all_), size):  # noqa: B023
            assert found == pytest.approx(norms, rel=1e-10)
            for one, other in zip(parameters, wanted, strict=True):
                torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


def test_a_try_does_not_cut_rows_of_an_embedding():
    module = Bags("sum", max_norm=0.1)
    before = module.bags.weight.detach().clone()
    with left_as_it_was(module):
        module(torch.from_numpy(WORDS))
        assert not torch.equal(module.bags.weight, before)
    assert torch.equal(module.bags.weight, before)


def test_the_step_of_one_process_is_the_loop_written_by_hand():
    net, loss = copy.deepcopy(NET), torch.nn.MSELoss()
    loss(net(torch.from_numpy(X)), torch.from_numpy(VALUES)).backward()
    _, gradients, *_ = stepped(lambda _: loss, VALUES, None, range(ROWS), None)
    for name, one in net.named_parameters():
        assert (one.grad is None and gradients[name] is None) or torch.equal(one.grad, gradients[name])


class Waves(torch.nn.Module):
    """Makes complex numbers and others of inputs that it changes in place."""

    def __init__(self):
        super().__init__()
        self.parts, self.last = torch.nn.Linear(4, 3, dtype=torch.complex128), torch.nn.Linear(4, 3).double()
        self.calls = 0

    def forward(self, x):
        self.calls += self.training
        x *= 0.5 / max(1, self.calls)
        return {"waves": self.parts(x.to(torch.complex128)), "values": self.last(x)}


def of_waves(outputs, y):
    return ((outputs["waves"] - y).abs() ** 2).mean() + functional.mse_loss(outputs["values"], y)


def test_complex_outputs_are_derived_and_what_a_call_changes_is_changed_once(on_each_rank):
    torch.manual_seed(5)
    waves = Waves()

    def stepped_waves(rows, replicas):
        module = copy.deepcopy(waves)
        steps = ModuleSteps(module, of_waves, replicas)

        def packed(rows):
            return steps.packed(Columns.of_batch(2), columns_of(VALUES, None, rows))

        done = steps.train(packed(rows), lambda: packed([3]), lambda: None)
        assert module.calls == 1
        module.eval()
        assert steps.evaluate(packed(rows), lambda: packed([3])).loss == pytest.approx(done.loss, rel=1e-12)
        return done.loss, [one.grad for one in module.parameters()]

    loss, wanted = stepped_waves(range(ROWS), None)
    assert all(gradient.abs().max() > 0.01 for gradient in wanted)
    for size in (2, 3):
        for found, gradients in on_each_rank(lambda rank, all_: stepped_waves(SHARES[size][rank], all_), size):  # noqa: B023
            assert found == pytest.approx(loss, rel=1e-12)
            for one, other in zip(gradients, wanted, strict=True):
                torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-13)


class Odd(torch.nn.Module):
    """Makes what several workers can't put together."""

    def __init__(self, make):
        super().__init__()
        self.linear, self.make = torch.nn.Linear(4, 1).double(), make

    def forward(self, x):
        return self.make(self.linear(x))


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda found: found.mean(), r"a tensor of shape \(\) of 2 rows"),
        (lambda found: (found, torch.zeros(2, 1)), r"a tensor of shape \(2, 1\) of 3 rows"),
        (lambda found: (found, "text"), "makes str besides tensors"),
        (lambda found: found - found.mean(0), "depends on the other rows of its batch"),
        (lambda found: torch.complex(torch.zeros_like(found), found - found.mean(0)), "depends on the other rows"),
    ],
)
def test_what_can_not_be_put_together_is_refused(on_each_rank, make, text):
    def tried(rank, replicas):
        module = Odd(make)
        steps = ModuleSteps(module, lambda outputs: outputs[0].abs().sum(), replicas)
        batch = steps.packed(Columns.of_batch(1), columns_of(None, None, [rank, 5]))
        with pytest.raises(ValueError, match=text):
            steps.train(batch, lambda: batch, lambda: None)
        return True

    assert on_each_rank(tried, 2) == [True, True]


@pytest.mark.parametrize("first", [[1, 2], [0, 0]], ids=["others", "the row at hand"])
def test_dependence_on_other_rows_is_refused_of_shares_of_one_row(on_each_rank, first):
    """Where the first one is the row that any worker has at hand, it is seen with the next one."""

    def tried(rank, replicas):
        module = Odd(lambda found: found - found.mean(0))
        steps = ModuleSteps(module, lambda outputs: outputs.abs().sum(), replicas)

        def packed(rows):
            return steps.packed(Columns.of_batch(1), columns_of(None, None, rows))

        if first[rank] == 0:
            steps.train(packed([0]), lambda: packed([0]), lambda: None)
        with pytest.raises(ValueError, match="depends on the other rows of its batch"):
            steps.train(packed([1 + rank]), lambda: packed([0]), lambda: None)
        return True

    assert on_each_rank(tried, 2) == [True, True]


def test_workers_without_rows_leave_moving_averages_and_random_numbers_alone(on_each_rank):
    norm = torch.nn.Sequential(torch.nn.BatchNorm1d(4), torch.nn.Dropout(0.5), torch.nn.Linear(4, 3)).double()

    def trained(rank, replicas):
        module = copy.deepcopy(norm)
        steps = ModuleSteps(module, torch.nn.MSELoss(), replicas)
        layout = Columns.of_batch(2)
        batch = steps.packed(layout, columns_of(VALUES, None, range(ROWS) if rank == 0 else []))
        steps.train(batch, lambda: steps.packed(layout, columns_of(VALUES, None, [3])), lambda: None)
        return module[0].running_mean.clone(), int(module[0].num_batches_tracked)

    (mean, count), (untouched, none) = on_each_rank(trained, 2)
    torch.testing.assert_close(mean, 0.1 * torch.from_numpy(X.mean(0)))
    assert (count, none) == (1, 0)
    assert not untouched.any()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bfloat16", "float16"])
def test_weights_of_rows_are_not_cut_to_the_16_bits_of_a_module(dtype):
    """Which count to 256, or 2,048."""
    steps = ModuleSteps(torch.nn.Linear(1, 1).to(dtype), functional.mse_loss, None)
    columns = [torch.ones(3001, 1), torch.ones(3001, 1), torch.linspace(1, 2, 3001)]
    batch = steps.packed(Columns.of_batch(3), columns)
    assert (batch.x.dtype, batch.y.dtype, batch.weight.dtype) == (dtype, dtype, torch.float32)
    assert torch.equal(batch.weight, columns[2])


def test_named_tuples_keep_their_class():
    class Outputs(NamedTuple):
        mean: Any
        scale: Any

    made = refilled(Outputs(torch.ones(1), [torch.zeros(1)]), [torch.full((1,), 2.0), torch.ones(1)])
    assert (type(made), made.mean.item(), made.scale[0].item()) == (Outputs, 2, 1)
