"""GPUs given to roles on real Dask workers, whose host has the devices of a fake of NVML."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import dask
import numpy as np
import pytest
import torch
from distributed import Client

import dask_train as dt

NAMES = "CUDA_VISIBLE_DEVICES", "KERAS_TORCH_DEVICE", "XLA_PYTHON_CLIENT_MEM_FRACTION"
BY = {"loss": torch.nn.MSELoss(), "optimizer": torch.optim.SGD, "batch_size": 4, "verbose": 0}


def _pretend(num_devices: int, dask_worker: Any = None, **settings: Any) -> None:
    """Let the host of a Dask worker have so many devices; ``GPU`` is what that declares, all else its environment."""
    from dask_train.cluster import devices
    from dask_train.process.devices import devices_of_host, read_devices
    from dask_train.testing.nvml import FakeNvml, fake_devices

    found = read_devices(FakeNvml(fake_devices(num_devices)))
    devices.devices_of_host = (lambda: found) if num_devices else devices_of_host
    declared = {name: settings.pop(name) for name in ["GPU"] if name in settings}
    dask_worker.state.total_resources.pop("GPU", None)
    dask_worker.state.total_resources.update(declared)
    for name in ("CUDA_VISIBLE_DEVICES", "JAX_PLATFORMS"):
        os.environ.pop(name, None)
    os.environ.update(settings)


def sees(_: Any) -> list[str | None]:
    return [os.environ.get(name) for name in NAMES]


def serve(session: Any) -> None:
    session.report(up=1)
    session.wait_until_stopped()


@pytest.fixture
def pretend(client: Client) -> Iterator[Callable[..., Any]]:
    """Lets hosts have devices until the test ends."""
    yield lambda *args, **settings: client.run(_pretend, *args, **settings)
    client.run(_pretend, 0)


def test_each_role_has_a_device_of_its_own_and_too_few_are_refused(pretend):
    pretend(2)
    found = dt.train({"worker": sees, "ps": sees}, roles={"worker": 2, "ps": 1}, gpus=1)
    assert sorted(told[0] for told in found.results["worker"]) == ["GPU-00000000-0000", "GPU-00000001-0000"]
    assert all(told[1:] == ["cuda", None] for told in found.results["worker"])
    assert found.results["ps"] == [["-1", "cpu", None]]
    assert found.notices == []
    with pytest.raises(dt.PlacementError, match="3 roles need a GPU each, and the Dask workers have 2 GPUs"):
        dt.train(sees, roles={"worker": 3}, gpus=1)


def test_a_device_is_given_to_one_run_at_a_time(pretend, until):
    pretend(1)
    first = dt.train(serve, roles={"worker": 1}, gpus=1, wait=False)
    until(first, 1)
    text = r"(?s)found no room within 0.5 s.*1 of them need a GPU, and 1 GPUs are used by other runs"
    with dask.config.set({"train.placement.timeout": "0.5s"}), pytest.raises(dt.PlacementError, match=text):
        dt.train(sees, roles={"worker": 1}, gpus=1)
    first.stop()
    assert dt.train(sees, roles={"worker": 1}, gpus=1).notices == []


def test_roles_share_the_device_that_dask_cuda_has_given(pretend):
    pretend(2, CUDA_VISIBLE_DEVICES="1")
    found = dt.train(sees, roles={"worker": 4}, gpus="auto")
    assert found.results["worker"] == [["1", "cuda", "0.188"]] * 4
    (notice,) = found.notices
    assert notice.startswith("4 roles share 1 GPU")


def test_roles_use_as_many_devices_as_dask_workers_declare(pretend):
    pretend(3, GPU=1)
    found = dt.train(sees, roles={"worker": 2}, gpus="auto")
    assert sorted(told[0] for told in found.results["worker"]) == ["GPU-00000000-0000", "GPU-00000001-0000"]
    assert found.notices == []


def test_devices_that_no_dask_worker_was_given_are_told_and_left_alone(pretend):
    pretend(2)
    model = torch.nn.Linear(4, 1)
    result = dt.fit(model, np.ones((8, 4), "f4"), np.ones((8, 1), "f4"), **BY)
    assert any("have GPUs (2 x NVIDIA H100 80GB HBM3) that were given to no" in told for told in result.notices)
    assert dt.fit(model, np.ones((8, 4), "f4"), np.ones((8, 1), "f4"), gpus=0, **BY).notices == []


def test_a_framework_that_would_compute_on_cpus_is_refused(pretend):
    """JAX is here without CUDA, as it computes where JAX_PLATFORMS keeps it from a device; torch as well."""
    pretend(1)
    text = r"worker 0 could not start: .*gpus=1 has given this process a GPU, and it would compute on CPUs: "
    with pytest.raises(dt.LaunchError, match=rf"{text}torch [^ ]* has no CUDA there.*pass gpus=0"):
        dt.fit(torch.nn.Linear(4, 1), np.ones((8, 4), "f4"), np.ones((8, 1), "f4"), workers=1, gpus=1, **BY)
    pretend(1, JAX_PLATFORMS="cpu")
    with pytest.raises(dt.LaunchError, match=rf"{text}JAX_PLATFORMS is 'cpu' there"):
        dt.train(sees, roles={"worker": 1}, framework="jax", gpus=1)
