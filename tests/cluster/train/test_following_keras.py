"""``workers=(2, 4)`` of ``fit``: the number of workers of a Keras model follows the Dask workers that come and go."""

from __future__ import annotations

import pytest
from distributed import Client
from loading import loaded

resizing, keras_runs = loaded(__file__, "resizing"), loaded(__file__, "test_resize_keras")
WAIT_S, STEPS = resizing.WAIT_S, keras_runs.STEPS

pytestmark = [pytest.mark.backends, keras_runs.further]


def test_a_run_grows_and_shrinks_with_its_cluster_and_the_model_is_that_of_a_fixed_number(
    make_cluster, tmp_path, wait_for
):
    first, last = 2, 2 * STEPS + 1
    fixed = tmp_path / "fixed"
    fixed.mkdir()
    with Client(make_cluster(n_workers=2)) as client:
        wanted = keras_runs.fitted(client, fixed)
        run = keras_runs.fitted(client, tmp_path, (first, last), workers=(2, 4), wait=False)
        for door, workers in ((first, 3), (last, 2)):
            wait_for((tmp_path / f"waits {door}").exists, "the first worker waits", timeout_s=WAIT_S)
            client.cluster.scale(workers)
            resizing.wait_until_told(run, workers, wait_for)
            (tmp_path / f"closed {door}").unlink()
        result = run.result()
    keras_runs.check_same(result, wanted)
    assert {line.rank for line in result.ledger.lines} == {0, 1, 2}
    assert result.notices == []
