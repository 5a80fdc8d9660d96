"""Which GPUs a host has, which of them a process sees, and the environment that gives it one."""

from __future__ import annotations

import pytest

from dask_train.process.devices import (
    NO_DEVICE,
    DeviceUse,
    HostDevices,
    read_at_import,
    read_devices,
    visible_devices,
)
from dask_train.testing.nvml import FakeNvml, fake_devices

THREE = fake_devices(3)
A, B, C = (device.uuid for device in THREE)


def test_devices_are_told_as_nvml_has_them_and_it_is_closed_again():
    library = FakeNvml(THREE, driver="570.1")
    assert read_devices(library) == HostDevices(driver="570.1", devices=tuple(THREE))
    assert library.num_open == 0


def test_a_device_that_a_container_may_not_use_is_left_out():
    assert read_devices(FakeNvml([THREE[0], None, THREE[2]])).devices == (THREE[0], THREE[2])


def test_no_driver_is_no_device_and_one_that_fails_is_told():
    assert read_devices(None) == HostDevices()
    assert read_devices(FakeNvml(THREE, driver="")) == HostDevices(problem="nvmlInit_v2 failed with status 9 of NVML")
    assert "nvmlInit_v2" in read_devices(object()).problem, "an old library lacks a function"


@pytest.mark.parametrize(
    ("variable", "found"),
    [
        (None, [(A, A), (B, B), (C, C)]),
        ("", []),
        ("-1", []),
        ("2, 0", [(C, "2"), (A, "0")]),
        ("1,2,0", [(B, "1"), (C, "2"), (A, "0")]),
        ("0,7,1", [(A, "0")]),
        ("0,0", []),
        ("0,rubbish,1", [(A, "0")]),
        ("GPU-00000001", [(B, "GPU-00000001")]),
        ("GPU-0000000", []),
        (f"{C},0", [(C, C), (A, "0")]),
        (f"0,{A}", []),
        ("MIG-1,MIG-2", [("MIG-1", "MIG-1"), ("MIG-2", "MIG-2")]),
    ],
)
def test_visible_devices_are_those_that_cuda_would_leave(variable, found):
    assert [(device.uuid, device.entry) for device in visible_devices(THREE, variable)] == found
    assert visible_devices([], variable) == []


def test_a_role_without_a_device_sees_none_in_any_framework():
    found = DeviceUse(entry=NO_DEVICE).environment({}, sees_devices=True)
    assert found == {"CUDA_VISIBLE_DEVICES": "-1", "KERAS_TORCH_DEVICE": "cpu", "JAX_PLATFORMS": "cpu"}


def test_a_role_sees_its_own_device_alone():
    found = DeviceUse(entry="2").environment({"CUDA_VISIBLE_DEVICES": "1,2,0"}, sees_devices=True)
    assert found == {"CUDA_VISIBLE_DEVICES": "2", "KERAS_TORCH_DEVICE": "cuda"}


def test_roles_that_share_a_device_take_their_part_of_its_memory():
    use = DeviceUse(entry=A, num_sharing=3)
    assert use.environment({}, sees_devices=True) == {
        "CUDA_VISIBLE_DEVICES": A,
        "KERAS_TORCH_DEVICE": "cuda",
        "TF_FORCE_GPU_ALLOW_GROWTH": "true",
        "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.250",
    }
    for name in ("XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_PREALLOCATE"):
        assert not any(key.startswith("XLA") for key in use.environment({name: "0.5"}, sees_devices=True)), name


def test_what_is_left_to_the_loop_is_left_as_it_is():
    assert DeviceUse().environment({}, sees_devices=False) == {}
    assert DeviceUse().environment({}, sees_devices=True) == {"KERAS_TORCH_DEVICE": "cuda"}
    assert DeviceUse().environment({"KERAS_TORCH_DEVICE": "cuda:1"}, sees_devices=True) == {
        "KERAS_TORCH_DEVICE": "cuda:1"
    }
    assert DeviceUse(num_sharing=0).environment({}, sees_devices=False) == {}
    models = DeviceUse(num_sharing=0).environment({}, sees_devices=True)
    assert models["XLA_PYTHON_CLIENT_PREALLOCATE"] == "false"


def test_templates_differ_only_in_what_their_imports_read():
    hidden = DeviceUse(entry=NO_DEVICE).environment({}, sees_devices=True)
    assert read_at_import(hidden, ("torch", "keras", "dask_train.role")) == {"KERAS_TORCH_DEVICE": "cpu"}
    assert read_at_import(hidden, ("jax", "keras")) == {"JAX_PLATFORMS": "cpu"}
    assert read_at_import(hidden, ("torch",)) == {}
    assert read_at_import({}, ("torch", "keras", "jax")) == {}
