"""Checks of ``device.sh`` with torch: devices, forked processes, modules, several roles on one device, CuPy."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import dask.array as da
import numpy as np
import torch

import dask_train as dt
from dask_train.doctor.examination import examine_templates
from dask_train.process.devices import find_library, read_devices
from dask_train.testing.nvml import FakeNvml, check_nvml, fake_devices

TOLERANCE = 1e-9  # of float64 weights after 20 steps
RATE = 0.1
LOSS = torch.nn.CrossEntropyLoss()


class Checks:
    """The checks, in the order in which they run."""

    def __init__(self, client: Any, *, rehearses: bool, broken: bool) -> None:
        self.client, self.rehearses = client, rehearses
        self.device, self.gpus = ("cpu", 0) if rehearses else ("cuda", 1)
        self.rate = RATE * (1.01 if broken else 1.0)
        random = np.random.default_rng(0)
        self.x, self.y = random.normal(size=(640, 16)), random.integers(0, 4, 640)
        torch.manual_seed(0)
        self.module = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 4)).double()

    def nvml(self) -> str:
        library = FakeNvml(fake_devices(1)) if self.rehearses else find_library()
        check_nvml(library)
        return str(read_devices(library))

    def fork_of_a_template(self) -> str:
        def uses_it(_: Any, device: str = self.device) -> float:
            import torch

            return float(torch.arange(5.0, device=device).sum())

        found = dt.train(uses_it, roles={"worker": 1}, framework="torch", gpus=self.gpus).results["worker"]
        assert found == [10.0], found
        names = [template["imports"] for each in examine_templates(self.client).values() for template in each]
        assert any("torch" in name for name in names), f"it was not forked: {names}"
        return ", ".join(names)

    def fit_of_a_module(self) -> str:
        return self._compared(workers=1, gpus=self.gpus)

    def evaluation_and_prediction(self) -> str:
        x = da.from_array(self.x, chunks=(160, 16))
        with torch.no_grad():
            outputs = self.module(torch.from_numpy(self.x))
        expected = float(LOSS(outputs, torch.from_numpy(self.y)))
        loss = dt.evaluate(self.module, x, da.from_array(self.y, chunks=160), loss=LOSS, batch_size=640)["loss"]
        difference = float(np.abs(np.asarray(dt.predict(self.module, x)) - outputs.numpy()).max())
        assert abs(loss - expected) < TOLERANCE, (loss, expected)
        assert difference < TOLERANCE, difference
        return f"largest difference {difference:.1e}"

    def a_role_without_a_device_beside_one_that_has_it(self) -> str:
        def sees(_: Any) -> int:
            import torch

            return torch.cuda.device_count() if torch.cuda.is_available() else 0

        roles = {"worker": 1, "ps": 1}
        found = dt.train({"worker": sees, "ps": sees}, roles=roles, gpus=self.gpus).results
        assert found == {"worker": [self.gpus], "ps": [0]}, found
        return str(found)

    def two_roles_on_one_device(self) -> str:
        if self.rehearses:
            return self._compared(workers=2, gpus=0)
        self.client.run(_give, "0")
        try:
            return self._compared(workers=2, gpus="auto")
        finally:
            self.client.run(_give, None)

    def out_of_memory(self) -> str:
        def asks_too_much(_: Any, rehearses: bool = self.rehearses) -> None:
            import torch

            if rehearses:
                raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 1 PiB.")
            torch.empty(1 << 50, dtype=torch.uint8, device="cuda")

        try:
            dt.train(asks_too_much, roles={"worker": 1}, framework="torch", recovery=None, gpus=self.gpus)
        except dt.RoleFailedError as error:
            told = str(error).splitlines()[0]
        else:
            raise AssertionError("1 PiB was allocated")
        assert "out of memory" in told, told
        return told

    def an_array_of_cupy(self) -> str:
        try:
            import cupy
        except ImportError:
            return "not tried: CuPy is not installed"
        return self._compared(cupy.asarray, workers=1, gpus=self.gpus)

    def too_few_devices(self) -> str:
        if self.rehearses:
            return "not tried in a rehearsal"
        try:
            dt.train(lambda _: None, roles={"worker": 99}, gpus=1)
        except dt.PlacementError as error:
            return str(error).splitlines()[0]
        raise AssertionError("99 roles were given a GPU each")

    def _compared(self, made_of: Any = None, **settings: Any) -> str:
        """Compare ``fit`` with a loop by hand, on Dask arrays whose chunks ``made_of`` makes of NumPy's."""
        mine, fitted = copy.deepcopy(self.module).to(self.device), copy.deepcopy(self.module)
        optimizer = torch.optim.SGD(mine.parameters(), lr=self.rate)
        for start in range(0, 640, 32):
            x, y = (torch.from_numpy(each[start : start + 32]).to(self.device) for each in (self.x, self.y))
            optimizer.zero_grad()
            LOSS(mine(x), y).backward()
            optimizer.step()
        x, y = da.from_array(self.x, chunks=(160, 16)), da.from_array(self.y, chunks=160)
        if made_of is not None:
            x, y = x.map_blocks(made_of), y.map_blocks(made_of)
        by = partial(torch.optim.SGD, lr=RATE)
        result = dt.fit(fitted, x, y, loss=LOSS, optimizer=by, batch_size=32, shuffle=False, verbose=0, **settings)
        pairs = zip(mine.parameters(), fitted.parameters(), strict=True)
        difference = max(float((one.detach().cpu() - other.detach().cpu()).abs().max()) for one, other in pairs)
        assert difference < TOLERANCE, f"weights differ by {difference:.1e}"
        return f"largest difference {difference:.1e}; notices {result.notices}"


def _give(devices: str | None) -> None:
    """Let the Dask worker have these devices, as dask-cuda does."""
    import os

    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    if devices is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = devices
