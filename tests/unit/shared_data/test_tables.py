"""Which host serves which partitions."""

from __future__ import annotations

import numpy as np

from dask_train.data.columns import Columns, column_of
from dask_train.shared_data.tables import table_for_ranks


def test_partitions_that_are_being_computed_again_have_no_home_and_an_owner():
    schema = Columns(columns=(column_of(np.zeros(1)),), names=None, is_tuple=False)
    ranks = ["tcp://10.0.0.1:1", "tcp://10.0.0.2:1"]
    table, hosts = table_for_ranks(
        schema, np.array([5, 5, 5, 5]), ranks, [[], ["tcp://10.0.0.2:7"], ["tcp://10.0.0.1:7", "tcp://10.0.0.2:7"], []]
    )
    assert hosts == ["10.0.0.1", "10.0.0.2"]
    assert table.owner[1:3].tolist() == [1, 0]
    assert sorted(table.owner.tolist()) == [0, 0, 1, 1]
