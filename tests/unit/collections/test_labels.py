"""Labels that are categories are all there, or it is an error: at once, or where Dask computes them."""

from __future__ import annotations

from typing import Any

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from dask import delayed

from dask_train.collections.labels import with_all_labels

WHOLE = pd.DataFrame({"a": np.arange(6.0), "kind": pd.Categorical(["u", "v", "u"] * 2), 7: pd.Categorical(["x"] * 6)})
TORN = WHOLE.assign(kind=pd.Categorical(["u", None, "u", None, None, "v"]))
TORN[7] = pd.Categorical(["x", "x", None, "x", "x", "x"])


def lazily(frame: Any) -> Any:
    return dd.from_pandas(frame, npartitions=2)


def parts(frame: Any) -> list[Any]:
    return [delayed(frame[:3]), delayed(frame[3:])]


def computed(given: Any) -> Any:
    (found,) = dask.compute(given, scheduler="sync")
    return pd.concat(found) if isinstance(found, list) else found


@pytest.mark.parametrize("kind", [lambda frame: frame, lazily, parts], ids=["pandas", "dask", "delayed"])
@pytest.mark.parametrize(("name", "missing"), [("kind", "[123] labels of data"), (7, "1 labels of data")])
def test_a_missing_label_is_an_error(kind: Any, name: Any, missing: str) -> None:
    pd.testing.assert_frame_equal(computed(with_all_labels("data", kind(WHOLE), [name])), WHOLE)
    with pytest.raises(ValueError, match=rf"{missing} are missing: column {name!r} .*dropna\(subset=\[{name!r}\]\)"):
        computed(with_all_labels("data", kind(TORN), [name]))


@pytest.mark.parametrize("kind", [lambda frame: frame, lazily], ids=["pandas", "dask"])
def test_so_it_is_of_a_column_and_of_a_frame_of_labels(kind: Any) -> None:
    for label in (kind(WHOLE)["kind"], kind(WHOLE)[["kind"]]):
        assert computed(with_all_labels("data", label)).shape[0] == 6
    for label in (kind(TORN)["kind"], kind(TORN)[["kind"]]):
        with pytest.raises(ValueError, match="labels of data are missing: column 'kind'"):
            computed(with_all_labels("data", label))


def test_what_is_no_category_and_no_label_may_be_missing() -> None:
    holes = TORN.assign(a=np.nan)
    assert with_all_labels("data", holes, ["a", "none"]) is holes
    assert with_all_labels("data", holes["a"]) is not None
    for other in (np.ones(3), None, [1, 2], "kind"):
        assert with_all_labels("data", other, ["kind"]) is other
