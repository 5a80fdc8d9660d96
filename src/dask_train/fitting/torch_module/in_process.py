"""A module that is trained in the user's own process, as it is, and what is left there afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from dask_train.fitting.torch_module.task import ModuleTraining
from dask_train.fitting.torch_module.trials import modes_kept, random_numbers_kept


@contextmanager
def left_as_after_a_run(training: ModuleTraining) -> Iterator[None]:
    """While it lasts, the user's own module is trained, by the user's own optimizer, if one was passed.

    Afterwards these hold what was trained, and else are as a run in other processes leaves them: gradients, the modes
    of the module's parts and torch's random numbers are those of before, and the optimizer has no part of a scheduler.
    """
    gradients = [(one, one.grad) for one in training.module.parameters()]
    optimizer = vars(training.optimizer) if hasattr(training.optimizer, "param_groups") else {}
    attributes = dict(optimizer)
    try:
        with random_numbers_kept(training.module), modes_kept(training.module):
            yield
    finally:
        for one, gradient in gradients:
            one.grad = gradient
        for name in optimizer.keys() - attributes.keys():  # schedulers put a method of their own in place of `step`
            del optimizer[name]
