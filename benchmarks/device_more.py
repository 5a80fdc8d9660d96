"""What ``device.sh`` does in the time that is left: JAX's memory on a shared device, and speed of predictions."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch
from dask import array as da
from device_figures import Figures, InBf16, convolutions
from torch import nn

import dask_train as dt


class Checks:
    """The checks, in the order in which they run."""

    def __init__(self, client: Any, *, rehearses: bool, broken: bool) -> None:  # noqa: ARG002 - as of all parts
        self.client, self.rehearses = client, rehearses
        self.device = "cpu" if rehearses else "cuda"

    def predictions(self) -> Figures:
        rows, side = (512, 16) if self.rehearses else (32_768, 64)
        x = np.random.default_rng(0).normal(size=(rows, 3, side, side)).astype("f4")
        y = np.random.default_rng(1).integers(0, 10, rows)
        module, loss = InBf16(convolutions(16 if self.rehearses else 128)).eval(), nn.CrossEntropyLoss()
        chunks = (rows // 8, 3, side, side)
        many, targets = da.from_array(x, chunks=chunks).persist(), da.from_array(y, chunks=rows // 8).persist()
        first = dt.predict(module, many[:64], batch_size=64).compute()  # starts the model's process
        dt.evaluate(module, many[:64], targets[:64], loss=loss, batch_size=64)
        began = time.perf_counter()
        found = dt.predict(module, many, batch_size=256).compute()
        between = time.perf_counter()
        dt.evaluate(module, many, targets, loss=loss, batch_size=256)
        ended = time.perf_counter()
        module = module.to(self.device)
        expected = self._by_hand(module, x[:512])
        start = time.perf_counter()
        expected = self._by_hand(module, x)
        by_hand_s = time.perf_counter() - start
        difference = float(np.abs(found - expected).max())
        assert difference < 0.05, f"predictions differ by {difference}"  # bfloat16 has three digits
        assert first.shape == (64, 10), first.shape
        return {
            "predict_rows_s": round(rows / (between - began)),
            "evaluate_rows_s": round(rows / (ended - between)),
            "by_hand_rows_s": round(rows / by_hand_s),
            "largest_difference": difference,
        }

    def memory_of_jax_on_a_shared_device(self) -> str:
        self.client.run(_share_a_device, fake=self.rehearses)
        result = dt.train(_memory_of_jax, roles={"worker": 2}, gpus="auto")
        found = result.results["worker"]
        assert all(told["fraction"] == "0.375" for told in found), found
        assert any("share 1 GPU" in notice for notice in result.notices), result.notices
        return f"{found}; notices {result.notices}"

    def _by_hand(self, module: nn.Module, x: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            parts = [module(torch.from_numpy(x[at : at + 256]).to(self.device)) for at in range(0, len(x), 256)]
            return torch.cat(parts).float().cpu().numpy()


def _share_a_device(*, fake: bool) -> None:
    """Let the Dask worker have one device, as dask-cuda does; in a rehearsal one that isn't there."""
    import os

    from dask_train.cluster import devices
    from dask_train.process.devices import read_devices
    from dask_train.testing.nvml import FakeNvml, fake_devices

    os.environ["CUDA_VISIBLE_DEVICES"] = "0"
    os.environ.pop("XLA_PYTHON_CLIENT_PREALLOCATE", None)
    if fake:
        devices.devices_of_host = lambda: read_devices(FakeNvml(fake_devices(1)))


def _memory_of_jax(_: Any) -> dict[str, Any]:
    import os

    import jax

    told = jax.devices()[0].memory_stats() or {}
    total = float(jax.numpy.ones(1000).sum())
    return {
        "fraction": os.environ.get("XLA_PYTHON_CLIENT_MEM_FRACTION"),
        "platform": jax.devices()[0].platform,
        "limit_gb": round(told.get("bytes_limit", 0) / 1e9, 1),
        "total": total,
    }
