"""DistributedDataParallel with a DistributedSampler and torchmetrics: two ranks train the very model that one does.

The loop is what one starts with ``torchrun``, as it is: no line of it knows of Dask. ``session.torch_dataset()`` has
all rows on each rank, and the sampler shares them out. Run it: ``python examples/loops/ddp.py``.
"""

from __future__ import annotations

import tempfile
from typing import Any

import numpy as np
from distributed import Client

import dask_train as dt
from dask_train.cluster.local import local_client

ROWS, FEATURES, GLOBAL_BATCH, EPOCHS = 400, 8, 40, 3


def loop(dataset: Any) -> dict[str, Any]:
    """Train on a map-style data set of ``(x, y)``, in any number of processes that are in one group."""
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader, DistributedSampler
    from torchmetrics.classification import BinaryAccuracy

    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(FEATURES, 16), torch.nn.Linear(16, 1)).double())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    accuracy = BinaryAccuracy()  # counts over all ranks when it is computed
    sampler = DistributedSampler(dataset, seed=7)
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        accuracy.reset()
        for x, y in DataLoader(dataset, batch_size=GLOBAL_BATCH // dist.get_world_size(), sampler=sampler):
            logits = model(x)[:, 0]
            loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            accuracy.update(logits.detach(), y.int())
    weights = torch.cat([weight.detach().flatten() for weight in model.parameters()])
    return {"weights": weights.numpy(), "accuracy": float(accuracy.compute()), "ranks": dist.get_world_size()}


def worker(session: dt.Session) -> dict[str, Any]:
    return loop(session.torch_dataset())


def rows() -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(0).normal(size=(ROWS, FEATURES))
    return x, (x.sum(axis=1) > 0).astype("float64")


def main(client: Client, _: str) -> list[str]:
    """Train with one rank and with two; returns what to print."""
    alone, together = (
        dt.train(worker, roles={"worker": size}, data=rows(), framework="torch", client=client).results["worker"]
        for size in (1, 2)
    )
    apart = max(float(np.abs(found["weights"] - alone[0]["weights"]).max()) for found in together)
    assert [found["ranks"] for found in together] == [2, 2]
    assert apart < 1e-12, apart
    assert together[0]["accuracy"] == together[1]["accuracy"] == alone[0]["accuracy"] > 0.8
    return [f"accuracy {alone[0]['accuracy']:.3f}; furthest weight of two ranks from those of one: {apart:.0e}"]


if __name__ == "__main__":
    with local_client(2) as one, tempfile.TemporaryDirectory() as place:
        print(*main(one, place), sep="\n")
