"""Tensors in a file that PyTorch has saved, read without PyTorch, and without running what else may be in the file.

The format of ``torch.save`` before PyTorch 1.6 (``torch/serialization.py``, ``_legacy_save``): five pickles (a magic
number, the version of the protocol, facts about the machine, the value, the keys of its storages), then for each
storage its number of elements as a little-endian int64 and its bytes.
"""

from __future__ import annotations

import io
import os
import pickle
import struct
from collections import OrderedDict
from typing import Any, NamedTuple

import numpy as np

from dask_train.errors import DataError

_MAGIC = 0x1950A86A20F9469CFC6C
_VERSION = 1001
_DTYPES = {"FloatStorage": "<f4", "DoubleStorage": "<f8", "HalfStorage": "<f2", "LongStorage": "<i8"}


def read_tensors(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """The tensors of a ``state_dict``, by name.

    Parameters
    ----------
    path
        A file in the format of ``torch.save(module.state_dict(), path)`` before PyTorch 1.6.

    Returns
    -------
    dict of np.ndarray
        float16, 32 and 64, and int64; read-only views of what was read, which is one copy.

    Raises
    ------
    DataError
        It has another format, is torn, or refers to anything but tensors.
    OSError
        It can't be read.
    """
    with open(path, "rb") as file:
        content = io.BytesIO(file.read())
    try:
        return _tensors(content)
    except (pickle.UnpicklingError, EOFError, struct.error, ValueError, IndexError, KeyError, AttributeError) as error:
        raise DataError(
            f"{os.fspath(path)} can't be read as tensors: {type(error).__name__}: {error}.",
            "It is torn, is of PyTorch 1.6 or later (a zip file), or holds more than the tensors of a state_dict.",
        ) from error


class _Storage(NamedTuple):
    dtype: np.dtype
    key: str


class _Tensor(NamedTuple):
    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]


def _tensor(storage: _Storage, offset: int, shape: tuple[int, ...], stride: tuple[int, ...], *_: Any) -> _Tensor:
    return _Tensor(storage, offset, shape, stride)


class _Unpickler(pickle.Unpickler):
    """Knows dicts and tensors, and refuses every other name, so that no code of the file's choosing runs."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _tensor
        if module == "torch" and name in _DTYPES:
            return np.dtype(_DTYPES[name])
        raise pickle.UnpicklingError(f"it refers to {module}.{name}")

    def persistent_load(self, pid: Any) -> _Storage:
        _, dtype, key, *_ = pid
        return _Storage(dtype, key)


def _tensors(file: io.BytesIO) -> dict[str, np.ndarray]:
    magic, version, _ = (_Unpickler(file).load() for _ in range(3))
    if (magic, version) != (_MAGIC, _VERSION):
        raise ValueError(f"it begins with {magic!r}, {version!r}")
    found: dict[str, _Tensor] = _Unpickler(file).load()
    dtypes = {tensor.storage.key: tensor.storage.dtype for tensor in found.values()}
    storages = {}
    for key in _Unpickler(file).load():
        (num,) = struct.unpack("<q", file.read(8))
        data = file.read(num * dtypes[key].itemsize)
        storages[key] = np.frombuffer(data, dtypes[key], count=num)
    if file.read():
        raise ValueError("there is more after the last storage")
    return {name: _view(storages[tensor.storage.key], tensor) for name, tensor in found.items()}


def _view(storage: np.ndarray, tensor: _Tensor) -> np.ndarray:
    last = tensor.offset + sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride, strict=True))
    if min(tensor.offset, *tensor.shape, *tensor.stride, 0) < 0 or (0 not in tensor.shape and last >= len(storage)):
        raise ValueError(f"a tensor of shape {tensor.shape} lies beyond its storage of {len(storage)} elements")
    strides = [step * storage.itemsize for step in tensor.stride]
    return np.lib.stride_tricks.as_strided(storage[tensor.offset :], tensor.shape, strides, writeable=False)
