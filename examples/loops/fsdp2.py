"""FSDP2 on CPUs, with torch.distributed.checkpoint: sharded weights that another number of ranks goes on with.

Two ranks train, each with half of every weight, and write what they have; one rank reads all of it and trains on.
It ends with the weights of one rank that was never interrupted. Run it: ``python examples/loops/fsdp2.py``.
"""

from __future__ import annotations

import tempfile
from typing import Any

import numpy as np
from distributed import Client

import dask_train as dt
from dask_train.cluster.local import local_client

ROWS, FEATURES, GLOBAL_BATCH = 230, 8, 45  # shares of 23 and 22 rows, and a last batch of 5


def worker(epochs: range, session: dt.Session) -> np.ndarray:
    """Train these epochs, the first with new weights and later ones from the checkpoint; returns all weights."""
    import torch
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import (
        StateDictOptions,
        get_model_state_dict,
        get_state_dict,
        set_state_dict,
    )
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(FEATURES, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1)).double()
    mesh = init_device_mesh("cpu", (session.size,))
    for layer in (model[0], model[2], model):
        fully_shard(layer, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    folder = f"{session.checkpoint_location}/fsdp2"
    if epochs.start:
        weights, moments = get_state_dict(model, optimizer)
        dcp.load({"model": weights, "optimizer": moments}, checkpoint_id=folder)
        set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=moments)
    for x, y in session.batches(epochs=epochs.stop, batch_size=GLOBAL_BATCH, seed=3, start=(epochs.start, 0)):
        # FSDP takes the mean over the ranks: this is the mean over all rows, whatever the shares are.
        loss = ((model(x)[:, 0] - y) ** 2).sum() * session.size / session.global_rows
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    weights, moments = get_state_dict(model, optimizer)
    dcp.save({"model": weights, "optimizer": moments}, checkpoint_id=folder)
    whole = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
    return np.concatenate([weight.numpy().ravel() for weight in whole.values()]) if whole else np.empty(0)


def rows() -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(0).normal(size=(ROWS, FEATURES))
    return x, np.sin(x.sum(axis=1))


def train(client: Client, folder: str, size: int, epochs: range) -> np.ndarray:
    run = dt.train(
        lambda session: worker(epochs, session),
        roles={"worker": size},
        data=rows(),
        framework="torch",
        checkpoint=folder,
        client=client,
    )
    found: Any = run.results["worker"][0]
    return np.asarray(found)


def main(client: Client, folder: str) -> list[str]:
    """Train with two ranks and go on with one, and with one rank at once; returns what to print."""
    train(client, f"{folder}/interrupted", 2, range(2))
    found = train(client, f"{folder}/interrupted", 1, range(2, 4))
    expected = train(client, f"{folder}/at-once", 1, range(4))
    apart = float(np.abs(found - expected).max())
    assert apart < 1e-12, apart
    return [f"furthest weight of two ranks and then one from those of one: {apart:.0e}"]


if __name__ == "__main__":
    with local_client(2) as one, tempfile.TemporaryDirectory() as place:
        print(*main(one, place), sep="\n")
