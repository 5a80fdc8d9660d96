"""Each framework can be forked after its import: its forks compute, with threads and numbers as new processes have."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from dask_train.frameworks.keras.environment import keras_imports
from dask_train.frameworks.torch.environment import TORCH_IMPORTS
from dask_train.process.launch import Launch, Preload
from dask_train.process.templates import ProcessStart, Templates

COMMON = """
import json, os, sys
def share():  # the one of BLAS, which numpy brings
    import numpy, threadpoolctl
    return sorted({pool["num_threads"] for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas"})
names = ("tensorflow", "keras", "torch", "sklearn", "matplotlib.pyplot")
imported_before = {name: name in sys.modules for name in names}
by_optimizer = []  # modules that the first optimizer has imported
"""
TENSORFLOW = """
from tensorflow.python.client import device_lib
import numpy as np, tensorflow as tf, keras
drawn = [float(tf.random.uniform([])), float(keras.random.uniform([])), float(np.random.rand())]
drawn += [device_lib.list_local_devices()[0].incarnation]
server = tf.distribute.Server.create_local_server()
keras.utils.set_random_seed(1)
model = keras.Sequential([keras.layers.Dense(8, "relu"), keras.layers.Dense(1)])
model.compile("adam", "mse")
x = np.arange(320, dtype="float32").reshape(-1, 4) / 320
fitted = model.fit(x, x.sum(1), epochs=2, shuffle=False, verbose=0).history["loss"]
"""
TORCH = """
import numpy as np, torch, torch.distributed as dist
drawn = [float(torch.rand(())), float(np.random.rand())]
torch.set_num_threads(2)
modules = set(sys.modules)
torch.optim.AdamW(torch.nn.Linear(4, 1).parameters()).step()
by_optimizer = sorted(set(sys.modules) - modules)
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
torch.manual_seed(1)
layer = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
loss = (layer(torch.ones(64, 4) @ torch.ones(4, 4)) ** 2).mean()
loss.backward()
dist.all_reduce(torch.ones(3))
fitted = [float(loss), *layer.module.weight.grad.flatten().tolist()]
dist.destroy_process_group()
"""
TELL = """
told = {"drawn": drawn, "fitted": fitted, "share": share(), "imported_before": imported_before,
        "by_optimizer": by_optimizer}
os.write(int(sys.argv[-1]), json.dumps(told).encode())
os._exit(0)
"""


@pytest.mark.parametrize(
    ("modules", "code", "environment"),
    [
        (keras_imports("tensorflow"), TENSORFLOW, {"KERAS_BACKEND": "tensorflow"}),
        (TORCH_IMPORTS, TORCH, {}),
    ],
    ids=["tensorflow", "torch"],
)
def test_forks_of_a_framework(
    modules: tuple[str, ...],
    code: str,
    environment: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    no_leaks: Any,
) -> None:
    (tmp_path / "using_it.py").write_text(COMMON + code + TELL)
    monkeypatch.syspath_prepend(str(tmp_path))
    preload = Preload(modules=modules, environment=environment, idle_s=60.0)

    async def one(templates: Templates) -> dict[str, Any]:
        ours, theirs = socket.socketpair()
        output = os.memfd_create("output")
        with ours, theirs:
            launch = Launch(
                module="using_it",
                arguments=(),
                descriptors=(theirs.fileno(),),
                output=output,
                num_threads=2,
                environment=environment,
                preload=preload,
            )
            process = await templates.start(ProcessStart(launch))
            status = await asyncio.to_thread(process.wait, 120)
            assert status == 0, os.pread(output, 1 << 16, 0).decode()
            os.close(output)
            return dict(json.loads(ours.recv(1 << 16)))

    async def test() -> None:
        templates = Templates()
        try:
            first, second = await asyncio.gather(one(templates), one(templates))
        finally:
            templates.close()
        assert not caplog.records, "a template was used"
        for told in (first, second):
            assert all(told["imported_before"][module] for module in modules[:1])
            assert not any(told["imported_before"][module] for module in ("sklearn", "matplotlib.pyplot"))
            assert told["share"] == [2]
            assert len(told["by_optimizer"]) < 5, "its template has imported what takes long"
        assert not set(first["drawn"]) & set(second["drawn"]), "no number comes twice"
        assert first["fitted"] == pytest.approx(second["fitted"], rel=1e-6)

    with no_leaks():
        asyncio.run(test())
