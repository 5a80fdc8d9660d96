"""``tf.train.Example`` as bytes: named features, each a list of bytes, of floats or of whole numbers.

https://github.com/tensorflow/tensorflow/blob/master/tensorflow/core/example/feature.proto
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from dask_train.logging.protobuf import message_field, text_field

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
# Numbers of the lists in a feature.
_BYTES_LIST, _FLOAT_LIST, _INT64_LIST = 1, 2, 3


def parsed(data: bytes) -> dict[str, Any]:
    """Return the features of an example by name: float32 or int64 ``(n,)``, ``bytes``, or a list of several.

    Raises
    ------
    ValueError
        It is no example.
    """
    features_by_name: dict[str, Any] = {}
    for features in _messages(data, 1):
        for entry in _messages(features, 1):
            parts = dict(_fields(entry))
            if not isinstance(parts.get(1), bytes):
                raise ValueError("the record is no tf.train.Example: a feature has no name")
            features_by_name[parts[1].decode()] = _values(parts.get(2, b""))
    return features_by_name


def _values(feature: bytes) -> Any:
    for number, content in _fields(feature):
        if number == _BYTES_LIST:
            values = list(_messages(content, 1))
            return values[0] if len(values) == 1 else values
        if number == _FLOAT_LIST:
            return np.frombuffer(b"".join(_messages(content, 1)), "<f4")
        if number == _INT64_LIST:
            parts = [
                part if isinstance(part, bytes) else _varint_bytes(part) for at, part in _fields(content) if at == 1
            ]
            return _whole_numbers(b"".join(parts))
    return np.empty(0, np.float32)  # a list without a kind, as TensorFlow writes one that is empty


def _messages(data: Any, wanted: int) -> Iterator[bytes]:
    if not isinstance(data, bytes):
        raise ValueError("the record is no tf.train.Example: it has a number where a message belongs")
    for number, content in _fields(data):
        if number == wanted:
            if not isinstance(content, bytes):
                raise ValueError("the record is no tf.train.Example: it has a number where a message belongs")
            yield content


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Go through the fields of a message: bytes as they are, numbers of fixed size as bytes, others as ``int``."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        if kind == _VARINT:
            value, at = _varint(data, at)
            yield key >> 3, value
            continue
        if kind == _BYTES:
            size, at = _varint(data, at)
        elif kind in (_FIXED64, _FIXED32):
            size = 8 if kind == _FIXED64 else 4
        else:
            raise ValueError(f"the record is no tf.train.Example: it has a field of kind {kind}")
        if at + size > len(data):
            raise ValueError("the record is no tf.train.Example: it ends within a field")
        yield key >> 3, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 70:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
    raise ValueError("the record is no tf.train.Example: it ends within a number")


def _varint_bytes(value: int) -> bytes:
    return bytes(_packed(np.array([value], np.uint64)))


def _whole_numbers(data: bytes) -> np.ndarray:
    """Return packed numbers, int64 ``(n,)``."""
    several = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(several < 0x80)
    if len(several) and (not len(ends) or ends[-1] != len(several) - 1):
        raise ValueError("the record is no tf.train.Example: it ends within a number")
    starts = np.concatenate([np.zeros(1, np.int64), ends[:-1] + 1])[: len(ends)]
    sizes = ends - starts + 1
    if len(sizes) and sizes.max() > 10:
        raise ValueError("the record is no tf.train.Example: a number has more than 10 bytes")
    numbers = np.zeros(len(ends), np.uint64)
    for place in range(int(sizes.max(initial=0))):
        has = sizes > place
        numbers[has] |= (several[starts[has] + place] & np.uint64(0x7F)) << np.uint64(7 * place)
    return numbers.view(np.int64)


def _packed(values: np.ndarray) -> np.ndarray:
    """Return uint64 ``(n,)`` as packed numbers, uint8."""
    parts = (values[:, None] >> np.arange(0, 70, 7, dtype=np.uint64)).astype(np.uint8) & 0x7F
    parts[:, 9] = values >> np.uint64(63)
    last = 9 - (parts[:, ::-1] != 0).argmax(axis=1)
    last[values == 0] = 0
    places = np.arange(10)
    parts[places < last[:, None]] |= 0x80
    packed: np.ndarray = parts[places <= last[:, None]]
    return packed


def packed(fields: Mapping[str, Any]) -> bytes:
    """Return an example of features by name.

    Parameters
    ----------
    fields
        Of each a number, a text, ``bytes`` or a buffer of bytes, a list of these, or an array of numbers of at most one
        axis. Floats become float32, which is all that examples hold.

    Raises
    ------
    TypeError, ValueError
        They are no dict, or an example can't hold a value.
    """
    if not isinstance(fields, Mapping):
        raise TypeError(
            f"The bag holds a {type(fields).__name__}; rows are dicts of features by name. Make dicts with "
            "bag.map(...)."
        )
    for name in fields:
        check_feature_name(name)
    entries = [
        message_field(1, text_field(1, name) + message_field(2, _feature(name, value)))
        for name, value in sorted(fields.items())
    ]
    return message_field(1, b"".join(entries))


def check_feature_name(name: Any) -> None:
    """Check that a feature may have this name.

    Raises
    ------
    TypeError
        It is no text.
    """
    if not isinstance(name, str):
        raise TypeError(
            f"Feature {name!r} has a name of type {type(name).__name__}, and names in an example are text. "
            "Rename it: frame.rename(columns=str) of a frame."
        )


def _feature(name: str, value: Any) -> bytes:
    if isinstance(value, str | bytes) or _is_buffer(value):
        value = [value]
    if isinstance(value, list | tuple) and not value:
        return b""  # of no kind: NumPy would make floats of it, and in other examples the list may hold other things
    if isinstance(value, list | tuple) and all(isinstance(each, str | bytes) or _is_buffer(each) for each in value):
        texts = [each.encode() if isinstance(each, str) else bytes(each) for each in value]
        return message_field(_BYTES_LIST, b"".join(message_field(1, text) for text in texts))
    array = np.asarray(value)
    if array.dtype.kind == "O" and any(each is None or type(each).__name__ == "NAType" for each in array.flat):
        raise TypeError(
            f"Feature {name!r} has a value that is missing, {value!r}, which an example can't hold. Leave such rows "
            "out, or fill them: frame.dropna() or frame.fillna(...) of a frame."
        )
    if array.ndim > 1:
        raise ValueError(
            f"Feature {name!r} has the shape {array.shape}, which an example does not keep. Pass value.ravel(), or the "
            "bytes of a picture."
        )
    if array.dtype.kind == "f":
        return message_field(_FLOAT_LIST, message_field(1, _float32(name, array).tobytes()))
    if array.dtype.kind not in "biu" or (array.dtype.kind == "u" and (array > np.iinfo(np.int64).max).any()):
        raise TypeError(f"Feature {name!r} is {array.dtype}, and an example holds bytes, float32 and int64.")
    numbers = np.atleast_1d(array).astype(np.int64).view(np.uint64)
    return message_field(_INT64_LIST, message_field(1, _packed(numbers).tobytes()))


def _is_buffer(value: Any) -> bool:
    """Return whether a value is bytes that may be written to; NumPy would make whole numbers of them."""
    # Views of other numbers, and of pictures with their axes, are arrays.
    return isinstance(value, bytearray) or (isinstance(value, memoryview) and (value.format, value.ndim) == ("B", 1))


def _float32(name: str, array: np.ndarray) -> np.ndarray:
    """Return floats as float32, of which none has become infinite."""
    with np.errstate(over="ignore"):
        rounded: np.ndarray = array.astype("<f4")
    if (too_large := np.isinf(rounded) & np.isfinite(array)).any():
        raise ValueError(
            f"Feature {name!r} has {array[too_large][0]}, and examples hold float32, whose largest is 3.4e38. Scale "
            "such values, or write them as text."
        )
    return rounded
