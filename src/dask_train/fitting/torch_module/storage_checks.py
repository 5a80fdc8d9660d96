"""Whether different tensors of a module lie in the same memory, which they do not as they arrive in a worker."""

from __future__ import annotations

import itertools

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
        if one.layout == torch.strided and one.numel() and one.device.type != "meta":
            by_storage.setdefault((one.device, one.untyped_storage().data_ptr()), []).append((name, one))
    for several in by_storage.values():
        for (name, one), (other_name, other) in itertools.combinations(several, 2):
            if (one.requires_grad or other.requires_grad) and _overlap(one, other):
                raise ValueError(
                    f"{name!r} and {other_name!r} of the module are different tensors in the same memory, as after "
                    "`a.data = b.data`, and in the workers they would come apart. Tie weights by one parameter "
                    "(decoder.weight = encoder.weight), give each its own memory with clone(), or pass workers=0."
                )


def _overlap(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether two tensors of one storage have a byte in common."""
    ranges = [_range(each) for each in (one, other)]
    if max(start for start, _ in ranges) >= min(stop for _, stop in ranges):
        return False
    is_taken = torch.zeros(one.untyped_storage().nbytes(), dtype=torch.bool)
    _bytes_of(one, is_taken).fill_(value=True)
    return bool(_bytes_of(other, is_taken).any())


def _range(tensor: torch.Tensor) -> tuple[int, int]:
    first = tensor.storage_offset()
    last = first + sum((length - 1) * stride for length, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return first * tensor.element_size(), (last + 1) * tensor.element_size()


def _bytes_of(tensor: torch.Tensor, storage: torch.Tensor) -> torch.Tensor:
    """Return the view of a tensor's bytes, given a tensor with an element for each byte of its storage."""
    size = tensor.element_size()
    # What is expanded has the same elements several times, which can't be written to.
    shape = [length if stride else 1 for length, stride in zip(tensor.shape, tensor.stride(), strict=True)]
    strides = [stride * size for stride in tensor.stride()]
    return storage.as_strided((*shape, size), (*strides, 1), tensor.storage_offset() * size)
