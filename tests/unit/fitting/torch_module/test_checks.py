"""What is refused of modules, losses, optimizers, schedulers and metrics before anything starts."""

from __future__ import annotations

import threading
import warnings
from functools import partial

import dask.array as da
import numpy as np
import pytest
import sklearn.metrics
import torch
import torchmetrics
from torch.optim import lr_scheduler

import dask_train as dt
from dask_train.fitting.torch_module.checks import check_module, check_rows, check_scheduler
from dask_train.inputs.making import input_data

X, Y = np.zeros((20, 4)), np.zeros(20, np.int64)
CLASSES = torch.nn.CrossEntropyLoss()


def net(outputs=3):
    return torch.nn.Linear(4, outputs)


OTHER = torch.optim.SGD(net().parameters())


def with_hook(module):
    optimizer = torch.optim.SGD(module.parameters())
    optimizer.register_step_pre_hook(print)
    return optimizer


class Locked(torch.nn.Linear):
    """Can't be pickled."""

    def __init__(self):
        super().__init__(4, 3)
        self.lock = threading.Lock()


def with_locked_weight():
    both = torch.nn.Sequential(net())
    both[0].weight.group, both[0].weight.lock = "bias", threading.Lock()
    return both


class Counting(torch.nn.CrossEntropyLoss):
    """Keeps how often it was called."""

    calls = 0

    def forward(self, outputs, y):
        self.calls += 1
        return super().forward(outputs, y)


def compared(outputs, y):
    return CLASSES(outputs, y)


def frozen():
    return net().requires_grad_(False)


def scripted():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return torch.jit.trace(net(), torch.zeros(2, 4))


def hooked():
    module = net()
    module.weight.register_hook(lambda gradient: gradient.clamp(-1.0, 1.0))
    return module


class ByClosure(torch.optim.SGD):
    """Computes gradients by itself, as often as it likes."""

    def step(self, closure):
        return super().step(closure)


def clamping(parameters):
    """As ``hooked``, by the optimizer's factory."""
    parameters[0].register_post_accumulate_grad_hook(lambda one: one.grad.clamp_(-1.0, 1.0))
    return torch.optim.SGD(parameters)


def backwards():
    module = net()
    module.register_full_backward_hook(lambda *_: None)
    return module


def bags(**settings):
    return torch.nn.Sequential(torch.nn.EmbeddingBag(9, 4, mode="sum", **settings), net())


def compiled_in_place():
    found = net()
    found._compiled_call_impl = found.forward  # as found.compile() does, which imports a compiler
    return found


WORDS = np.ones((20, 2), np.int64)

# Lazy: what is in them is not looked at.
ROWS, LABELS = da.zeros((20, 4), chunks=10), da.zeros(20, chunks=10, dtype=np.int64)

REFUSED = [
    ({"ps": 1}, TypeError, "takes no ps= for a model of type Linear, a torch.nn.Module. Besides .* loss=, optimizer="),
    ({"callbacks": []}, TypeError, "takes no callbacks="),
    ({"loss": torch.nn.MSELoss}, TypeError, "loss is the class MSELoss; pass an instance"),
    ({"loss": "mse"}, TypeError, "loss is a str"),
    ({"loss": torch.nn.Linear(3, 1)}, ValueError, "loss has parameters of its own, weight, bias"),
    ({"loss": torch.nn.CrossEntropyLoss(reduction="none")}, ValueError, "a tensor of shape .* it has to be one number"),
    ({"loss": torch.nn.MSELoss(), "model": net(1)}, ValueError, "Using a target size"),
    ({"loss": compared, "sample_weight": Y}, TypeError, "sample_weight needs a loss that gives"),
    (
        {"loss": torch.nn.CrossEntropyLoss(weight=torch.ones(3)), "sample_weight": Y},
        ValueError,
        "has weights of its own",
    ),
    ({"optimizer": "adam"}, TypeError, "optimizer is a str; pass what makes"),
    ({"optimizer": lambda params: params}, TypeError, "optimizer made a list of the parameters"),
    ({"optimizer": torch.optim.SGD(net().parameters())}, ValueError, "parameters that are none of the module's"),
    ({"optimizer": torch.optim.LBFGS}, ValueError, "LBFGS"),
    ({"optimizer": ByClosure}, ValueError, r"a ByClosure, whose step\(\) can't do without closure"),
    ({"optimizer": with_hook}, ValueError, "hooks .* don't travel"),
    ({"model": hooked()}, ValueError, "Parameter 'weight' has a hook on its gradient"),
    ({"optimizer": clamping}, ValueError, "Parameter 'weight' has a hook on its gradient"),
    ({"model": torch.nn.Sequential(backwards())}, ValueError, r"0 has hooks \(_backward_hooks\) that see or change"),
    (
        {"model": bags(sparse=True), "x": WORDS, "optimizer": torch.optim.Adam},
        ValueError,
        "optimizer is a Adam, which .* '0.weight' is sparse.* Adam does not support sparse gradients, please consider",
    ),
    ({"model": bags(scale_grad_by_freq=True), "x": WORDS}, ValueError, "0 has scale_grad_by_freq=True"),
    ({"model": bags(max_norm=1.0), "x": WORDS}, ValueError, "0 has max_norm=1, which changes weights"),
    ({"model": frozen()}, ValueError, "no parameters that can be trained"),
    ({"scheduler": 3}, TypeError, "scheduler is a int"),
    ({"scheduler": lr_scheduler.StepLR}, TypeError, "optimizer alone: .*'step_size'. Pass its other arguments with"),
    (
        {"scheduler": lambda _: lr_scheduler.StepLR(OTHER, 1)},
        ValueError,
        "scheduler made a StepLR of another optimizer",
    ),
    ({"scheduler_interval": "batch"}, ValueError, "scheduler_interval is 'batch'; it is 'epoch' or 'step'"),
    ({"scheduler": lr_scheduler.ReduceLROnPlateau, "scheduler_interval": "step"}, ValueError, "ReduceLROnPlateau"),
    ({"metrics": "accuracy"}, TypeError, "metrics is a str"),
    ({"metrics": [torchmetrics.MeanMetric]}, TypeError, "pass instances of torchmetrics"),
    ({"metrics": {"loss": lambda a, b: 0}}, ValueError, "A metric is called 'loss'"),
    ({"metrics": [torchmetrics.classification.BinaryAccuracy()]}, ValueError, "does not fit module 'Linear', its loss"),
    ({"x": np.zeros((20, 5))}, ValueError, r"does not fit module .* rows of float64 \(5,\) and rows of int64 numbers"),
    ({"x": ROWS[:, :3]}, ValueError, r"does not fit module .* rows of float64 \(3,\) and rows of int64 numbers"),
    ({"x": ROWS[:10], "y": LABELS.reshape(10, 2)}, ValueError, "does not fit module .*multi-target not supported"),
    ({"x": ROWS, "y": LABELS, "metrics": {"of three": lambda out, y: out[:, 3]}}, ValueError, "index 3 is out of bou"),
    ({"model": scripted()}, TypeError, "whose code torch has compiled"),
    ({"model": torch.nn.DataParallel(net())}, TypeError, "Pass the module in it"),
    ({"model": Locked()}, TypeError, "module can't be sent to the workers"),
    ({"model": with_locked_weight()}, TypeError, r"module \(attribute 'lock' of its '0.weight'\) can't be sent to the"),
    (
        {"model": torch.nn.Sequential(torch.nn.SyncBatchNorm(4), net())},
        ValueError,
        "0 is a SyncBatchNorm.* Use BatchNorm, .* or",
    ),
    (
        {"checkpoint": dt.Checkpoint("kept", best="skill"), "metrics": {"skill": lambda outputs, y: 0.0}},
        ValueError,
        "mode='min' or mode='max'",
    ),
    ({"checkpoint": dt.Checkpoint("kept", best="accuracy")}, ValueError, "known by 'accuracy', and the model's scores"),
    ({"stop": "val_loss < 1"}, ValueError, "stop looks at val_loss, which nothing computes"),
    ({"batch_size": 1}, ValueError, "batch_size=1 is the global batch"),
    ({"virtual_workers": 0}, ValueError, "virtual_workers is 0; it is a whole number of at least 1"),
    ({"virtual_workers": 1}, ValueError, "virtual_workers=1 is the number of shares of a batch, and 2 workers were"),
    ({"virtual_workers": 4, "workers": (2, 8)}, ValueError, "and 8 workers were asked for"),
    ({"virtual_workers": 4, "batch_size": 3}, ValueError, "batch_size=3 is the global batch, and 4 workers share it"),
    ({"virtual_workers": 2, "streaming": True}, ValueError, "virtual_workers=2 is for rows that are kept in memory"),
    ({"virtual_workers": 2, "wire": "bfloat16"}, ValueError, "=2 gives the same bits .* wire='bfloat16'"),
    ({"virtual_workers": 2, "sync_every": 3}, ValueError, "virtual_workers=2 gives the same bits .* sync_every=3"),
    ({"virtual_workers": 2, "gpus": 1}, ValueError, "virtual_workers=2 is for workers that compute on CPUs"),
    (
        {"virtual_workers": 2, "model": bags(sparse=True), "x": WORDS},
        ValueError,
        "virtual_workers= adds up dense gradients, and that of '0.weight' is sparse",
    ),
    (
        {"virtual_workers": 2, "workers": 0, "model": torch.nn.Sequential(compiled_in_place())},
        ValueError,
        r"compiled with module.compile\(\), and with workers=0",
    ),
    (
        {"virtual_workers": 2, "workers": 1, "model": torch.nn.Sequential(torch.nn.SyncBatchNorm(4), net())},
        ValueError,
        "0 is a SyncBatchNorm",
    ),
]


@pytest.mark.parametrize(("arguments", "error", "text"), REFUSED, ids=[text[:30] for *_, text in REFUSED])
def test_what_can_not_be(arguments, error, text, monkeypatch):
    monkeypatch.setattr("dask_train.fitting.start.client_or_local", lambda *_: None)
    given = {"model": net(), "x": X, "y": Y, "loss": CLASSES, "optimizer": torch.optim.SGD, "workers": 2, **arguments}
    if given["optimizer"] is with_hook:
        given["optimizer"] = with_hook(given["model"])
    with pytest.raises(error, match=text):
        dt.fit(**given)


def dirichlet(outputs, y):
    return -torch.distributions.Dirichlet(outputs.exp()).log_prob(y).mean()


def determinant(outputs, y):
    return torch.linalg.cholesky(outputs.T @ outputs - torch.eye(3)).sum() - y.sum()


def entropy(outputs, y):
    return sklearn.metrics.log_loss(y.numpy(), outputs.softmax(1).numpy())


def small(outputs, y):
    return torch.nn.functional.binary_cross_entropy(outputs - outputs.detach() + y.mean() / 2, y[:, :3])


def of_class_four(outputs, y):
    return CLASSES(outputs, y + 3)


VALUES = np.random.default_rng(0).dirichlet(np.ones(4), 20)
LOSSES = [
    (dirichlet, VALUES[:, 1:] / VALUES[:, 1:].sum(1, keepdims=True), {}),
    (determinant, VALUES, {}),
    (small, VALUES, {}),
    (CLASSES, np.arange(20) % 3, {"entropy": entropy}),
    (of_class_four, np.arange(20) % 3, {}),
]


def test_a_scheduler_may_be_of_the_very_optimizer_that_was_passed():
    """Both are sent together, so that they are one in a worker, too."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters())
    assert check_scheduler(lambda _: lr_scheduler.StepLR(optimizer, 1), "epoch", optimizer).optimizer is optimizer


@pytest.mark.parametrize("is_here", [True, False], ids=["arrays", "lazy"])
@pytest.mark.parametrize(("loss", "y", "metrics"), LOSSES, ids=["Dirichlet", "Cholesky", "BCE", "log_loss", "classes"])
def test_what_only_values_refuse_is_left_to_the_workers(loss, y, metrics, is_here):
    """Of arrays rows are looked at, but a few: the first batch may suit what these do not."""
    x = np.ones((20, 4))
    if not is_here:
        x, y = da.from_array(x, chunks=10), da.from_array(y, chunks=10)
    module, data = net(), input_data("data", x, y, None)
    before = {name: one.clone() for name, one in module.state_dict().items()}
    check_rows(module, loss, metrics, data, "The data")
    assert all(torch.equal(one, before[name]) for name, one in module.state_dict().items())


def test_a_loss_may_change_outputs_in_place():
    def of_changed(outputs, y):
        outputs[y > 0] = 0
        return CLASSES(outputs.clamp_(-1, 1), y)

    check_rows(net(), of_changed, {}, input_data("data", X, Y, None), "The data")


def test_rows_of_arrays_are_those_that_are_tried():
    seen = []
    check_rows(
        net(), CLASSES, {"noted": lambda out, y: seen.extend(y.tolist())}, input_data("data", X, Y + 2, None), ""
    )
    assert set(seen) == {2}


def test_a_check_leaves_a_module_and_random_numbers_as_they_were(monkeypatch):
    monkeypatch.setattr("dask_train.fitting.start.client_or_local", lambda *_: None)
    module = torch.nn.Sequential(torch.nn.BatchNorm1d(4), torch.nn.Dropout(), net())
    module[1].eval()
    before = {name: one.clone() for name, one in module.state_dict().items()}
    torch.manual_seed(4)
    wanted = torch.rand(1)
    torch.manual_seed(4)
    loss = Counting()
    optimizer, warming = torch.optim.SGD(module.parameters(), lr=1.0), partial(lr_scheduler.ConstantLR, factor=0.1)
    with pytest.raises(ValueError, match="batch_size=1"):
        dt.fit(module, X, Y, loss=loss, optimizer=optimizer, scheduler=warming, workers=2, batch_size=1)
    assert loss.calls == 0
    assert (optimizer.param_groups[0]["lr"], "initial_lr" in optimizer.param_groups[0]) == (1.0, False)
    assert torch.equal(torch.rand(1), wanted)
    assert [part.training for part in module] == [True, False, True]
    assert all(torch.equal(one, before[name]) for name, one in module.state_dict().items())
    assert all(one.grad is None for one in module.parameters())


def test_a_lazy_module_is_called_before():
    with pytest.raises(ValueError, match=r"'0.weight' of Sequential has no shape yet.*Call the module once before"):
        check_module(torch.nn.Sequential(torch.nn.LazyLinear(3)))
