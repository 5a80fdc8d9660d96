"""A fake of NVML for tests without a GPU, and the contract that it and the real library keep."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from dask_train.process.devices import Device, Nvml, read_devices

_NOT_INITIALIZED, _INVALID_ARGUMENT, _DRIVER_NOT_LOADED, _NO_PERMISSION = 1, 2, 9, 4


class FakeNvml:
    """Stands for ``libnvidia-ml.so.1``: the functions of C that :class:`dask_train.process.devices.Nvml` calls.

    Parameters
    ----------
    devices
        That the host has; None for one that a container may not use.
    driver
        Version of the driver; empty for a driver that is not loaded.

    Attributes
    ----------
    num_open
        How often it has been opened and not closed again.
    """

    def __init__(self, devices: Sequence[Device | None] = (), driver: str = "580.159.04") -> None:
        self._devices, self._driver = list(devices), driver
        self.num_open = 0

    def nvmlInit_v2(self) -> int:  # noqa: N802 - as NVML names its functions
        if not self._driver:
            return _DRIVER_NOT_LOADED
        self.num_open += 1
        return 0

    def nvmlShutdown(self) -> int:  # noqa: N802
        if not self.num_open:
            return _NOT_INITIALIZED
        self.num_open -= 1
        return 0

    def nvmlSystemGetDriverVersion(self, buffer: Any, size: ctypes.c_uint) -> int:  # noqa: N802
        return self._write(self._driver, buffer, size)

    def nvmlDeviceGetCount_v2(self, count: Any) -> int:  # noqa: N802
        if not self.num_open:
            return _NOT_INITIALIZED
        count.contents.value = len(self._devices)
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, index: ctypes.c_uint, handle: Any) -> int:  # noqa: N802
        if not self.num_open:
            return _NOT_INITIALIZED
        if index.value >= len(self._devices):
            return _INVALID_ARGUMENT
        if self._devices[index.value] is None:
            return _NO_PERMISSION
        handle.contents.value = index.value + 1  # a null pointer is no handle
        return 0

    def nvmlDeviceGetUUID(self, handle: ctypes.c_void_p, buffer: Any, size: ctypes.c_uint) -> int:  # noqa: N802
        return self._write(self._device(handle).uuid, buffer, size)

    def nvmlDeviceGetName(self, handle: ctypes.c_void_p, buffer: Any, size: ctypes.c_uint) -> int:  # noqa: N802
        return self._write(self._device(handle).name, buffer, size)

    def nvmlDeviceGetMemoryInfo(self, handle: ctypes.c_void_p, memory: Any) -> int:  # noqa: N802
        memory.contents.total = self._device(handle).memory_bytes
        return 0

    def _device(self, handle: ctypes.c_void_p) -> Device:
        assert self.num_open, "NVML is not open"
        device = self._devices[(handle.value or 0) - 1]
        assert device is not None
        return device

    def _write(self, text: str, buffer: Any, size: ctypes.c_uint) -> int:
        if not self.num_open:
            return _NOT_INITIALIZED
        assert len(text) < size.value
        buffer.value = text.encode()
        return 0


def fake_devices(count: int, name: str = "NVIDIA H100 80GB HBM3", memory_bytes: int = 80 << 30) -> list[Device]:
    """Return devices that differ in their uuid alone."""
    return [Device(uuid=f"GPU-{index:08x}-0000", name=name, memory_bytes=memory_bytes) for index in range(count)]


def check_nvml(library: Any) -> None:
    """Check that a library behaves as dask-train expects of NVML.

    Parameters
    ----------
    library
        Of :func:`dask_train.process.devices.find_library`, or a fake.

    Raises
    ------
    AssertionError
        It does not.
    """
    first, second = read_devices(library), read_devices(library)
    assert first == second, "asked again, it tells the same"
    assert not first.problem, first.problem
    assert first.driver.split(".")[0].isdecimal(), first.driver
    assert len({device.uuid for device in first.devices}) == len(first.devices), "each device has an id of its own"
    for device in first.devices:
        assert device.uuid.startswith("GPU-"), device
        assert device.name, device
        assert device.memory_bytes >= 1 << 28, device
    with Nvml(library) as outer:
        with Nvml(library) as inner:
            assert inner.devices() == first.devices
        assert outer.devices() == first.devices, "it stays open for whoever else has opened it"
