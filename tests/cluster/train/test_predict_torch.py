"""torch modules predict as by themselves; in a program of its own, since TensorFlow and torch can't share a process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

PROGRAM = """
import dask, dask.array as da, dask.dataframe as dd, numpy as np, pandas as pd, torch
from distributed import Client, LocalCluster
import dask_train as dt

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
    try:
        dt.evaluate(net, x, shift)
    except TypeError as error:
        print(error)
"""


def test_a_module_on_a_cluster_and_without_one(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    ended = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, timeout=150, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert "a torch module, which has no loss and no metrics of its own" in ended.stdout
