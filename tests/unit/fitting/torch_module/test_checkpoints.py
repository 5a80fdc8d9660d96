"""With which checkpoint the training of a module may go on, and what the error says of another one."""

from __future__ import annotations

import copy
import json
from functools import partial

import pytest
import torch
from torch.nn import functional
from torch.optim import SGD, Adam, lr_scheduler

from dask_train.data.columns import Column, Columns
from dask_train.errors import CheckpointError
from dask_train.fitting.torch_module.checkpoints import check_same, configuration_of, mode_of, schedule_notice
from dask_train.fitting.torch_module.task import ModuleTraining

PAIR = Columns(features=0, labels=1)
MSE = torch.nn.MSELoss()
DESCENT = partial(SGD, lr=0.1)


def begun(module=None, loss=MSE, optimizer=DESCENT, scheduler=None, columns=PAIR):
    """What a training is begun with."""
    module = module or torch.nn.Linear(2, 1)
    made = optimizer(module.parameters())
    made_scheduler = scheduler and scheduler(copy.deepcopy(made))  # as checks make it
    training = ModuleTraining(module=module, loss=loss, optimizer=optimizer, scheduler=scheduler)
    return configuration_of(training, made, made_scheduler, columns)


def test_training_goes_on_as_it_was_begun_whatever_its_weights_are():
    check_same(begun(), begun())


def test_how_an_optimizer_runs_its_steps_may_differ():
    check_same(begun(optimizer=partial(Adam, foreach=True)), begun(optimizer=partial(Adam, foreach=False)))


def test_whether_a_loss_is_in_training_does_not_count():
    check_same(begun(loss=torch.nn.MSELoss()), begun(loss=torch.nn.MSELoss().eval()))


STEPPED = partial(lr_scheduler.StepLR, step_size=1)
CYCLE = partial(lr_scheduler.OneCycleLR, max_lr=0.5, total_steps=9)
PLATEAU = partial(lr_scheduler.ReduceLROnPlateau, patience=2)


def in_turn(optimizer, first=3):
    """Return a schedule that is made of two."""
    two = [lr_scheduler.ConstantLR(optimizer), lr_scheduler.StepLR(optimizer, first)]
    return lr_scheduler.SequentialLR(optimizer, two, [2])


@pytest.mark.parametrize(
    ("then", "now", "told"),
    [
        (STEPPED, partial(STEPPED, gamma=0.5), "gamma was 0.1, and is 0.5"),
        (STEPPED, partial(STEPPED, step_size=2, gamma=0.5), "step_size was 1, and is 2; gamma was 0.1, and is 0.5"),
        (CYCLE, partial(CYCLE, max_lr=0.25), "max_lr[0] was 0.5, and is 0.25"),
        (CYCLE, partial(CYCLE, total_steps=18), "total_steps was 9, and is 18"),
        (PLATEAU, partial(PLATEAU, patience=5), "patience was 2, and is 5"),
        (in_turn, partial(in_turn, first=4), "_schedulers[1].step_size was 3, and is 4"),
        (
            partial(lr_scheduler.MultiStepLR, milestones=[2]),
            partial(lr_scheduler.MultiStepLR, milestones=[4]),
            "milestones.2 was 1, and is None",
        ),
    ],
)
def test_a_schedule_continues_and_other_arguments_are_reported(then, now, told):
    kept, begins = json.loads(json.dumps(begun(scheduler=then))), begun(scheduler=now)
    check_same(kept, begins)
    assert f"the checkpoint's, not that of scheduler= in this call: {told}" in schedule_notice(kept, begins)
    assert schedule_notice(kept, begun(scheduler=then)) == ""


def test_schedules_of_earlier_versions_are_not_compared():
    kept = {name: value for name, value in begun(scheduler=STEPPED).items() if name != "schedule"}
    check_same(kept, begun(scheduler=STEPPED))
    assert schedule_notice(kept, begun(scheduler=STEPPED)) == schedule_notice(begun(), begun()) == ""


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
