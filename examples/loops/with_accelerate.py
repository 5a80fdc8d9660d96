"""Hugging Face accelerate, its loop as the documentation has it: two ranks train the very model that one does.

``Accelerator()`` finds the ranks in the environment, and ``prepare`` shares the batches of the loader out among them.
Give it all rows: ``session.torch_dataset()``. Run it: ``python examples/loops/with_accelerate.py``.
"""

from __future__ import annotations

import tempfile
from typing import Any

import numpy as np
from distributed import Client

import dask_train as dt
from dask_train.cluster.local import local_client

ROWS, FEATURES, GLOBAL_BATCH, EPOCHS = 400, 8, 40, 3


def worker(session: dt.Session) -> dict[str, Any]:
    import torch
    from accelerate import Accelerator
    from accelerate.utils import DataLoaderConfiguration, set_seed
    from torch.utils.data import DataLoader

    set_seed(0)
    accelerator = Accelerator(dataloader_config=DataLoaderConfiguration(use_seedable_sampler=True))
    model = torch.nn.Sequential(torch.nn.Linear(FEATURES, 16), torch.nn.Linear(16, 1)).double()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    loader = DataLoader(session.torch_dataset(), batch_size=GLOBAL_BATCH // accelerator.num_processes, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    num_rows = 0
    for _ in range(EPOCHS):
        for x, y in loader:
            optimizer.zero_grad()
            accelerator.backward(torch.nn.functional.mse_loss(model(x)[:, 0], y))
            optimizer.step()
            num_rows += len(x)
    accelerator.save_state(f"{session.checkpoint_location}/accelerate")
    weights = torch.cat([weight.detach().flatten() for weight in accelerator.unwrap_model(model).parameters()])
    return {"weights": weights.numpy(), "rows": num_rows, "ranks": accelerator.num_processes}


def rows() -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(0).normal(size=(ROWS, FEATURES))
    return x, np.sin(x.sum(axis=1))


def main(client: Client, folder: str) -> list[str]:
    """Train with one rank and with two; returns what to print."""
    alone, together = (
        dt.train(
            worker,
            roles={"worker": size},
            data=rows(),
            framework="torch",
            checkpoint=f"{folder}/accelerate-{size}",
            client=client,
        ).results["worker"]
        for size in (1, 2)
    )
    apart = max(float(np.abs(found["weights"] - alone[0]["weights"]).max()) for found in together)
    assert [found["ranks"] for found in together] == [2, 2]
    assert sum(found["rows"] for found in together) == alone[0]["rows"] == EPOCHS * ROWS
    assert apart < 1e-12, apart
    return [f"furthest weight of two ranks from those of one: {apart:.0e}"]


if __name__ == "__main__":
    with local_client(2) as one, tempfile.TemporaryDirectory() as place:
        print(*main(one, place), sep="\n")
