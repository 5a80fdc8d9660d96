"""K-means over the partitions of a Dask array: Lloyd's algorithm by hand, equal to scikit-learn's.

What to look at:

* ``session.partitions()`` are views of the rows where Dask has put them. Nothing is copied; the passes of all
  iterations go over the same memory.
* An iteration is one ``session.all_reduce``: sums and counts of the rows of each centre. No task of Dask's scheduler,
  and no message to the client.
* All ranks have the same bits, so all of them stop in the same iteration without talking about it.
* The ranks tell each other where they are by ``session.all_gather``, and the first one's centres come to all by
  ``session.broadcast``: neither needs the client.

Run it::

    python examples/kmeans.py             # a million rows, half a minute on two cores
    python examples/kmeans.py --small     # fewer rows, as in CI
"""

from __future__ import annotations

import argparse
import socket
from typing import Any

import dask.array as da
import numpy as np
from sklearn.cluster import KMeans

import dask_train as dt
from dask_train.cluster.local import local_client

NUM_CENTRES, NUM_FEATURES, TOLERANCE, MAX_ITERATIONS = 8, 10, 1e-4, 300


def worker(session: Any) -> dict[str, Any]:
    """Find the centres; every rank returns the same ones."""
    parts = list(session.partitions())
    where = np.array([f"{socket.gethostname()}, process of {session.role} {session.rank}"], "U200")
    peers = session.all_gather(where).tolist()
    # The first partition's first rows; a rank without partitions knows how many columns there are from the schema.
    (columns,) = session.schema.columns[0].row_shape
    begin = parts[0][:NUM_CENTRES] if session.world_rank == 0 else np.empty((NUM_CENTRES, columns))
    centres = session.broadcast(np.ascontiguousarray(begin), root=0)

    rows, total, squares = session.all_reduce(
        [sum(map(len, parts)), sum_over(parts, np.sum, columns), sum_over(parts, squared, columns)]
    )
    tolerance = TOLERANCE * float(np.mean(squares / rows - (total / rows) ** 2))  # as scikit-learn has it
    iterations, shift = 0, np.inf
    while shift > tolerance and iterations < MAX_ITERATIONS:
        iterations += 1
        sums, counts, inertia = np.zeros_like(centres), np.zeros(NUM_CENTRES), 0.0
        for x in parts:
            distances = (centres**2).sum(axis=1) - 2 * x @ centres.T
            nearest = distances.argmin(axis=1)
            np.add.at(sums, nearest, x)
            counts += np.bincount(nearest, minlength=NUM_CENTRES)
            inertia += float(distances.min(axis=1).sum() + (x**2).sum())
        sums, counts, inertia = session.all_reduce([sums, counts, inertia])
        moved = sums / counts[:, None]
        shift = float(((moved - centres) ** 2).sum())
        centres = moved
        session.report(inertia=inertia)
    return {"centres": centres, "iterations": iterations, "inertia": inertia, "peers": peers}


def squared(x: np.ndarray, axis: int) -> np.ndarray:
    total: np.ndarray = (x**2).sum(axis=axis)
    return total


def sum_over(parts: list[np.ndarray], of: Any, columns: int) -> Any:
    return sum((of(x, axis=0) for x in parts), np.zeros(columns))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="fewer rows")
    rows = 20_000 if parser.parse_args().small else 1_000_000
    middles = np.random.default_rng(0).normal(scale=6, size=(NUM_CENTRES, NUM_FEATURES))
    random = da.random.default_rng(1)
    which = random.integers(0, NUM_CENTRES, size=rows, chunks=rows // 7)
    noise = random.normal(size=(rows, NUM_FEATURES), chunks=(rows // 7, -1))
    X = which.map_blocks(lambda block: middles[block], dtype=float, new_axis=1, chunks=(which.chunks[0], NUM_FEATURES))
    with local_client(2):
        X = dt.persist(X + noise)
        result = dt.train(worker, roles={"worker": 2}, data=X)
        x = X.compute()
    found = result.results["worker"][0]
    print(f"{rows:,} rows, {found['iterations']} iterations, inertia {found['inertia']:.1f}")
    print(f"ranks: {'; '.join(found['peers'])}")
    print(f"rows read: {result.ledger.read:,}, and dropped: {result.ledger.dropped}")
    plain = KMeans(NUM_CENTRES, init=x[:NUM_CENTRES], n_init=1, tol=TOLERANCE, algorithm="lloyd").fit(x)
    difference = np.abs(plain.cluster_centers_ - found["centres"]).max()
    print(f"furthest centre from scikit-learn's, of {plain.n_iter_} iterations: {difference:.1e}")
    assert difference < 1e-8


if __name__ == "__main__":
    main()
