"""Principal components of a Dask array by randomised SVD, written by hand, equal to scikit-learn's.

The algorithm of Halko, Martinsson and Tropp, "Finding structure with randomness" (2011), over partitions that are never
brought together: what goes between the ranks are matrices of as many rows as there are columns, and, at the end, the
triangles of a QR decomposition of tall and skinny pieces (Demmel and others, 2012).

What to look at:

* ``session.partitions()`` are views of the rows where Dask has put them; each of the passes reads the same memory.
* A pass is one ``session.all_reduce`` of ``columns x components`` numbers; the triangles come together by one
  ``session.all_gather``. All ranks then have the same bits and decompose the same small matrix.
* Ranks without a partition take part with zeros, and an empty triangle.

Run it::

    python examples/pca.py             # 200,000 x 200, a quarter of a minute on two cores
    python examples/pca.py --small     # fewer rows, as in CI
"""

from __future__ import annotations

import argparse
from typing import Any

import dask.array as da
import numpy as np
from sklearn.decomposition import PCA

import dask_train as dt
from dask_train.cluster.local import local_client

NUM_COMPONENTS, OVERSAMPLES, NUM_POWERS = 5, 10, 8


def worker(session: Any) -> dict[str, np.ndarray]:
    """Find components and variances; every rank returns the same ones."""
    parts = list(session.partitions())
    (columns,) = session.schema.columns[0].row_shape
    rows, total = session.all_reduce([sum(map(len, parts)), sum((x.sum(axis=0) for x in parts), np.zeros(columns))])
    mean = total / rows

    # The same seed on all ranks: the same start.
    basis = np.linalg.qr(np.random.default_rng(0).normal(size=(columns, NUM_COMPONENTS + OVERSAMPLES)))[0]
    for _ in range(NUM_POWERS):
        image = np.zeros_like(basis)
        for x in parts:
            image += x.T @ (x @ basis - mean @ basis)
        image = session.all_reduce(image)
        image -= np.outer(mean, (total - rows * mean) @ basis)
        basis = np.linalg.qr(image)[0]

    mine = [np.linalg.qr(x @ basis - mean @ basis, mode="r") for x in parts]
    triangles = session.all_gather(np.concatenate([np.empty((0, basis.shape[1])), *mine]))
    _, values, rotation = np.linalg.svd(np.linalg.qr(triangles, mode="r"))
    components = (rotation @ basis.T)[:NUM_COMPONENTS]
    largest = np.abs(components).argmax(axis=1)  # their signs are anybody's; these are scikit-learn's
    components *= np.sign(components[np.arange(NUM_COMPONENTS), largest])[:, None]
    return {"mean": mean, "components": components, "variance": values[:NUM_COMPONENTS] ** 2 / (rows - 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="fewer rows")
    rows, columns = (5_000, 40) if parser.parse_args().small else (200_000, 200)
    mixing = np.random.default_rng(0).normal(size=(columns, columns)) * 0.6 ** np.arange(columns)[:, None]
    noise = da.random.default_rng(1).normal(size=(rows, columns), chunks=(rows // 6 + 1, -1))
    with local_client(2):
        X = dt.persist(noise @ mixing + np.arange(columns))
        result = dt.train(worker, roles={"worker": 2}, data=X)
        x = X.compute()
    found = result.results["worker"][0]
    print(f"{rows:,} x {columns}: variances {', '.join(f'{value:.3f}' for value in found['variance'])}")
    plain = PCA(NUM_COMPONENTS, svd_solver="full").fit(x)
    difference = np.abs(plain.components_ - found["components"]).max()
    of_variance = np.abs(plain.explained_variance_ / found["variance"] - 1).max()
    print(f"furthest component from scikit-learn's exact ones: {difference:.1e}, variance: {of_variance:.1e}")
    assert max(difference, of_variance) < 1e-8


if __name__ == "__main__":
    main()
