"""What a model is fitted with is noted, and made as it is known already."""

from __future__ import annotations

from typing import Any, NamedTuple

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from dask import compute, delayed

from dask_train.collections.schema.conformer import Conformer
from dask_train.collections.schema.frame_schema import FrameSchema
from dask_train.collections.schema.plain import NumberColumn
from dask_train.data.structure import leaves
from dask_train.fitting.schemas import learnt_for, note_schema

FRAME = pd.DataFrame({"a": [1.0, 2.0], "kind": pd.Categorical(["u", "v"]), "y": pd.Categorical(["no", "yes"])})
OTHER = pd.DataFrame({"y": pd.Categorical(["yes"]), "kind": pd.Categorical(["v"]), "a": [0.5]})
SCHEMA = FrameSchema.of(FRAME, label="y")
KINDS: list[Any] = [lambda frame: frame, lambda frame: dd.from_pandas(frame, npartitions=1)]


@pytest.mark.parametrize("kind", KINDS, ids=["pandas", "dask"])
def test_what_it_has_seen_is_the_schema(kind: Any) -> None:
    like = Conformer(None)
    x, features = like.named("data", kind(FRAME), None, ["y"])
    like.targets("data", x, ["y"])
    assert features == ["a", "kind"]
    assert like.schema(features) == SCHEMA
    assert Conformer(None).schema(None) is None


@pytest.mark.parametrize("kind", KINDS, ids=["pandas", "dask"])
def test_rows_are_made_as_they_are_known(kind: Any) -> None:
    like = Conformer(SCHEMA, learns=False)
    x, features = like.named("x", kind(OTHER), None, ["y"])
    x = like.targets("x", x, ["y"])
    assert features == ["a", "kind"]
    assert [x[name].cat.codes.values.tolist() if kind is KINDS[0] else None for name in ("kind", "y")] in (
        [[1], [1]],
        [None] * 2,
    )
    assert [list(x[name].dtype.categories) for name in ("kind", "y")] == [["u", "v"], ["no", "yes"]]
    apart = like.inputs("x", kind(OTHER))
    assert list(apart.columns) == ["a", "kind"]
    label = like.targets("x", kind(OTHER)["y"].rename("other name"))
    assert list(label.dtype.categories) == ["no", "yes"]
    column = Conformer(FrameSchema.of(FRAME[["kind"]])).inputs("x", kind(OTHER)["kind"].rename("other name"))
    assert list(column.dtype.categories) == ["u", "v"]


def test_categories_that_nobody_knows_are_refused() -> None:
    like = Conformer(None, learns=False)
    for call in (lambda: like.inputs("x", FRAME["kind"]), lambda: like.targets("x", FRAME, ["y"])):
        with pytest.raises(ValueError, match=r"Column '(kind|y)' of x holds categories.*schema=result.schema"):
            call()
    assert like.inputs("x", FRAME[["a"]]) is not None
    for other in (np.ones(2), None, [1]):
        assert like.inputs("x", other) is other
        assert like.targets("x", other) is other


def test_rows_that_stay_a_frame_may_have_missing_categories() -> None:
    torn = FRAME.assign(kind=pd.Categorical(["u", None]))
    assert Conformer(None, coded=False).inputs("x", torn)["kind"].isna().sum() == 1
    with pytest.raises(ValueError, match="1 values of column 'kind' of x are missing"):
        Conformer(None).inputs("x", torn)
    with pytest.raises(ValueError, match="1 labels of x are missing"):
        Conformer(None, coded=False).targets("x", torn["kind"])


def test_codes_that_lie_in_shared_memory_have_to_be_those_of_the_model() -> None:
    held = FrameSchema.of(FRAME[["a", "kind"]])
    turned = FrameSchema.of(FRAME[["kind", "a"]])
    strange = FrameSchema.of(OTHER[["a", "kind"]])
    targets = (FrameSchema.of(FRAME[["y"]]), None)
    like = Conformer(None)
    like.lying("data", held, targets)
    assert like.schema(["a", "kind"]) == SCHEMA
    Conformer(SCHEMA, learns=False).lying("data", held, targets)
    with pytest.raises(ValueError, match=r"the columns 'kind', 'a', in this order, and .* with 'a', 'kind'"):
        Conformer(SCHEMA).lying("data", turned, targets)
    with pytest.raises(ValueError, match=r"'kind' of data lies in shared memory as codes of 'v', and .*'u', 'v'"):
        Conformer(SCHEMA).lying("data", strange, targets)
    with pytest.raises(ValueError, match=r"'y' of data lies in shared memory as codes of 'yes', .*'no', 'yes'"):
        Conformer(SCHEMA).lying("data", held, FrameSchema.of(OTHER[["y"]]))
    with pytest.raises(ValueError, match=r"Column 'kind' of data holds categories.*schema=result.schema"):
        Conformer(None, learns=False).lying("data", held, None)
    with pytest.raises(TypeError, match=r"'kind' of data lies in shared memory as codes .* Pass the frame"):
        Conformer(None, coded=False).lying("data", held, None)


@pytest.mark.parametrize("features", [None, ["kind", "a"]])
def test_delayed_frames_are_made_as_they_are_known(features: Any) -> None:
    like = Conformer(SCHEMA, learns=False)
    parts, features = like.parts("x", [delayed(OTHER), delayed(FRAME)], features, ["y"], ["y"])
    assert features == ["a", "kind"]
    codes = [[part[name].cat.codes.tolist() for name in ("kind", "y")] for part in compute(*parts, scheduler="sync")]
    assert codes == [[[1], [1]], [[0, 1], [0, 1]]]
    (columns,), _ = like.parts("x", [delayed(dict(OTHER.items()))], None, ["y"], ["y"])
    assert [columns.compute()[name].cat.codes.tolist() for name in ("kind", "y")] == [[1], [1]]
    (empty,), _ = like.parts("x", [delayed(pd.DataFrame({name: np.array([]) for name in FRAME}))], None, ["y"], ["y"])
    pd.testing.assert_frame_equal(empty.compute(scheduler="sync")[["kind", "y"]], FRAME[:0][["kind", "y"]])
    (pair,), _ = like.parts("x", [delayed((np.ones(2), np.ones(2)))], None, [], [])
    assert len(pair.compute()) == 2
    (unknown,), _ = Conformer(None, learns=False).parts("x", [delayed(FRAME)], None, ["y"], ["y"])
    with pytest.raises(ValueError, match=r"Column 'kind' of x holds categories.*schema=result.schema"):
        unknown.compute(scheduler="sync")
    (torn,), _ = Conformer(None).parts("x", [delayed(FRAME.assign(kind=None).astype(FRAME.dtypes))], None, ["y"], ["y"])
    with pytest.raises(ValueError, match="2 values of column 'kind' of x are missing"):
        torn.compute(scheduler="sync")


TWO = pd.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0], "kind": pd.Categorical(["u", "v"])})


def fitted_on(x: Any, y: Any = None, *, learns: bool = False) -> tuple[Conformer, FrameSchema]:
    """One that knows what a model was fitted with, as it was saved and loaded."""
    like = Conformer(None)
    like.inputs("data", x)
    like.targets("data", y)
    schema = like.schema_of(x)
    assert schema is not None
    assert FrameSchema.from_json(schema.to_json()) == schema
    return Conformer(schema, learns=learns), schema


@pytest.mark.parametrize("kind", KINDS, ids=["pandas", "dask"])
@pytest.mark.parametrize("put", [lambda m, k: {"m": m, "k": k, "z": np.ones(2)}, lambda m, k: (m, [np.ones(2), k])])
def test_columns_are_matched_by_name_in_each_frame_of_a_structure(kind: Any, put: Any) -> None:
    like, schema = fitted_on(put(kind(TWO)[["a", "b"]], kind(TWO)["kind"]))
    assert (schema.features, [column.name for column in schema.columns]) == (None, ["a", "b", "kind"])
    given = put(kind(TWO)[["b", "a"]], kind(TWO)["kind"])
    x = like.inputs("x", given)
    assert list((x["m"] if isinstance(x, dict) else x[0]).columns) == ["a", "b"]
    with pytest.raises(ValueError, match=r"x has no column 'a' where the model was fitted with 'a', 'b'"):
        like.inputs("x", put(kind(TWO)[["b"]], kind(TWO)["kind"]))
    with pytest.raises(ValueError, match=r"x has column 'a' where the model was fitted with 'kind'"):
        like.inputs("x", put(kind(TWO)[["a", "b"]], kind(TWO)["a"]))


def test_columns_are_matched_by_name_where_features_were_a_dict_of_names() -> None:
    like = Conformer(FrameSchema.of(TWO, features={"m": ["a", "b"], "k": "kind"}), learns=False)
    assert list(like.inputs("x", {"m": TWO[["b", "a"]], "k": TWO["kind"]})["m"].columns) == ["a", "b"]


def of_airports(*values: str) -> Any:
    return pd.Series(pd.Categorical(values), name="airport")


@pytest.mark.parametrize("name", ["airport", None, "other"])
def test_columns_of_one_name_have_the_categories_of_their_place(name: Any) -> None:
    like, _ = fitted_on({"from": of_airports("A", "B").rename(name), "to": of_airports("B", "C").rename(name)})
    x = like.inputs("x", {"to": of_airports("C", "B"), "from": of_airports("B", "A")})
    assert [x[name].cat.codes.tolist() for name in ("from", "to")] == [[1, 0], [1, 0]]
    with pytest.raises(ValueError, match=r"several columns .* that differ"):
        like.inputs("x", of_airports("B", "B"))


@pytest.mark.parametrize("kind", KINDS, ids=["pandas", "dask"])
def test_columns_of_a_frame_of_targets_are_matched_by_name(kind: Any) -> None:
    like, schema = fitted_on(TWO[["kind"]], TWO[["a", "b"]])
    assert list(like.targets("y", kind(TWO)[["b", "a"]]).columns) == ["a", "b"]
    with pytest.raises(ValueError, match=r"y has no column 'b' where the model was fitted with 'a', 'b'"):
        like.targets("y", TWO[["a", "kind"]])
    named = Conformer(FrameSchema.of(TWO, ["kind"], ["a", "b"]), learns=False)
    assert list(named.targets("y", kind(TWO)[["b", "a"]]).columns) == ["a", "b"]
    like, schema = fitted_on(TWO[["kind"]], {"p": TWO[["a", "b"]], "q": TWO["kind"]})
    assert schema.outputs == {"p": ["a", "b"], "q": ["kind"]}
    assert list(like.targets("y", {"p": TWO[["b", "a"]], "q": TWO["kind"]})["p"].columns) == ["a", "b"]


def further(x: Any, y: Any = None) -> Conformer:
    """One for further training of a model that was fitted on these."""
    _, schema = fitted_on(x, y)
    note_schema(model := type("Model", (), {})(), schema)
    return Conformer(learnt_for(model))


def test_a_column_that_goes_to_several_places_keeps_its_categories() -> None:
    schema = FrameSchema.of(TWO, features={"wide": ["a", "kind"], "deep": "kind"})
    note_schema(model := type("Model", (), {})(), schema)
    turned = TWO.assign(kind=pd.Categorical(["v", "u"]).reorder_categories(["v", "u"]))
    for like in (Conformer(schema, learns=False), Conformer(learnt_for(model))):
        x = like.inputs("x", {"wide": turned[["a", "kind"]], "deep": turned["kind"]})
        assert [list(kind.cat.categories) for kind in (x["wide"]["kind"], x["deep"])] == [["u", "v"]] * 2


@pytest.mark.parametrize("name", ["x", None])
def test_of_columns_of_one_name_further_training_keeps_the_categories_at_their_place(name: Any) -> None:
    def rows(*values: str) -> dict[str, Any]:
        return {"n": pd.Series([1.0, 2.0], name=name), "k": pd.Series(pd.Categorical(values, values), name=name)}

    x = further(rows("u", "v")).inputs("data", rows("v", "u"))
    assert (x["n"].dtype, list(x["k"].cat.categories)) == ("float64", ["u", "v"])


def test_numbers_of_one_name_that_differ_in_dtype_are_no_matter() -> None:
    like, _ = fitted_on({"m": pd.Series([1.0, 2.0]), "n": pd.Series([1, 2])})
    number = FrameSchema(columns=(NumberColumn(name=None, dtype="float64"),))
    like.lying("data", {"m": number, "n": number}, None)
    like.lying("data", (number, number), None)
    like.inputs("x", pd.Series([1, 2]))


def test_columns_are_matched_by_name_where_frames_are_put_together_otherwise() -> None:
    turned, rest = TWO[["b", "a"]], TWO[["kind"]]
    like, _ = fitted_on({"wide": TWO[["a", "b"]], "deep": rest})
    for given in ([turned, rest], (rest, turned)):
        assert ["a", "b"] in [list(frame.columns) for frame in like.inputs("x", given)]
    with pytest.raises(ValueError, match=r"x has a frame with the columns 'b', and which of the frames .* same dict"):
        like.inputs("x", [TWO[["b"]], rest])
    for x in ([TWO[["a", "b"]]], {"wide": TWO[["a", "b"]]}, TWO[["a", "b"]]):
        for like in (fitted_on(x)[0], further(x)):
            assert like.named("x", turned, None, [])[1] == ["a", "b"]
            for given in (turned, [turned], {"wide": turned}):
                (leaf,) = leaves(like.inputs("x", given))
                assert list(leaf.columns) == ["a", "b"]
    like, _ = fitted_on([TWO[["a", "b"]], rest], [TWO[["a", "b"]], TWO[["a"]]])
    assert list(like.targets("y", {"p": turned, "q": TWO[["a"]]})["p"].columns) == ["a", "b"]
    with pytest.raises(ValueError, match=r"in this order, and the model was fitted with 'a', 'b'"):
        like.lying("data", {"wide": FrameSchema.of(turned)}, None)
    like = further([TWO[["a"]], TWO[["b"]]])
    assert like.inputs("x", TWO[["kind", "a"]]).shape == (2, 2), "others may be learnt"
    with pytest.raises(ValueError, match="x has no column 'a' where"):
        fitted_on([TWO[["a"]]])[0].inputs("x", TWO[["b"]])


class Pair(NamedTuple):
    m: Any
    n: Any


def test_named_tuples_of_frames_stay_such() -> None:
    like, schema = fitted_on(Pair(TWO[["a"]], TWO["kind"]))
    assert schema.inputs == (["a"], ["kind"])
    x = like.inputs("x", Pair(TWO[["a"]], TWO["kind"].astype(object)))
    assert (type(x), list(x.n.cat.categories)) == (Pair, ["u", "v"])


def test_a_model_that_is_trained_further_keeps_the_order_of_the_columns_that_it_knows() -> None:
    like = further(TWO[["a", "b"]], TWO[["a", "b"]])
    assert list(like.inputs("data", TWO[["b", "a"]]).columns) == ["a", "b"]
    assert list(like.targets("data", TWO[["b", "a"]]).columns) == ["a", "b"]
    assert list(like.inputs("data", TWO[["b", "kind"]]).columns) == ["b", "kind"], "others may be learnt"
    for features in (None, ["b", "a"]):
        assert like.named("data", TWO[["b", "a"]], features, [])[1] == ["a", "b"]
    assert like.parts("data", [delayed(TWO)], ["b", "a"], [], [])[1] == ["a", "b"]
    assert like.named("data", TWO, None, [])[1] == ["a", "b", "kind"]
    like = further({"m": TWO[["a", "b"]], "k": TWO["kind"]})
    assert list(like.inputs("data", {"k": TWO["kind"], "m": TWO[["b", "a"]]})["m"].columns) == ["a", "b"]


def test_columns_that_lie_in_shared_memory_have_to_be_those_of_the_model() -> None:
    numbers, turned, others = (FrameSchema.of(TWO[names]) for names in (["a", "b"], ["b", "a"], ["a"]))
    kind = FrameSchema(columns=FrameSchema.of(TWO[["kind"]]).columns, features="kind")
    like, _ = fitted_on({"m": TWO[["a", "b"]], "k": TWO["kind"].rename("other")}, TWO[["a", "b"]])
    like.lying("data", {"k": kind, "m": numbers}, numbers)
    for x, y in (({"m": turned}, None), ({"m": others}, None), ({"m": numbers}, turned)):
        with pytest.raises(ValueError, match=r"in this order, and the model was fitted with 'a', 'b'"):
            like.lying("data", x, y)
    further = Conformer(FrameSchema(columns=(), inputs=["a", "b"]))
    further.lying("data", others, None)
    with pytest.raises(ValueError, match=r"in this order, and the model was fitted with 'a', 'b'"):
        further.lying("data", turned, None)


def test_numbers_do_not_get_the_only_categories_that_further_training_keeps() -> None:
    numbers = pd.Series([1.0, 2.0], name="d")
    rows = {"c": TWO["kind"].rename("c"), "d": numbers}
    like = further(rows, rows)
    for given in (rows, tuple(rows.values())):
        for made in (like.inputs("data", given), like.targets("data", given)):
            assert any(leaf is numbers for leaf in leaves(made))
