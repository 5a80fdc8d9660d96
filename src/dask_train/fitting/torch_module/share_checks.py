"""What ``fit(virtual_workers=...)`` refuses of modules and settings, as it would depend on the number of workers."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from typing import Any

import torch

from dask_train.compat.torch import is_compiled_in_place
from dask_train.fitting.checks import check_share
from dask_train.fitting.torch_module.agreed import Named
from dask_train.fitting.torch_module.random_streams import RandomStreams
from dask_train.fitting.torch_module.table_gradients import table_names
from dask_train.fitting.torch_module.trials import left_as_it_was, values_kept
from dask_train.frameworks.torch.modules import device_of

# Attributes that every module has: its tensors, parts and hooks.
_OF_ALL = frozenset(vars(torch.nn.Module()))
# By which check_keeps_nothing scales what is trained: as little as a step may, and more than rounding hides.
_SCALE = 1 + 2**-6
_PLAIN = (bool, int, float, str, bytes, type(None))


def check_number(workers: int, virtual_workers: int | None) -> None:
    """Check that each worker has a share.

    Raises
    ------
    ValueError
        There are more workers than shares.
    """
    if virtual_workers is not None and workers > virtual_workers:
        raise ValueError(
            f"virtual_workers={virtual_workers} is the number of shares of a batch, and {workers} workers were asked "
            f"for, of which some would have none. Pass at most {virtual_workers} workers, or more virtual workers."
        )


def check_size(rows: int, virtual_workers: int | None, workers: int) -> None:
    """Check that so many workers can share batches of that many rows.

    Raises
    ------
    ValueError
        A worker would have no share, or a share no row.
    """
    check_number(workers, virtual_workers)
    check_share(rows, virtual_workers or workers)


def check_shared(module: torch.nn.Module, workers: int | None) -> None:
    """Check that a module can be trained on a fixed number of shares, to the same bits on any number of workers.

    Parameters
    ----------
    module
        It.
    workers
        How many are asked for; 0 for this process.

    Raises
    ------
    ValueError
        It can't.
    """
    if tables := table_names(module):
        raise ValueError(
            f"virtual_workers= adds up dense gradients, and that of {tables[0]!r} is sparse, as its layer has "
            "sparse=True. Leave sparse=True out, or virtual_workers=."
        )
    if workers == 0 and any(map(is_compiled_in_place, module.modules())):
        raise ValueError(
            "The module was compiled with module.compile(), and with workers=0 its compiled code would be used, which "
            "rounds in another way than that of other workers. Leave virtual_workers= out, or pass workers=1 or more."
        )
    check_device(device_of(module))


def check_device(device: torch.device) -> None:
    """Check that a worker computes on a CPU.

    Raises
    ------
    ValueError
        It does not.
    """
    if device.type != "cpu":
        raise ValueError(
            f"virtual_workers= is for workers that compute on CPUs, and this one has device {device}, whose sums have "
            "no fixed order. Pass gpus=0, or leave virtual_workers= out."
        )


def check_keeps_nothing(module: torch.nn.Module, call: Callable[[], Any]) -> None:
    """Check that a module keeps nothing of a call but in buffers.

    A worker calls it once for each of its shares, so a count of calls would depend on the number of workers, and what
    is kept of the rows of one share would get to the next. The module is called three times, and left as it was. After
    the first call trained parameters are scaled, as a step changes them: a teacher may begin as what it follows.

    Raises
    ------
    ValueError
        It does: a call changes what the same call has left.
    """
    streams = RandomStreams.current().copied()
    snapshots: list[tuple[dict[str, Any], dict[str, Any]]] = []
    with torch.no_grad(), left_as_it_was(module):
        for number in range(3):  # the first call may make what later ones use
            for one in module.parameters() if number == 1 else ():
                if one.requires_grad:
                    one.mul_(_SCALE)
            streams.copied().set()
            with values_kept(Named.buffers(module)):  # of which attributes may be made, as by spectral normalisation
                call()
            parameters = {name: _fingerprint(one) for name, one in module.named_parameters()}
            snapshots.append((_attributes(module), parameters))
    streams.set()
    for what, before, after in zip(("attribute", "parameter"), *snapshots[1:], strict=True):
        for name, value in after.items():
            if value != before.get(name):
                raise ValueError(
                    f"The module keeps something of each call in its {what} {name!r}, and with virtual_workers= it is "
                    "called for each share of a batch, by as many workers as there are. Keep it in a buffer, which "
                    "each share has for itself (register_buffer), or leave virtual_workers= out."
                )


def _attributes(module: torch.nn.Module) -> dict[str, Any]:
    """Return numbers, text and tensors in attributes of all parts of a module, by name."""
    return {
        f"{path}.{name}".lstrip("."): _fingerprint(value)
        for path, part in module.named_modules()
        for name, value in vars(part).items()
        if name not in _OF_ALL
    }


def _fingerprint(value: Any) -> Any:
    """Return what can be compared later on of a value, which may be changed meanwhile."""
    if isinstance(value, torch.Tensor) and value.layout == torch.strided:
        data = value.detach().cpu().resolve_conj().resolve_neg().contiguous()
        return tuple(value.shape), zlib.crc32(data.reshape(-1).view(torch.uint8).numpy().tobytes())
    if isinstance(value, Mapping):
        return [(repr(key), _fingerprint(each)) for key, each in value.items()]
    if isinstance(value, list | tuple | set | frozenset) or type(value).__name__ == "deque":
        return [_fingerprint(each) for each in value]
    return repr(value) if type(value) in _PLAIN else type(value).__name__
