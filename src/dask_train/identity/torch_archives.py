"""What torch has compiled, by the archive in which it is saved, without places in files and names of one process."""

from __future__ import annotations

import io
import json
import pickletools
import re
import zipfile
from typing import Any

from dask_train.identity.parts import ValueParts

# Where code was written, and a random number.
_LEFT_OUT = re.compile(r"\.debug_pkl$|/\.data/serialization_id$")
# Counts the classes that a process has scripted.
_COUNTED = re.compile(r"[./]?___torch_mangle_\d+")
_CONSTANT = re.compile(r"^ +\w+ : Final\[.*\n", re.MULTILINE)


def script_parts(module: Any) -> ValueParts:
    """Return a scripted or traced module."""
    import torch

    data = io.BytesIO()
    torch.jit.save(module, data)
    return archive_parts(data)


def exported_parts(program: Any) -> ValueParts:
    """Return a program of ``torch.export``."""
    import torch

    data = io.BytesIO()
    torch.export.save(program, data)
    return archive_parts(data)


def archive_parts(data: io.BytesIO) -> ValueParts:
    """Return the files of an archive, by their names."""
    with zipfile.ZipFile(data) as archive:
        files = {name: archive.read(name) for name in archive.namelist() if not _LEFT_OUT.search(name)}
    contents = sorted((_COUNTED.sub("", name), _content(name, content)) for name, content in files.items())
    return ValueParts("torch archive", tuple(each for pair in contents for each in pair))


def _content(name: str, content: bytes) -> bytes:
    if name.endswith(".json"):
        return json.dumps(_without_places(json.loads(content)), sort_keys=True).encode()
    if name.endswith(".py"):
        text = _COUNTED.sub("", content.decode())
        constants = sorted(_CONSTANT.findall(text))  # which torch writes in the order of a set
        return (_CONSTANT.sub("", text) + "".join(constants)).encode()
    if name.endswith(".pkl"):  # where names have their lengths before them
        operations = [(each.name, argument) for each, argument, _ in pickletools.genops(content)]
        return _COUNTED.sub("", repr(operations)).encode()
    return content


def _without_places(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_places(each) for name, each in value.items() if name != "stack_trace"}
    return [_without_places(each) for each in value] if isinstance(value, list) else value
