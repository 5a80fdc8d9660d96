"""A module with its optimizer, scheduler and metrics in a worker: whose they are, and when they go on."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import pytest
import torch
import torchmetrics
from torch.optim import SGD, lr_scheduler

from dask_train.collectives.hosts import Hosts
from dask_train.data.columns import Columns
from dask_train.fitting.spec import InProcess
from dask_train.fitting.torch_module.checkpoints import as_begun
from dask_train.fitting.torch_module.task import ModuleTask, ModuleTraining
from dask_train.fitting.torch_module.training_objects import TrainingObjects, _device
from dask_train.fitting.torch_module.values import from_plain, plain
from dask_train.frameworks.torch.modules import pickle_parts

DESCENT = partial(SGD, lr=1.0)
HALVED = partial(lr_scheduler.StepLR, step_size=1, gamma=0.5)
ON_A_PLATEAU = partial(lr_scheduler.ReduceLROnPlateau, patience=0, factor=0.5)


def training(optimizer=DESCENT, scheduler=None, **more):
    return ModuleTraining(
        module=torch.nn.Linear(2, 1), loss=torch.nn.MSELoss(), optimizer=optimizer, scheduler=scheduler, **more
    )


def opened(given, *, in_process=False, by_step=False):
    header, arrays = ({}, []) if in_process else pickle_parts(given)
    task = ModuleTask(
        header={"training": header},
        arrays=arrays,
        columns=Columns.of_batch(2),
        in_process=InProcess(model=given) if in_process else None,
        by_step=by_step,
    )
    return TrainingObjects(task, SimpleNamespace(rank=0))


def lr_of(one):
    return one.optimizer.param_groups[0]["lr"]


@pytest.fixture(autouse=True)
def _on_the_cpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


def test_what_was_sent_is_a_worker_s_own_and_the_optimizer_trains_it():
    given = training()
    found = opened(given)
    assert found.module is not given.module
    assert found.optimizer.param_groups[0]["params"] == list(found.module.parameters())


def test_what_is_trained_in_place_is_the_user_s_very_own():
    given = training()
    found = opened(given, in_process=True)
    assert (found.module is given.module, found.loss is given.loss) == (True, True)


def test_an_optimizer_that_was_made_already_keeps_what_it_knows():
    module = torch.nn.Linear(2, 1)
    optimizer = SGD(module.parameters(), lr=0.25, momentum=0.9)
    module(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    found = opened(ModuleTraining(module=module, loss=torch.nn.MSELoss(), optimizer=optimizer))
    assert lr_of(found) == 0.25
    assert torch.equal(found.optimizer.state[found.module.weight]["momentum_buffer"], torch.ones(1, 2))


def test_nothing_is_made_of_an_optimizer_that_is_not_there():
    found = opened(training(optimizer=None))
    assert (found.optimizer, found.scheduler) == (None, None)


def test_training_and_validation_count_apart():
    found = opened(training(metrics={"mean": torchmetrics.MeanMetric()}))
    assert found.metrics is not found.metrics_of_validation
    found.metrics.update(3.0, torch.ones(1), torch.ones(1), 1)
    assert found.metrics.means()["loss"] == 3.0
    assert found.metrics_of_validation.means()["loss"] != 3.0


@pytest.mark.parametrize(("by_step", "after_step", "after_epoch"), [(True, 0.5, 0.5), (False, 1.0, 0.5)])
def test_a_scheduler_goes_on_by_step_or_by_epoch_and_never_by_both(by_step, after_step, after_epoch):
    found = opened(training(scheduler=HALVED), by_step=by_step)
    found.step()
    assert lr_of(found) == after_step
    found.schedule(0, {"loss": 1.0})
    assert lr_of(found) == after_epoch


def test_without_a_scheduler_steps_and_epochs_change_no_rate():
    found = opened(training())
    found.step()
    found.schedule(0, {"loss": 1.0})
    assert lr_of(found) == 1.0


@pytest.mark.parametrize(
    ("second", "lr"),
    [({"loss": 1.0}, 0.5), ({"loss": 0.5}, 1.0), ({"loss": 0.5, "val_loss": 2.0}, 0.5)],
    ids=["loss stays", "loss falls", "loss of validation counts"],
)
def test_a_scheduler_that_looks_at_a_score_gets_the_loss(second, lr):
    found = opened(training(scheduler=ON_A_PLATEAU))
    found.schedule(0, {"loss": 1.0})
    found.schedule(1, second)
    assert lr_of(found) == lr


@pytest.mark.parametrize("scheduler", [None, HALVED], ids=["no scheduler", "scheduler"])
def test_what_is_restored_is_what_was_there(scheduler):
    found, other = opened(training(scheduler=scheduler)), opened(training(scheduler=scheduler))
    found.step()
    found.schedule(0, {"loss": 1.0})
    other.restore(found.state())
    assert torch.equal(other.module.weight, found.module.weight)
    assert lr_of(other) == lr_of(found)
    assert other.state()["scheduler"] == found.state()["scheduler"]


class WithMasters(torch.optim.Optimizer):
    """Steps copies of weights in float32."""

    def __init__(self, parameters):
        super().__init__(parameters, {})

    @torch.no_grad()
    def step(self, closure=None):
        for one in self.param_groups[0]["params"]:
            (master,) = self.state[one].setdefault("masters", [one.detach().float()])
            master -= 1e-3 * one.grad.float()
            one.copy_(master)


@pytest.mark.parametrize(
    ("make", "dtype"),
    [
        (partial(torch.optim.NAdam, lr=0.1), torch.float64),
        (partial(torch.optim.ASGD, lr=0.1), torch.float64),
        (WithMasters, torch.bfloat16),
    ],
    ids=["NAdam", "ASGD", "float32 of 16 bits"],
)
def test_an_optimizer_goes_on_to_the_same_bits_whatever_dtypes_its_state_has(make, dtype):
    def stepped(one):
        for parameter in one.module.parameters():
            parameter.grad = parameter.detach() + 1
        one.step()

    given = training(optimizer=make)
    given.module.to(dtype)
    found, other = opened(given), opened(given)
    for _ in range(3):
        stepped(found)
    other.restore(from_plain(plain(found.state())))
    sent = opened(ModuleTraining(module=found.module, loss=found.loss, optimizer=found.optimizer))
    for _ in range(3):
        for each in (found, other, sent):
            stepped(each)
        for each in (other, sent):
            assert all(map(torch.equal, each.module.parameters(), found.module.parameters()))
            assert repr(each.optimizer.state_dict()) == repr(found.optimizer.state_dict())


class Lookahead(torch.optim.Optimizer):
    """Takes the steps of another optimizer, whose state its own has under another name."""

    def __init__(self, parameters):
        self.base = torch.optim.Adam(parameters)
        super().__init__(self.base.param_groups, {})
        self.param_groups, self.num_steps = self.base.param_groups, 0

    def step(self, closure=None):
        self.base.step()
        self.num_steps += 1

    def state_dict(self):
        return {"lookahead_state": self.num_steps, "base_optimizer": self.base.state_dict()}

    def load_state_dict(self, state):
        self.num_steps = state["lookahead_state"]
        self.base.load_state_dict(state["base_optimizer"])
        self.param_groups = self.base.param_groups


def test_the_state_of_an_optimizer_may_have_a_form_of_its_own():
    found, other = (opened(training(optimizer=Lookahead)) for _ in range(2))
    for parameter in found.module.parameters():
        parameter.grad = torch.ones_like(parameter)
    found.step()
    other.restore(from_plain(plain(found.state())))
    assert repr(other.optimizer.state_dict()) == repr(found.optimizer.state_dict())
    configuration = {"optimizer": {"groups": [{}]}}
    assert as_begun({}, configuration, found.optimizer.state_dict()) == configuration


class Combined(torch.optim.Optimizer):
    """Steps matrices and vectors by optimizers of their own, whose groups it lists."""

    def __init__(self, parameters):
        parameters = list(parameters)
        self.parts = [SGD([one for one in parameters if one.dim() == dims], lr=1.0) for dims in (2, 1)]

    @property
    def param_groups(self):
        return [group for part in self.parts for group in part.param_groups]

    def step(self, closure=None):
        for part in self.parts:
            part.step()


@pytest.mark.parametrize(
    "scheduler", [HALVED, lambda optimizer: HALVED(optimizer.parts[0])], ids=["of all", "of a part"]
)
def test_an_optimizer_may_list_the_groups_of_others(scheduler):
    found = opened(training(optimizer=Combined, scheduler=scheduler))
    found.optimizer.step()
    found.schedule(0, {"loss": 1.0})
    assert lr_of(found) == 0.5


GLOBAL = torch.nn.Linear(2, 1)


def of_the_global_one(_):
    return SGD(GLOBAL.parameters(), lr=1.0)


def test_an_optimizer_of_another_module_s_parameters_is_refused_in_a_worker():
    """By reference, the function finds another module there than the one that it has found in the client."""
    with pytest.raises(ValueError, match=r"parameters that are none of the module's.*those of a global module"):
        opened(training(optimizer=of_the_global_one))


def test_a_scheduler_of_another_optimizer_is_refused_in_a_worker():
    other = SGD(GLOBAL.parameters(), lr=1.0)
    with pytest.raises(ValueError, match="scheduler made a StepLR of another optimizer"):
        opened(training(scheduler=lambda _: HALVED(other)))


@pytest.mark.parametrize(("rank", "gpu"), [(0, 0), (1, 0), (2, 1), (3, 1), (4, 0)])
def test_workers_of_a_host_take_turns_with_its_gpus(monkeypatch, rank, gpu):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    hosts = Hosts.of([f"10.0.0.{5 + rank % 2}:{7000 + rank}" for rank in range(5)])
    assert _device(SimpleNamespace(rank=rank, meeting=(hosts, None))) == torch.device("cuda", gpu)


def test_a_scheduler_sees_each_epoch_once_where_a_worker_goes_on_within_it():
    found, other = (opened(training(scheduler=HALVED)) for _ in range(2))
    found.optimizer.step()
    found.schedule(0, {"loss": 1.0})
    other.restore(found.state())
    other.schedule(0, {"loss": 1.0})
    assert other.optimizer.param_groups[0]["lr"] == found.optimizer.param_groups[0]["lr"]
    other.optimizer.step()
    other.schedule(1, {"loss": 1.0})
    assert other.optimizer.param_groups[0]["lr"] == found.optimizer.param_groups[0]["lr"] / 2
