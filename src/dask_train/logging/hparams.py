"""What TensorBoard's HParams page reads of a trial: its parameters, and whether it ended well.

The messages are those of tensorboard/plugins/hparams/plugin_data.proto.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dask_train.logging.event_file import EventFile
from dask_train.logging.protobuf import double_field, int_field, message_field, text_field

_PLUGIN = "hparams"
_START, _END = "_hparams_/session_start_info", "_hparams_/session_end_info"
# Of api.proto.
_SUCCESS, _FAILURE = 1, 2


def write_start(file: EventFile, params: Mapping[str, Any], at: float) -> None:
    """Write the parameters of a trial, which has a folder of its own, and when it began."""
    # A map is a repeated message of key and value; the value is a google.protobuf.Value.
    pairs = [text_field(1, name) + message_field(2, _value(value)) for name, value in params.items()]
    info = b"".join(message_field(1, pair) for pair in pairs) + double_field(5, at)
    file.plugin(_START, _PLUGIN, int_field(1, 0) + message_field(3, info), at)


def write_end(file: EventFile, *, is_good: bool, at: float) -> None:
    """Write how a trial ended, and when."""
    info = int_field(1, _SUCCESS if is_good else _FAILURE) + double_field(2, at)
    file.plugin(_END, _PLUGIN, int_field(1, 0) + message_field(4, info), at)


def _value(value: Any) -> bytes:
    if isinstance(value, bool):
        return int_field(4, value)
    if isinstance(value, int | float):
        return double_field(2, float(value))
    return text_field(3, str(value))
