"""Context managers that restore a module after a trial, or after training in the client's process."""

from __future__ import annotations

import collections
import copy
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch

from dask_train.fitting.torch_module.agreed import Named
from dask_train.fitting.torch_module.task import ModuleTraining
from dask_train.frameworks.torch.modules import device_of

# Attributes by which some modules go, such as how often they were called, or what they have seen.
_PLAIN = (bool, int, float, str, type(None))
_CONTAINERS = (list, dict, set, collections.deque)
# Those of every module: its tensors, parts and hooks.
_OF_ALL = frozenset(vars(torch.nn.Module()))


@contextmanager
def left_as_it_was(module: torch.nn.Module) -> Iterator[None]:
    """Restore a module's state, and random numbers, on exit.

    Restored are tensors, numbers and text in attributes, and which objects are in a list, dict, set or deque there,
    but not the contents of these objects. A submodule that has created tensors or modules inside the context is not
    restored, as it knows that it has them.
    """
    before = [(part, _plain_values(part), _containers(part), _held(part)) for part in module.modules()]
    with random_numbers_kept(module), values_kept([*Named.parameters(module), *Named.buffers(module)]):
        try:
            yield
        finally:
            for part, values, containers, own_objects in before:
                if _held(part) == own_objects:
                    vars(part).update(values)
                    for name, container, content in containers:
                        vars(part)[name] = container
                        container.clear()
                        (container.update if isinstance(container, dict | set) else container.extend)(content)


def _plain_values(part: torch.nn.Module) -> dict[str, Any]:
    return {name: value for name, value in vars(part).items() if type(value) in _PLAIN}


def _containers(part: torch.nn.Module) -> list[tuple[str, Any, Any]]:
    own = ((name, value) for name, value in vars(part).items() if name not in _OF_ALL)
    return [(name, value, copy.copy(value)) for name, value in own if type(value) in _CONTAINERS]


def _held(part: torch.nn.Module) -> list[str]:
    """Return the names of the tensors and modules that a module has."""
    tensors = [*part.named_parameters(recurse=False), *part.named_buffers(recurse=False)]
    return [name for name, _ in (*tensors, *part.named_children())]


@contextmanager
def modes_kept(module: torch.nn.Module) -> Iterator[None]:
    """Restore the training mode of each submodule on exit."""
    modes = [(part, part.training) for part in module.modules()]
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode


@contextmanager
def values_kept(several: Sequence[Named]) -> Iterator[None]:
    """Restore tensors of a module on exit: their places and their values."""
    before = [(named, named.tensor, named.tensor.detach().clone()) for named in several]
    try:
        yield
    finally:
        with torch.no_grad():
            for named, tensor, value in before:
                if named.tensor is not tensor:
                    setattr(named.owner, named.name, tensor)
                if not torch.equal(tensor, value):
                    tensor.copy_(value)


def random_numbers_kept(module: torch.nn.Module) -> AbstractContextManager[None]:
    """Restore torch's random generators on exit."""
    device = device_of(module)
    return torch.random.fork_rng([device] if device.type == "cuda" else [])


@contextmanager
def left_as_after_a_run(training: ModuleTraining) -> Iterator[None]:
    """Leave the user's own module and optimizer, trained inside the context, as a run in other processes would.

    On exit they keep the trained state. Gradients, modes of submodules and torch's random numbers are restored, and
    methods that schedulers have put into the optimizer are removed.
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
