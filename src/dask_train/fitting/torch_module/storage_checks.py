"""Whether different tensors of a module lie in the same memory, which they do not as they arrive in a worker."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import torch


def check_apart(module: torch.nn.Module) -> None:
    """Check that no parameter that is trained lies in the memory of another parameter, or of a buffer.

    Each tensor travels by itself. Tensors that have parts of one memory, such as the weights of an RNN on a GPU, are no
    worse for it; of those that have the same elements a step would change all here, and one in a worker.

    Raises
    ------
    ValueError
        One does.
    """
    by_storage: dict[tuple[torch.device, int], list[tuple[str, torch.Tensor]]] = {}
    for name, one in itertools.chain(module.named_parameters(), module.named_buffers()):
        if one.layout == torch.strided and one.numel() and (address := _address(one)):
            by_storage.setdefault((one.device, address), []).append((name, one))
    for several in by_storage.values():
        names = _overlapping(several)
        if names:
            raise ValueError(
                f"{names[0]!r} and {names[1]!r} of the module are different tensors in the same memory, as after "
                "`a.data = b.data`, and in the workers they would come apart. Tie weights by one parameter "
                "(decoder.weight = encoder.weight), give each its own memory with clone(), or pass workers=0."
            )


def _address(tensor: torch.Tensor) -> int:
    """Return where the memory of a tensor begins; 0 for one without memory of its own, such as a wrapper of others."""
    try:
        return tensor.untyped_storage().data_ptr()
    except (RuntimeError, NotImplementedError):
        return 0


def _overlapping(named: Sequence[tuple[str, torch.Tensor]]) -> tuple[str, ...]:
    """Return the names of two tensors of one storage, one of them trained, that have an element in common; or none.

    Their elements are marked in one mask, which is as large as what of the storage they reach over.
    """
    ranges = sorted(_range(one) for _, one in named)
    is_trained = any(one.requires_grad for _, one in named)
    if not is_trained or all(stop <= start for (_, stop), (start, _) in itertools.pairwise(ranges)):
        return ()
    first, size = ranges[0][0], math.gcd(*(one.element_size() for _, one in named))
    num_cells = (max(stop for _, stop in ranges) - first) // size
    marked: list[tuple[str, torch.Tensor]] = []
    mask = torch.zeros(num_cells, dtype=torch.bool)
    for name, one in sorted(named, key=lambda each: not each[1].requires_grad):
        if _cells(one, mask, first, size).any():
            for other_name, other in marked:
                mask.zero_()
                _cells(other, mask, first, size).fill_(value=True)
                if _cells(one, mask, first, size).any():
                    return tuple(sorted((other_name, name), key=[each for each, _ in named].index))
        if one.requires_grad:
            _cells(one, mask, first, size).fill_(value=True)
            marked.append((name, one))
    return ()


def _range(tensor: torch.Tensor) -> tuple[int, int]:
    first = tensor.storage_offset()
    last = first + sum((length - 1) * stride for length, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return first * tensor.element_size(), (last + 1) * tensor.element_size()


def _cells(tensor: torch.Tensor, mask: torch.Tensor, first: int, size: int) -> torch.Tensor:
    """Return the view of a tensor's cells in a mask, which has one for each ``size`` bytes from byte ``first`` on."""
    each = tensor.element_size() // size
    # What is expanded has the same elements several times, which can't be written to.
    shape = [length if stride else 1 for length, stride in zip(tensor.shape, tensor.stride(), strict=True)]
    strides = [stride * each for stride in tensor.stride()]
    start = (tensor.storage_offset() * tensor.element_size() - first) // size
    return mask.as_strided((*shape, each), (*strides, 1), start)
