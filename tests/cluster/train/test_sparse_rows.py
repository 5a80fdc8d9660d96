"""Sparse rows in shared memory: published, trained on as dense batches, and read as CSR matrices."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest
import scipy.sparse
import torch
from xgboost import XGBClassifier

import dask_train as dt
from dask_train import linear_model

RANDOM = np.random.default_rng(0)
DENSE = np.where(RANDOM.random((300, 12)) < 0.3, RANDOM.normal(size=(300, 12)), 0.0)
LABELS = (DENSE.sum(axis=1) > 0).astype(float)
CHUNKS = (100, 0, 50, 150)


def on_dask(array):
    return da.from_array(array, chunks=(CHUNKS, *array.shape[1:]))


@pytest.fixture(autouse=True)
def _published(client):
    dt.publish_dataset(on_dask(DENSE).map_blocks(scipy.sparse.csr_array), on_dask(LABELS), name="sparse")
    yield
    dt.unpublish_dataset("sparse")


def rows_of(session):
    """This rank's partitions, and its rows of two epochs of batches."""
    parts = [(type(x).__name__, x.toarray(), y) for x, y in session.partitions()]
    return parts, [(x.copy(), y.copy()) for x, y in session.batches(epochs=2, batch_size=32)]


def test_roles_have_csr_partitions_and_dense_batches():
    published = dt.get_dataset("sparse")
    assert "x sparse float64 (12,), y float64" in repr(published)
    np.testing.assert_array_equal(published.to_numpy()[0], DENSE)
    assert type(published.to_dask()[0].blocks[2].compute()) is scipy.sparse.csr_array
    matrix = scipy.sparse.csr_matrix(DENSE)
    for data, streaming in (
        (published, False),
        ((matrix, LABELS), False),
        (published.to_dask(), False),
        ((on_dask(DENSE).map_blocks(scipy.sparse.csc_array), on_dask(LABELS)), 2),
    ):
        results = dt.train(rows_of, roles={"worker": 2}, data=data, streaming=streaming).results["worker"]
        parts = [part for each, _ in results for part in each]
        assert {kind for kind, _, _ in parts} == {"csr_array"}
        found = {tuple(row): label for _, x, y in parts for row, label in zip(x, y, strict=True)}
        assert found == {tuple(row): label for row, label in zip(DENSE, LABELS, strict=True)}
        batches = [batch for _, each in results for batch in each]
        assert sum(len(x) for x, _ in batches) == 2 * len(DENSE)
        assert all(found[tuple(row)] == label for x, y in batches for row, label in zip(x, y, strict=True))


def fitted(*data):
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(12, 1), torch.nn.Flatten(0)).double()
    sgd = {"loss": torch.nn.MSELoss(), "optimizer": lambda params: torch.optim.SGD(params, 0.1), "verbose": 0}
    dt.fit(module, *data, **sgd, epochs=2, batch_size=32, workers=2)
    return module[0].weight.detach().numpy().tobytes()


def test_modules_learn_the_bits_of_dense_rows_and_trees_refuse_them():
    published = dt.get_dataset("sparse")
    dense = fitted(on_dask(DENSE), on_dask(LABELS))
    assert fitted(published) == dense
    assert fitted(on_dask(DENSE).map_blocks(scipy.sparse.csr_array), on_dask(LABELS)) == dense
    # XGBoost would take what is not there for missing, not for 0.
    with pytest.raises(TypeError, match=r"data has sparse rows in shared memory, .* Publish them dense"):
        dt.fit(XGBClassifier(), published)


def test_linear_models_count_rows_and_take_published_ones():
    model = linear_model.LogisticRegression()
    result = dt.fit(model, dt.get_dataset("sparse"), workers=2)
    assert (result.ledger.trained, result.ledger.dropped) == (len(DENSE), 0)
    wanted = linear_model.LogisticRegression().fit(DENSE, LABELS)
    np.testing.assert_allclose(model.coef_, wanted.coef_, rtol=1e-12)
