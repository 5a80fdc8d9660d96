"""Dask prepares MNIST many times over, and a TensorFlow network in the same workers trains on it.

The program of Matthew Rocklin's "Experiment with Dask and TensorFlow" (2017) on today's versions: parameter server,
workers and scorer in the Dask workers, batches fed from Dask into the workers' queues again and again, until the
scorer's cross-entropy on rows that nobody trains on is good enough.

    python examples/blog_mnist.py                     # asynchronous, 20 copies: 1.1 million pictures
    python examples/blog_mnist.py --sync              # a step applies the mean of all workers' gradients
    python examples/blog_mnist.py --target 0.075      # better, with more passes over the data
    python examples/blog_mnist.py --target 0.001 --max-seconds 20; echo $?    # out of reach: 1
    python examples/blog_mnist.py --scheduler tcp://10.0.0.1:8786

The roles and the graph are in ``dask_train.demo``; ``dask train demo`` runs the same with a live line and a report.
"""

from __future__ import annotations

import argparse
import sys
import time

from distributed import Client

import dask_train as dt
from dask_train.demo.main_job import own_cluster
from dask_train.demo.pictures import save_pictures
from dask_train.demo.pipeline import DemoOutcome, DemoSettings, PreparedData, pictures, prepare, train_until_good_enough
from dask_train.demo.roles import DemoBoards


def show_preparing(prepared: PreparedData) -> None:
    print(f"  {prepared.rows_ready():>9,} of {prepared.num_rows:,} rows prepared")


class ShowTraining:
    """Prints each new score once."""

    def __init__(self) -> None:
        self.seen = 0

    def __call__(self, boards: DemoBoards) -> None:
        if boards.scores.count > self.seen:
            self.seen = boards.scores.count
            score = boards.scores[-1]
            print(f"  step {score['step']:>6,}: cross-entropy {score['loss']:.4f}, accuracy {score['accuracy']:.4f}")


def run(client: Client, settings: DemoSettings, pictures_path: str) -> DemoOutcome:
    """The blog's steps, one by one."""
    begun = time.monotonic()
    prepared = prepare(client, settings, show_preparing)  # dask.array: lazy, then in the cluster's memory
    print(f"prepared {prepared.images} in {time.monotonic() - begun:.1f} s")
    save_pictures(pictures(prepared), pictures_path)
    print(f"one image, mean and variance: {pictures_path}")

    begun = time.monotonic()
    with dt.start_tensorflow(client, ps=settings.ps, worker=settings.workers, scorer=1, queue_size=2) as net:
        tf_spec, dask_spec = net
        print(
            f"raised in {time.monotonic() - begun:.1f} s\n  TensorFlow: {tf_spec.as_dict()}\n  Dask:       {dask_spec}"
        )
        try:
            outcome = train_until_good_enough(net, prepared, settings, ShowTraining())
        finally:
            prepared.release()  # what nobody holds any more need not be moved when the network closes
    print(f"trained on {outcome.rows_trained:,} rows in {outcome.seconds:.1f} s, {outcome.passes} passes begun")
    return outcome


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scheduler", help="a Dask cluster to run on, instead of a local one")
    parser.add_argument("--copies", type=int, default=20, help="how often MNIST is repeated")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--target", type=float, help="mean validation cross-entropy to reach (0.08)")
    parser.add_argument("--max-seconds", type=float, default=120.0, help="end training after this, with exit code 1")
    parser.add_argument("--sync", action="store_true", help="synchronous training (SyncReplicas)")
    parser.add_argument("--pictures", default="blog_mnist_pictures.png", help="where the three pictures go")
    parser.add_argument("--small", action="store_true", help="a minute's worth: 2 copies, 2 workers, target 0.2")
    options = parser.parse_args()
    target = options.target if options.target is not None else 0.2 if options.small else 0.08
    settings = DemoSettings(
        copies=2 if options.small else options.copies,
        workers=2 if options.small else options.workers,
        target=target,
        max_seconds=options.max_seconds,
        sync=options.sync,
    )
    with Client(options.scheduler) if options.scheduler else own_cluster(settings) as client:
        outcome = run(client, settings, options.pictures)
    if not outcome.good_enough:
        print(f"the target of {settings.target:g} was not reached within {settings.max_seconds:g} s", file=sys.stderr)
        return 1
    print(f"test accuracy: {100 * outcome.test['test_accuracy']:.1f}%")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("Interrupted; the network and the cluster have ended.")
