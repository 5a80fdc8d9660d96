"""torch modules predict as by themselves; in a program of its own, since TensorFlow and torch can't share a process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

PROGRAM = '''
import importlib, os, sys
from pathlib import Path
import dask, dask.array as da, dask.dataframe as dd, numpy as np, pandas as pd, torch
from distributed import Client, LocalCluster
import warnings
import dask_train as dt

warnings.simplefilter("ignore", DeprecationWarning)  # of torch.jit

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(4, 4)
        self.again = self.first
        self.norm = torch.nn.BatchNorm1d(4)
        self.drop = torch.nn.Dropout(0.5)

    def forward(self, x, shift):
        hidden = self.drop(self.norm(self.again(self.first(x)))) + shift
        return {"hidden": hidden, "half": hidden.mean(dim=1).to(torch.bfloat16)}

class Lying(torch.nn.Module):
    def forward(self, x):
        return x[:, 0] if x.any() else x[:, 0].to(torch.int8)

OWN_NET = """
import torch
from own_factor import scale

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(5))

    def forward(self, x):
        return scale(x @ self.weight)
"""

def check(net, x, shift, expected):
    lazy = dt.predict(net, {"x": da.from_array(x, chunks=(30, 2)), "shift": shift}, batch_size=7)
    assert (lazy["hidden"].dtype, lazy["half"].shape, lazy["half"].dtype) == (np.float32, (100,), np.float32)
    hidden, half = dask.compute(lazy["hidden"], lazy["half"])
    np.testing.assert_allclose(hidden, expected["hidden"], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(half, expected["half"].float(), rtol=1e-2)
    frame = dd.from_pandas(pd.DataFrame(x, columns=list("abcd")), npartitions=3)
    linear = torch.nn.Linear(2, 1)
    outcome = dt.predict(linear, frame, features=["d", "a"]).compute()
    by_hand = x[:, [3, 0]] @ linear.weight.detach().numpy()[0] + linear.bias.item()
    np.testing.assert_allclose(outcome, by_hand, rtol=1e-4, atol=1e-5)
    compiled = [torch.jit.script(linear), torch.jit.trace(linear, torch.zeros(2, 2))]
    rows = torch.export.Dim("rows")
    compiled.append(torch.export.export(linear, (torch.zeros(4, 2),), dynamic_shapes=({0: rows},)))
    pairs = da.from_array(x[:, [3, 0]].astype("f4"), chunks=(33, 2))
    for each in compiled:
        np.testing.assert_allclose(dt.predict(each, pairs, batch_size=8).compute()[:, 0], by_hand, rtol=1e-4, atol=1e-5)
    assert net.training and net.drop.training

if __name__ == "__main__":
    torch.manual_seed(0)
    net = Net()
    net.norm.running_mean[:] = 1.5
    x = np.random.default_rng(0).normal(size=(100, 4))
    shift = np.arange(100.0)[:, None]
    with torch.no_grad():
        expected = net.eval()(torch.tensor(x, dtype=torch.float32), torch.tensor(shift, dtype=torch.float32))
    net.train()
    check(net, x, shift, expected)
    with (
        LocalCluster(n_workers=2, threads_per_worker=2, host="127.0.0.1", dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster) as client,
    ):
        check(net, x, shift, expected)
        sys.dont_write_bytecode = True
        sys.path.insert(0, os.getcwd())
        ones = da.ones((40, 5), chunks=(10, 5), dtype="f4")
        for factor in (1, 10):  # the net's own module is the same
            Path("own_factor.py").write_text(f"def scale(x): return x * {factor}")
            Path("own_net.py").write_text(OWN_NET)
            importlib.invalidate_caches()
            for name in ("own_factor", "own_net"):
                sys.modules.pop(name, None)
                client.upload_file(f"{name}.py")
            assert (dt.predict(importlib.import_module("own_net").Net(), ones).compute() == 5 * factor).all()
    fixed = torch.export.export(torch.nn.Linear(2, 1), (torch.zeros(4, 2),))
    lying = Lying()
    for call in (
        lambda: dt.evaluate(net, x, shift),
        lambda: dt.predict(fixed, x[:, :2]),
        lambda: dt.predict(lying, x).compute(scheduler="threads"),
    ):
        try:
            call()
        except (TypeError, ValueError) as error:
            print(error)
'''


def test_a_module_on_a_cluster_and_without_one(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    ended = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert "takes any number of rows if it was exported with dynamic_shapes" in ended.stdout
    assert "the module made float64, and int8 was told before" in ended.stdout
    assert "evaluate needs loss= as well for a model of type Net, a torch.nn.Module" in ended.stdout
