"""GPUs of this host, found without CUDA being initialised, and the environment that gives a process one of them.

NVML, the driver's management library, tells which devices there are. A process that has asked it can still be forked,
and takes no memory of a device; CUDA itself allows neither.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

# nvml.h: what a call returns when it succeeds, and when a container may not use a device that its host has.
_SUCCESS, _NO_PERMISSION = 0, 4
_TEXT_BYTES = 96  # NVML_DEVICE_UUID_V2_BUFFER_SIZE and NVML_DEVICE_NAME_V2_BUFFER_SIZE
# JAX takes this part of a device's memory at its start (XLA_PYTHON_CLIENT_MEM_FRACTION, JAX's own default).
_JAX_FRACTION = 0.75
# Settings of JAX about that, any of which is left as the user has it.
_JAX_MEMORY = ("XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_PREALLOCATE")
# Variables that a framework reads when it is imported, by the modules that have to be imported for that.
_READ_AT_IMPORT = {"KERAS_TORCH_DEVICE": {"keras", "torch"}, "JAX_PLATFORMS": {"jax"}}


@dataclass(frozen=True, kw_only=True)
class Device:
    """A GPU of this host, as NVML reports it; ``memory_bytes`` is all that it has."""

    uuid: str
    name: str
    memory_bytes: int


@dataclass(frozen=True, kw_only=True)
class HostDevices:
    """The devices of this host, in NVML's order.

    Attributes
    ----------
    driver
        Version of the driver; empty if there is none.
    devices
        Those that this process may use.
    problem
        Why the driver does not answer; empty if it does, or if there is none.
    """

    driver: str = ""
    devices: tuple[Device, ...] = ()
    problem: str = ""


class NvmlError(Exception):
    """A call of NVML has failed."""


class _Memory(ctypes.Structure):
    """Memory of a device in bytes, as NVML reports it (``nvmlMemory_t``)."""

    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class Nvml:
    """NVML while it is open; a context manager.

    Parameters
    ----------
    library
        What :class:`ctypes.CDLL` gives for ``libnvidia-ml.so.1``, or a fake with the same functions.
    """

    def __init__(self, library: Any) -> None:
        self._library = library

    def __enter__(self) -> Nvml:
        self._call("nvmlInit_v2")
        return self

    def __exit__(self, *_: object) -> None:
        self._call("nvmlShutdown")  # counted: others in this process that have opened it keep it

    def driver(self) -> str:
        """Return the version of the driver."""
        return self._text("nvmlSystemGetDriverVersion")

    def devices(self) -> tuple[Device, ...]:
        """Return the devices that this process may use."""
        count = ctypes.c_uint()
        self._call("nvmlDeviceGetCount_v2", ctypes.pointer(count))
        return tuple(device for index in range(count.value) if (device := self._device(index)) is not None)

    def _device(self, index: int) -> Device | None:
        handle = ctypes.c_void_p()
        status = self._library.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.pointer(handle))
        if status == _NO_PERMISSION:
            return None
        self._check("nvmlDeviceGetHandleByIndex_v2", status)
        memory = _Memory()
        self._call("nvmlDeviceGetMemoryInfo", handle, ctypes.pointer(memory))
        return Device(
            uuid=self._text("nvmlDeviceGetUUID", handle),
            name=self._text("nvmlDeviceGetName", handle),
            memory_bytes=int(memory.total),
        )

    def _text(self, name: str, *args: Any) -> str:
        buffer = ctypes.create_string_buffer(_TEXT_BYTES)
        self._call(name, *args, buffer, ctypes.c_uint(_TEXT_BYTES))
        return buffer.value.decode()

    def _call(self, name: str, *args: Any) -> None:
        self._check(name, getattr(self._library, name)(*args))

    def _check(self, name: str, status: int) -> None:
        if status != _SUCCESS:
            raise NvmlError(f"{name} failed with status {status} of NVML")


def find_library() -> Any:
    """Load NVML.

    Returns
    -------
    library, or None
        None if the host has no driver.
    """
    try:
        return ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None


def read_devices(library: Any) -> HostDevices:
    """Ask NVML for the devices of this host.

    Parameters
    ----------
    library
        Of :func:`find_library`.
    """
    if library is None:
        return HostDevices()
    try:
        with Nvml(library) as nvml:
            return HostDevices(driver=nvml.driver(), devices=nvml.devices())
    except (NvmlError, AttributeError) as error:  # a library that lacks a function is older than any supported driver
        return HostDevices(problem=str(error))


@cache
def devices_of_host() -> HostDevices:
    """Return the devices of this host; asked once in a process, since opening NVML takes tens of milliseconds."""
    return read_devices(find_library())


@dataclass(frozen=True, kw_only=True)
class VisibleDevice:
    """A device as a process may be given it.

    Attributes
    ----------
    uuid
        Identifies it in the whole cluster.
    entry
        Names it in ``CUDA_VISIBLE_DEVICES``.
    """

    uuid: str
    entry: str


def visible_devices(devices: Sequence[Device], variable: str | None) -> list[VisibleDevice]:
    """Return the devices that ``CUDA_VISIBLE_DEVICES`` leaves, in its order, as CUDA reads it.

    Parameters
    ----------
    devices
        Of this host.
    variable
        The variable's value; None if it is not set.

    Notes
    -----
    CUDA ignores an entry that it can't read and all that follow it, and finds nothing where a device is named twice.
    Entries stay as they are written: an index means the same device to the process that is given it, whatever
    ``CUDA_DEVICE_ORDER`` says. A part of a device (MIG) is a device by itself.
    """
    if variable is None:
        return [VisibleDevice(uuid=device.uuid, entry=device.uuid) for device in devices]
    visible: list[VisibleDevice] = []
    for entry in map(str.strip, variable.split(",")):
        uuid = _uuid_of(entry, devices)
        if not uuid:
            break
        if any(uuid == other.uuid for other in visible):
            return []
        visible.append(VisibleDevice(uuid=uuid, entry=entry))
    return visible


def _uuid_of(entry: str, devices: Sequence[Device]) -> str:
    if entry.isdecimal():
        return devices[int(entry)].uuid if int(entry) < len(devices) else ""
    if entry.startswith("MIG-"):
        return entry if devices else ""
    matching = [device.uuid for device in devices if entry.startswith("GPU-") and device.uuid.startswith(entry)]
    return matching[0] if len(matching) == 1 else ""


# A role process without a device, on a host that has some.
NO_DEVICE = ""


@dataclass(frozen=True, kw_only=True)
class DeviceUse:
    """Which device a process uses.

    Attributes
    ----------
    entry
        Names it in ``CUDA_VISIBLE_DEVICES``; :data:`NO_DEVICE` for none, None for what its Dask worker sees.
    num_sharing
        How many processes use it; 0 if that is not known.
    """

    entry: str | None = None
    num_sharing: int = 1

    def environment(self, inherited: Mapping[str, str], *, sees_devices: bool) -> dict[str, str]:
        """Return the variables that give a process this device, besides those that it inherits.

        Parameters
        ----------
        inherited
            The environment of its Dask worker.
        sees_devices
            Whether the Dask worker sees any device.
        """
        if self.entry == NO_DEVICE:
            return {"CUDA_VISIBLE_DEVICES": "-1", "KERAS_TORCH_DEVICE": "cpu", "JAX_PLATFORMS": "cpu"}
        if self.entry is None:
            # Keras on torch would ask CUDA for it when a template imports it, which could not be forked afterwards.
            shown = {"KERAS_TORCH_DEVICE": inherited.get("KERAS_TORCH_DEVICE", "cuda")} if sees_devices else {}
        else:
            shown = {"CUDA_VISIBLE_DEVICES": self.entry, "KERAS_TORCH_DEVICE": "cuda"}
        return shown | (_shares_of_memory(self.num_sharing, inherited) if shown and self.num_sharing != 1 else {})


def _shares_of_memory(num_sharing: int, inherited: Mapping[str, str]) -> dict[str, str]:
    """Variables that keep frameworks from taking all of a device's memory at their start."""
    shares = {"TF_FORCE_GPU_ALLOW_GROWTH": "true"}
    if any(name in inherited for name in _JAX_MEMORY):
        return shares
    if num_sharing:
        shares["XLA_PYTHON_CLIENT_MEM_FRACTION"] = f"{_JAX_FRACTION / num_sharing:.3f}"
    else:
        shares["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    return shares


def read_at_import(environment: Mapping[str, str], modules: Iterable[str]) -> dict[str, str]:
    """Return the variables that these modules read when they are imported: a template has to have them, too."""
    imported = set(modules)
    return {
        name: environment[name]
        for name, needed in _READ_AT_IMPORT.items()
        if name in environment and needed <= imported
    }
