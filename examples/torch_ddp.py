"""PyTorch's DistributedDataParallel on MNIST that Dask has prepared: two workers train the very model that one does.

The same function trains twice, first as one worker, then as several, on the same global batches. Losses and weights
agree but for the order in which floats are added. What to look at:

* ``session.batches`` gives each rank its share of every global batch, with nothing padded, repeated or left out. 125
  rows are 62 and 63 for two ranks. With ``--small`` the last batch of an epoch is one row, and one rank gets none.
* DDP takes the mean of the ranks' gradients. Each rank's loss is therefore the sum over its rows, times the number of
  ranks, over ``session.global_rows``: the mean of those is the mean over all rows of the global batch, whatever the
  shares are. Even an empty one counts right.
* ``--kill``: one worker's process is killed after a quarter of the steps. A rank can't join a process group that goes
  on, so all start again (``recovery="gang"``) from the checkpoint that rank 0 writes now and then; the batches before
  it are passed over. The result is the same again.

Run it::

    python examples/torch_ddp.py                       # half a minute on two cores
    python examples/torch_ddp.py --small --kill        # fewer rows, and a worker dies
    python examples/torch_ddp.py --workers 4

The model is in float64, so that the comparison shows more than rounding. Checkpoints lie in a temporary folder here. On
several hosts, name one that all of them share: the next rank 0 may run on another one.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import dask.array as da
import numpy as np

import dask_train as dt
from dask_train.cluster.local import local_client
from dask_train.datasets import load_mnist

PIXELS, HIDDEN, CLASSES = 784, 64, 10
ROWS_PER_BLOCK, BATCH_SIZE, LEARNING_RATE = 5_000, 125, 0.1
STEPS_PER_CHECKPOINT = 20
ALLOWED = 1e-9  # float64 has 16 digits; thousands of steps may cost a few of them
BEGUN = time.perf_counter()


class Job(NamedTuple):
    """What is trained, and where its checkpoint lies."""

    num_rows: int
    epochs: int
    folder: Path

    @property
    def steps_per_epoch(self) -> int:
        return -(-self.num_rows // BATCH_SIZE)

    @property
    def num_steps(self) -> int:
        return self.epochs * self.steps_per_epoch


# The client: this process


def main() -> int:
    args = parse_args()
    with local_client(args.workers) as client, tempfile.TemporaryDirectory() as folder:
        data = client.persist(mnist(args.rows))
        say(f"Dask prepares {args.rows:,} rows in {data[0].numblocks[0]} blocks")
        results = []
        for num_workers in (1, args.workers):
            job = Job(args.rows, args.epochs, Path(folder, str(len(results))))
            job.folder.mkdir()
            say(f"{num_workers} worker{'s' * (num_workers > 1)}, {job.num_steps} steps of {BATCH_SIZE} rows")
            results.append(train(job, num_workers, data, kill=args.kill and len(results) == 1))
    alone, together = results
    accuracy = together["accuracy"]
    say(f"Test accuracy {accuracy:.4f}, and {alone['accuracy']:.4f} with one worker")
    losses = apart(together["losses"], alone["losses"])
    weights = max(apart(together["weights"][name], weight) for name, weight in alone["weights"].items())
    print(f"furthest loss from those of one worker: {losses:.0e}")
    print(f"furthest weight from those of one worker: {weights:.0e}")
    return 0 if max(losses, weights) <= ALLOWED and accuracy > 0.9 else 1


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="20,001 rows instead of 60,000, as in CI")
    parser.add_argument("--workers", type=int, default=2, help="how many train together (%(default)s)")
    parser.add_argument("--epochs", type=int, default=2, help="(%(default)s)")
    parser.add_argument("--kill", action="store_true", help="kill a worker once")
    args = parser.parse_args()
    args.rows = 20_001 if args.small else 60_000
    return args


def say(what: str) -> None:
    print(f"{time.perf_counter() - BEGUN:6.1f} s  {what}", flush=True)


def train(job: Job, num_workers: int, data: Any, *, kill: bool) -> dict[str, Any]:
    """What rank 0 returns; follows the run, and kills its last worker where that is asked for."""
    run = dt.train(
        partial(fit, job),
        roles={"worker": num_workers},
        data=data,
        framework="torch",
        recovery="gang",
        name=f"ddp-{num_workers}",
        wait=False,
    )
    try:
        for score in run.scores():
            if score["rank"] == 0 and score["step"] % 100 == 0:
                say(f"  step {score['step']:>4}: loss {score['loss']:.4f}")
            if kill and score["step"] >= job.num_steps // 4:
                kill = False
                victim = run.status()["roles"][-1]
                os.kill(victim["pid"], signal.SIGKILL)
                say(f"  step {score['step']:>4}: SIGKILL to process {victim['pid']}, worker {victim['rank']}")
        result = run.result()
    except KeyboardInterrupt:
        run.stop("it was interrupted")
        raise
    for attempt in result.attempts[:-1]:
        say(f"  attempt {attempt.number} ended: {attempt.reason}")
    told = result.results["worker"][0]
    assert len(told["losses"]) == job.num_steps
    if len(result.attempts) > 1:
        say(f"  all started again, from step {told['began_at']}")
    return told


def apart(values: np.ndarray, others: np.ndarray) -> float:
    """The greatest difference, relative to the greatest value."""
    return float(np.abs(values - others).max() / np.abs(others).max())


# The Dask tasks


def mnist(num_rows: int) -> tuple[da.Array, da.Array]:
    """Images as rows of float32 from 0 to 1, and labels as int64: lazy, and read where they are computed."""
    numbers = da.arange(num_rows, chunks=ROWS_PER_BLOCK)
    images = numbers.map_blocks(images_of, dtype="float32", new_axis=1, chunks=(numbers.chunks[0], (PIXELS,)))
    return images, numbers.map_blocks(labels_of, dtype="int64")


def images_of(rows: np.ndarray) -> np.ndarray:
    return load_mnist().train_images[rows].reshape(-1, PIXELS).astype("float32") / 255


def labels_of(rows: np.ndarray) -> np.ndarray:
    return load_mnist().train_labels[rows].astype("int64")


# The role: a process of its own beside each Dask worker that was chosen


def fit(job: Job, session: dt.Session) -> dict[str, Any] | None:
    """Train, from the last checkpoint where there is one; rank 0 tells the weights and the losses."""
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if torch.cuda.is_available() else torch.device("cpu")
    model = build().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=0.9)
    losses = load(job.folder, model, optimizer, device)
    began_at = len(losses)
    ddp = DistributedDataParallel(model)  # waits for all ranks, so all have loaded before anyone saves again
    batches = session.batches(epochs=job.epochs, batch_size=BATCH_SIZE, shuffle=True, seed=0)
    for step, (x, y) in enumerate(batches, start=1):
        if step <= began_at:
            continue
        logits = ddp(x.to(device, torch.float64))
        share = torch.nn.functional.cross_entropy(logits, y.to(device), reduction="sum") / session.global_rows
        optimizer.zero_grad()
        (share * session.size).backward()  # DDP divides the sum of the ranks' gradients by their number
        optimizer.step()
        loss = share.detach()
        dist.all_reduce(loss)
        losses.append(loss.item())
        session.report(step=step, loss=losses[-1])
        if session.rank == 0 and step % STEPS_PER_CHECKPOINT == 0:
            save(job.folder, model, optimizer, losses)
    if session.rank:
        return None
    weights = {name: weight.cpu().numpy() for name, weight in model.state_dict().items()}
    accuracy = test_accuracy(model, device)
    return {"weights": weights, "losses": np.array(losses), "accuracy": accuracy, "began_at": began_at}


def build() -> Any:
    """The model; every process makes the same one."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    layers = [nn.Linear(PIXELS, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, CLASSES)]
    return nn.Sequential(*layers).double()


def save(folder: Path, model: Any, optimizer: Any, losses: list[float]) -> None:
    """Write a checkpoint that is there as a whole or not at all."""
    import torch

    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "losses": losses}, folder / "new")
    os.replace(folder / "new", folder / "checkpoint")


def load(folder: Path, model: Any, optimizer: Any, device: Any) -> list[float]:
    """Restore the last checkpoint, and tell the losses until there, one a step; none where there is none."""
    import torch

    if not (folder / "checkpoint").exists():
        return []
    saved = torch.load(folder / "checkpoint", map_location=device)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    return list(saved["losses"])


def test_accuracy(model: Any, device: Any) -> float:
    """The part of the 10,000 test rows that are told right."""
    import torch

    rows = load_mnist()
    images = torch.from_numpy(rows.test_images.reshape(-1, PIXELS) / 255.0).to(device)
    with torch.no_grad():
        told = model(images).argmax(dim=1).cpu().numpy()
    return float((told == rows.test_labels).mean())


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("Interrupted: the run and its cluster are closed.")
