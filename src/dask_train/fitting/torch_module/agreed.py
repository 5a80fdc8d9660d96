"""Parameters and buffers that are equal on all workers of a module, and state of each worker alone."""

from __future__ import annotations

import operator
import zlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from dask_train.collectives import ProcessGroup
from dask_train.fitting.torch_module.values import as_array, set_all
from dask_train.trainers.common.loop import TrainingLoop
from dask_train.trainers.common.rank_state import RankState

_NORMS = tuple(getattr(torch.nn, f"{kind}Norm{axes}d") for kind in ("Batch", "Instance") for axes in (1, 2, 3))


class Named(NamedTuple):
    """A parameter or buffer of a module by name. It is looked up at each access, as a module may replace tensors."""

    path: str
    owner: torch.nn.Module
    name: str

    @classmethod
    def buffers(cls, module: torch.nn.Module, *kinds: type[torch.nn.Module]) -> list[Named]:
        """Return the buffers of a module, or only those of submodules of these classes."""
        return [
            cls(f"{path}.{name}".lstrip("."), part, name)
            for path, part in module.named_modules()
            if isinstance(part, kinds or (torch.nn.Module,))
            for name, _ in part.named_buffers(recurse=False)
        ]

    @classmethod
    def parameters(cls, module: torch.nn.Module) -> list[Named]:
        """Return the parameters of a module, each with the submodule that has it; under all of their names."""
        return [
            cls(f"{path}.{name}".lstrip("."), part, name)
            for path, part in module.named_modules()
            for name, _ in part.named_parameters(recurse=False, remove_duplicate=False)
        ]

    @classmethod
    def different_parameters(cls, module: torch.nn.Module) -> list[Named]:
        """Return each parameter once, by its path from the module."""
        return [cls(path, module, path) for path, _ in module.named_parameters()]

    @classmethod
    def same_on_all(cls, module: torch.nn.Module) -> list[Named]:
        """Return what is equal on all workers: parameters, and buffers except for those of :func:`norms`."""
        own = {each.path for each in norms(module)}
        return [*cls.different_parameters(module), *(each for each in cls.buffers(module) if each.path not in own)]

    @property
    def tensor(self) -> torch.Tensor:
        """The current tensor."""
        tensor: torch.Tensor = operator.attrgetter(self.name)(self.owner)
        return tensor

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the tensor."""
        return tuple(self.tensor.shape)

    @staticmethod
    def value_of(named: Named) -> np.ndarray:
        """Return the tensor's values in a dtype of NumPy's."""
        value = named.tensor.detach().cpu().resolve_conj().resolve_neg()
        return np.asarray((value.float() if value.dtype == torch.bfloat16 else value).numpy())

    @staticmethod
    def assign(several: Sequence[Named], values: Sequence[np.ndarray]) -> None:
        """Set the values of several tensors."""
        with torch.no_grad():
            for named, value in zip(several, values, strict=True):
                named.tensor.copy_(torch.from_numpy(np.array(value)))


def norms(module: torch.nn.Module) -> list[Named]:
    """Return the buffers of torch's own normalisations: moving averages of a worker's rows, and counts of its batches.

    Only these buffers may depend on rows, as training does not read them.
    """
    return Named.buffers(module, *_NORMS)


def means_over(group: ProcessGroup, number: int, rows: np.ndarray) -> torch.Tensor:
    """Return the mean over all workers of their rows of a buffer, in float64; ``number`` identifies the buffer."""
    (everyones,) = group.gather(("buffer", number), [rows])
    return torch.from_numpy(np.asarray(everyones[0] + (everyones - everyones[0]).mean(0)))


class ModuleBuffers:
    """The buffers of a module. Moving averages differ between workers until the end of an epoch."""

    def __init__(self, module: torch.nn.Module, group: ProcessGroup) -> None:
        self._all, self._group = Named.buffers(module), group
        self._averaged = [each for each in norms(module) if each.tensor.is_floating_point()]

    def keep(self, state: RankState, loop: TrainingLoop) -> None:
        """Register the buffers to be mirrored, saved, restored, and averaged when the number of workers changes.

        Parameters
        ----------
        state, loop
            State and loop of this worker.
        """
        state.own("buffers", self.own, self.set_own, may_begin_anew=True)
        loop.on_resize(self.average, loop.deal_again)

    def check_alike(self, advice: Sequence[str]) -> None:
        """Do nothing: this worker has one of each buffer."""

    def average(self) -> None:
        """Set moving averages to their means over all workers."""
        if self._group.size == 1 or not self._averaged:
            return
        for number, one in enumerate([each.tensor for each in self._averaged]):
            mean = means_over(self._group, number, one.detach().double().cpu().numpy()[None])
            with torch.no_grad():
                one.copy_(mean)

    def own(self) -> list[np.ndarray]:
        """Return this worker's own state: that of torch's random generator, and the buffers."""
        return [torch.get_rng_state().numpy(), *(as_array(each.tensor).copy() for each in self._all)]

    def set_own(self, own: Sequence[np.ndarray]) -> None:
        """Restore a value of :meth:`own` of this worker."""
        random, *buffers = own
        torch.set_rng_state(torch.from_numpy(np.array(random)))
        set_all([each.tensor for each in self._all], buffers)


def seed_rank(state: np.ndarray | None, rank: int) -> None:
    """Set torch's random generator: to the client's state in the first worker, to a seed from it in each other."""
    assert state is not None
    (seed,) = np.random.SeedSequence([zlib.crc32(state.tobytes()), rank]).generate_state(1)
    torch.manual_seed(int(seed))  # also those of a GPU, whose state is not the client's on any worker
    if rank == 0:
        torch.set_rng_state(torch.from_numpy(np.array(state)))
