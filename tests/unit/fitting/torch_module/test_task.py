"""What a log is told of a training, and that a task needs no torch where it is opened."""

from __future__ import annotations

import subprocess
import sys
from functools import partial

import torch

from dask_train.data.columns import Columns
from dask_train.fitting.torch_module.checkpoints import configuration_of
from dask_train.fitting.torch_module.task import ModuleTask, ModuleTraining, logged_params


def told(loss=None, scheduler=None, **settings):
    module = torch.nn.Linear(2, 1)
    optimizer = torch.optim.Adam([{"params": [module.weight], "lr": 0.5}, {"params": [module.bias]}])
    training = ModuleTraining(module=module, loss=loss or torch.nn.MSELoss())
    made = scheduler and scheduler(optimizer)
    configuration = configuration_of(training, optimizer, made, Columns.of_batch(2))
    return logged_params(
        ModuleTask(header={}, arrays=[], columns=Columns.of_batch(2), configuration=configuration, **settings)
    )


def test_numbers_and_names_are_told_and_nothing_that_a_log_could_not_take():
    found = told(epochs=3, shuffle="partition")
    assert {name: found[name] for name in ("model", "loss", "optimizer", "epochs", "shuffle", "optimizer/lr")} == {
        "model": "Linear",
        "loss": "MSELoss",
        "optimizer": "Adam",
        "epochs": 3,
        "shuffle": "partition",
        "optimizer/lr": 0.5,
    }
    assert not {"scheduler", "steps_per_epoch", "optimizer/betas"} & set(found)
    assert all(type(value) in (bool, int, float, str) for value in found.values())


def test_a_loss_is_told_by_its_name_and_a_scheduler_by_its_class():
    found = told(
        loss=partial(torch.nn.functional.huber_loss, delta=2.0),
        scheduler=partial(torch.optim.lr_scheduler.StepLR, step_size=2),
        steps_per_epoch=4,
    )
    assert (found["loss"], found["scheduler"], found["steps_per_epoch"]) == ("huber_loss", "StepLR", 4)


def test_a_task_is_opened_without_torch():
    code = "import sys, dask_train.fitting.torch_module.task as _; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
