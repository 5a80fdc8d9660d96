"""With which checkpoint the training of a module may go on, and what the error says of another one."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch.nn import functional
from torch.optim import SGD, Adam, lr_scheduler

from dask_train.data.columns import Column, Columns
from dask_train.errors import CheckpointError
from dask_train.fitting.torch_module.checkpoints import check_same, configuration_of, mode_of
from dask_train.fitting.torch_module.task import ModuleTraining

PAIR = Columns(features=0, labels=1)
MSE = torch.nn.MSELoss()
DESCENT = partial(SGD, lr=0.1)


def begun(module=None, loss=MSE, optimizer=DESCENT, scheduler=None, columns=PAIR):
    """What a training is begun with."""
    module = module or torch.nn.Linear(2, 1)
    made = optimizer(module.parameters())
    made_scheduler = scheduler and scheduler(made)
    training = ModuleTraining(module=module, loss=loss, optimizer=optimizer, scheduler=scheduler)
    return configuration_of(training, made, made_scheduler, columns)


def test_training_goes_on_as_it_was_begun_whatever_its_weights_are():
    check_same(begun(), begun())


def test_how_an_optimizer_runs_its_steps_may_differ():
    check_same(begun(optimizer=partial(Adam, foreach=True)), begun(optimizer=partial(Adam, foreach=False)))


def test_whether_a_loss_is_in_training_does_not_count():
    check_same(begun(loss=torch.nn.MSELoss()), begun(loss=torch.nn.MSELoss().eval()))


STEPPED = partial(lr_scheduler.StepLR, step_size=1)
SMOOTHED = partial(functional.cross_entropy, label_smoothing=0.1)


@pytest.mark.parametrize(
    ("then", "now", "told"),
    [
        ({}, {"module": torch.nn.Linear(3, 1)}, "module.tensors[0][2][1] was 2, and is 3"),
        ({}, {"module": torch.nn.Linear(2, 1).double()}, "module.tensors[0][1] was 'torch.float32', and is"),
        ({}, {"module": torch.nn.Linear(2, 1, bias=False)}, "module.tensors was [['weight'"),
        ({}, {"module": torch.nn.Sequential(torch.nn.Linear(2, 1))}, "module.class was 'Linear', and is 'Sequential'"),
        ({}, {"loss": functional.mse_loss}, "loss.name was 'MSELoss', and is 'mse_loss'"),
        ({}, {"loss": torch.nn.MSELoss(reduction="sum")}, "loss.with.reduction was 'mean', and is 'sum'"),
        (
            {"loss": torch.nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0]))},
            {"loss": torch.nn.CrossEntropyLoss(weight=torch.tensor([1.0, 3.0]))},
            "loss.with.weight[1] was 2.0, and is 3.0",
        ),
        (
            {"loss": SMOOTHED},
            {"loss": partial(SMOOTHED, label_smoothing=0.2)},
            "label_smoothing was 0.1, and is 0.2",
        ),
        ({"loss": SMOOTHED}, {"loss": functional.cross_entropy}, "loss.with was {'label_smoothing': 0.1}, and is None"),
        ({}, {"optimizer": partial(SGD, lr=0.2)}, "optimizer.groups[0].lr was 0.1, and is 0.2"),
        ({}, {"optimizer": Adam}, "optimizer.class was 'SGD', and is 'Adam'"),
        ({}, {"scheduler": STEPPED}, "scheduler was None, and is 'StepLR'"),
        ({}, {"columns": Columns(features={"a": 0}, labels=1)}, "layout[0] was 0, and is {'a': 0}"),
        (
            {"columns": PAIR.with_rows([Column(dtype="<f4", row_shape=(2,))])},
            {},
            "columns was [['<f4', [2]]], and is None",
        ),
    ],
)
def test_what_differs_is_named_with_what_it_was_and_is(then, now, told):
    with pytest.raises(CheckpointError) as raised:
        check_same(begun(**then), begun(**now))
    assert told in raised.value.what


@pytest.mark.parametrize(("num_differing", "more"), [(6, ""), (7, "; and 1 more"), (9, "; and 3 more")])
def test_six_differences_are_named_and_the_others_counted(num_differing, more):
    then = {"module": {"tensors": []}, "layout": [0] * 9}
    now = {**then, "layout": [1] * num_differing + [0] * (9 - num_differing)}
    with pytest.raises(CheckpointError) as raised:
        check_same(then, now)
    assert raised.value.what.count(" was 0, and is 1") == 6
    assert raised.value.what.endswith(f"and is 1{more}.")


@pytest.mark.parametrize(("length", "cut"), [(98, False), (99, True)])
def test_long_values_are_cut(length, cut):
    then = {"module": {"tensors": []}, "loss": "x" * length}
    with pytest.raises(CheckpointError) as raised:
        check_same(then, {**then, "loss": ""})
    assert ("..." in raised.value.what) is cut


@pytest.mark.parametrize("then", [{}, {"module": None}, {"module": {"class_name": "Sequential"}}])
def test_a_checkpoint_of_a_keras_model_is_told_from_one_of_torch(then):
    with pytest.raises(CheckpointError, match="is of a Keras model, and this run trains a module of torch"):
        check_same(then, begun())


def test_a_tensor_that_a_module_counts_as_state_is_compared_and_what_is_no_tensor_is_not():
    class Counts(torch.nn.Linear):
        def get_extra_state(self):
            return {"calls": 3}

        def set_extra_state(self, state):
            pass

    assert [name for name, *_ in begun(module=Counts(2, 1))["module"]["tensors"]] == ["weight", "bias"]


def test_a_metric_of_torch_does_not_say_whether_more_of_it_is_better():
    with pytest.raises(ValueError, match=r"known by 'accuracy' of Linear.*Pass mode='min' or mode='max'"):
        mode_of(torch.nn.Linear(2, 1), "accuracy")
