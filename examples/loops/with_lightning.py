"""Lightning, with torchmetrics: two ranks train the very model that one does.

``Trainer()`` finds the ranks in the environment; leave ``devices`` and ``num_nodes`` out. Its loaders are given all
rows, ``session.torch_dataset()``: Lightning puts a ``DistributedSampler`` into them where there is none. Here it is
made by hand, so that a rank that is alone has the same order. Checkpoints go below ``session.checkpoint_location``.
Run it: ``python examples/loops/with_lightning.py``.
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
    import lightning
    import torch
    from lightning.pytorch.callbacks import ModelCheckpoint
    from torch.utils.data import DataLoader, DistributedSampler
    from torchmetrics.classification import BinaryAccuracy

    class Classifier(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.Sequential(torch.nn.Linear(FEATURES, 16), torch.nn.Linear(16, 1)).double()
            self.accuracy = BinaryAccuracy()

        def training_step(self, batch: Any, _: int) -> Any:
            x, y = batch
            logits = self.layers(x)[:, 0]
            self.accuracy(logits, y.int())
            self.log("accuracy", self.accuracy, on_step=False, on_epoch=True)
            return torch.nn.functional.binary_cross_entropy_with_logits(logits, y)

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters(), lr=0.01)

    lightning.seed_everything(0, verbose=False)
    model = Classifier()
    trainer = lightning.Trainer(
        max_epochs=EPOCHS,
        callbacks=[ModelCheckpoint(dirpath=f"{session.checkpoint_location}/lightning", filename="last")],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    dataset = session.torch_dataset()
    loader = DataLoader(dataset, batch_size=GLOBAL_BATCH // session.size, sampler=DistributedSampler(dataset, seed=7))
    trainer.fit(model, loader)
    weights = torch.cat([weight.detach().flatten() for weight in model.parameters()])
    accuracy = float(trainer.callback_metrics["accuracy"])
    return {"weights": weights.numpy(), "accuracy": accuracy, "ranks": trainer.world_size}


def rows() -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(0).normal(size=(ROWS, FEATURES))
    return x, (x.sum(axis=1) > 0).astype("float64")


def main(client: Client, folder: str) -> list[str]:
    """Train with one rank and with two; returns what to print."""
    alone, together = (
        dt.train(
            worker,
            roles={"worker": size},
            data=rows(),
            framework="torch",
            checkpoint=f"{folder}/lightning-{size}",
            client=client,
        ).results["worker"]
        for size in (1, 2)
    )
    apart = max(float(np.abs(found["weights"] - alone[0]["weights"]).max()) for found in together)
    assert [found["ranks"] for found in together] == [2, 2]
    assert apart < 1e-12, apart
    assert abs(together[0]["accuracy"] - alone[0]["accuracy"]) < 1e-6
    return [f"accuracy {alone[0]['accuracy']:.3f}; furthest weight of two ranks from those of one: {apart:.0e}"]


if __name__ == "__main__":
    with local_client(2) as one, tempfile.TemporaryDirectory() as place:
        print(*main(one, place), sep="\n")
