"""Checks of dask-train on a GPU, run by ``device.sh``; each is written to ``correctness.jsonl`` when it is done."""

from __future__ import annotations

import argparse
import copy
import json
import signal
import time
from functools import partial
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import torch
from distributed import Client, LocalCluster

import dask_train as dt
from dask_train.doctor.examination import examine_templates
from dask_train.process.devices import find_library, read_devices
from dask_train.testing.nvml import FakeNvml, check_nvml, fake_devices

CHECK_S = 45  # how long one check may take
TOLERANCE = 1e-9  # of float64 weights after 20 steps
RATE = 0.1
LOSS = torch.nn.CrossEntropyLoss()


class Checks:
    """The checks, with one cluster for all."""

    def __init__(self, client: Client, *, rehearses: bool, broken: bool) -> None:
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

    def two_roles_on_one_device(self) -> str:
        def give() -> None:
            import os

            os.environ["CUDA_VISIBLE_DEVICES"] = "0"

        if not self.rehearses:
            self.client.run(give)
        return self._compared(workers=2, gpus=0 if self.rehearses else "auto")

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

    def too_few_devices(self) -> str:
        if self.rehearses:
            return "not in a rehearsal"
        try:
            dt.train(lambda _: None, roles={"worker": 99}, gpus=1)
        except dt.PlacementError as error:
            return str(error)
        raise AssertionError("99 roles were given a GPU each")

    def _compared(self, **settings: Any) -> str:
        mine, fitted = copy.deepcopy(self.module).to(self.device), copy.deepcopy(self.module)
        optimizer = torch.optim.SGD(mine.parameters(), lr=self.rate)
        for start in range(0, 640, 32):
            x, y = (torch.from_numpy(each[start : start + 32]).to(self.device) for each in (self.x, self.y))
            optimizer.zero_grad()
            LOSS(mine(x), y).backward()
            optimizer.step()
        x, y = da.from_array(self.x, chunks=(160, 16)), da.from_array(self.y, chunks=160)
        made = partial(torch.optim.SGD, lr=RATE)
        result = dt.fit(fitted, x, y, loss=LOSS, optimizer=made, batch_size=32, shuffle=False, verbose=0, **settings)
        pairs = zip(mine.parameters(), fitted.parameters(), strict=True)
        difference = max(float((one.detach().cpu() - other.detach().cpu()).abs().max()) for one, other in pairs)
        assert difference < TOLERANCE, f"weights differ by {difference:.1e}"
        return f"largest difference {difference:.1e}; notices {result.notices}"


def main() -> int:
    """Run all checks, and write the summary."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rehearse", action="store_true")
    parser.add_argument("--break-on-purpose", action="store_true")
    parser.add_argument("out", type=Path)
    given = parser.parse_args()
    signal.signal(signal.SIGALRM, _too_long)
    rows = []
    with LocalCluster(n_workers=1, threads_per_worker=2, dashboard_address=":0") as cluster, Client(cluster) as client:
        checks = Checks(client, rehearses=given.rehearse, broken=given.break_on_purpose)
        names = [name for name in vars(Checks) if not name.startswith("_")]
        with (given.out / "correctness.jsonl").open("w") as file:
            for name in names:
                rows.append(_run(name, getattr(checks, name)))
                print(json.dumps(rows[-1]), file=file, flush=True)
                print(rows[-1], flush=True)
    (given.out / "summary.json").write_text(json.dumps({"rehearsal": given.rehearse, "checks": rows}, indent=1))
    table = [f"| {row['check']} | {'ok' if row['ok'] else 'FAILED'} | {row['told']} |" for row in rows]
    (given.out / "summary.md").write_text("\n".join(["| check | | |", "|---|---|---|", *table, ""]))
    return int(not all(row["ok"] for row in rows))


def _too_long(*_: Any) -> None:
    raise TimeoutError(f"it took more than {CHECK_S} s")


def _run(name: str, check: Any) -> dict[str, Any]:
    began = time.monotonic()
    signal.alarm(CHECK_S)
    try:
        ok, told = True, check()
    except Exception as error:
        ok, told = False, f"{type(error).__name__}: {error}"
    finally:
        signal.alarm(0)
    return {"check": name, "ok": ok, "told": told[:2000], "seconds": round(time.monotonic() - began, 1)}


if __name__ == "__main__":
    raise SystemExit(main())
