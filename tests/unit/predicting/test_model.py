"""What users pass as a model: told apart, described by what it makes of sample rows, and refused in words."""

from __future__ import annotations

import os
import shutil
from typing import Any

import dask.dataframe as dd
import keras
import numpy as np
import pandas as pd
import pytest
import sklearn
import torch
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from dask_train.predicting.inputs import rows_to_predict
from dask_train.predicting.model import Predictor, predictor
from dask_train.predicting.server.files import open_file
from dask_train.predicting.server.keras_model import open_parts

X = np.arange(12.0).reshape(6, 2)
Y = np.array(["no", "yes"] * 3)


def of(model: Any, *, method: str | None = None, meta: Any = None, compiled: bool = False) -> Predictor:
    return predictor(model, method=method, meta=meta, travels=True, compiled=compiled)


def outputs(made: Predictor, x: Any = X, verb: str = "predict") -> Any:
    asked = made.call(verb, rows_to_predict("x", x, features=None, schema=None, as_frames=made.takes_frames), 32)
    return asked.places, [(column.dtype, column.row_shape) for column in asked.outputs]


def test_a_function_is_known_by_what_it_makes_of_two_rows():
    seen = []

    def double(x: np.ndarray) -> dict[str, Any]:
        seen.append(x.shape)
        return {"twice": 2 * x, "sum": x.sum(axis=1).astype("f4")}

    made = of(double)
    assert seen == [], "nothing is called before rows are known"
    assert outputs(made) == ({"twice": 0, "sum": 1}, [("<f8", (2,)), ("<f4", ())])
    assert seen == [(2, 2)]
    assert made.takes_frames


def test_what_is_told_is_not_tried():
    def fails(_: Any) -> Any:
        raise AssertionError("it is not called")

    assert outputs(of(fails, meta=np.empty((0, 3), "f4"))) == (0, [("<f4", (3,))])
    assert outputs(of(fails, meta=[np.empty(0, "<U3"), np.empty(0, "i8")])) == ([0, 1], [("<U3", ()), ("<i8", ())])


def test_text_whose_length_a_sample_does_not_tell_has_room_for_any():
    assert outputs(of(lambda x: np.array(["a"] * len(x)))) == (0, [("|O", ())])
    classifier = LogisticRegression().fit(X, Y)
    assert outputs(of(classifier)) == (0, [("<U3", ())]), "a classifier's is that of its labels"
    assert outputs(of(classifier, method="predict_proba")) == (0, [("<f8", (2,))])


def test_what_an_estimator_makes_of_its_own_columns_though_it_does_not_know_the_text_of_sample_rows():
    frame = pd.DataFrame({"place": ["JFK", "EWR"] * 3, "n": X[:, 0]})
    places = make_column_transformer((OneHotEncoder(), ["place"]))
    lazy = dd.from_pandas(frame, npartitions=2)
    classifier = make_pipeline(places, LogisticRegression()).fit(frame, Y)
    assert outputs(of(classifier), lazy) == (0, [("<U3", ())])
    assert outputs(of(classifier, method="predict_proba"), lazy) == (0, [("<f8", (2,))])
    assert outputs(of(make_pipeline(places, Ridge()).fit(frame, X[:, 0])), lazy) == (0, [("<f8", ())])
    for made, given in (
        (of(classifier), lazy[["n", "place"]]),  # other columns are an error now, not when they are computed
        (of(classifier, method="decision_function"), lazy),
        (of(make_pipeline(places).fit(frame), method="transform"), lazy),
        (of(LogisticRegression().fit(X, Y)), X[:, :1]),
    ):
        with pytest.raises(ValueError, match=r"does not take sample rows \(ValueError: .*Pass meta="):
            outputs(made, given)


def test_sample_rows_of_a_frame_have_no_missing_values():
    seen = []

    def model(frame: Any) -> Any:
        seen.append(frame)
        return frame["a"]

    frame = pd.DataFrame({"a": [1.0, None], "t": ["x", None]})
    assert outputs(of(model), dd.from_pandas(frame, npartitions=1)) == (0, [("<f8", ())])
    assert not seen[0].isna().any(axis=None)
    assert list(seen[0].columns) == ["a", "t"]


@pytest.mark.parametrize(
    ("model", "error", "says"),
    [
        (lambda x: x[:1], ValueError, r"makes an output of shape \(1, 2\) of 2 rows; it has to make a row of each"),
        (lambda x: 3.0, ValueError, r"makes an output of shape \(\) of 2 rows"),
        (lambda x: 1 / 0, ValueError, r"does not take sample rows \(ZeroDivisionError: .*\), .* Pass meta="),
        (lambda a, b: a, ValueError, r"does not take sample rows \(TypeError"),
    ],
)
def test_what_can_not_be_known_beforehand_is_said(model, error, says):
    with pytest.raises(error, match=says):
        outputs(of(model))


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"model": LinearRegression(), "method": "transform"}, TypeError, "LinearRegression has no method 'transform'"),
        ({"model": 3}, TypeError, "model is a int; pass a Keras model, a torch module"),
        ({"model": "model.keras", "method": "predict"}, ValueError, "method='predict' is for estimators and functions"),
        ({"model": "model.keras", "meta": 1}, ValueError, "meta=1 is for estimators and functions; a str is a model"),
        ({"model": "net.onnx"}, ValueError, r"'net.onnx'; a model file is .* onnxruntime.InferenceSession"),
        ({"model": "net.xyz"}, ValueError, r"Open others yourself, and pass a Keras model"),
        ({"model": "no such file.keras"}, ValueError, r"Model file no such file\.keras can't be read"),
        (
            {"model": len, "compiled": True},
            TypeError,
            "dask_train.evaluate takes compiled Keras models, and classifiers",
        ),
    ],
)
def test_what_is_nothing_that_predicts_is_refused(arguments, error, says):
    with pytest.raises(error, match=says):
        of(**arguments)


def test_a_folder_is_taken_for_a_saved_model(tmp_path):
    with pytest.raises(ValueError, match=r"tf\.saved_model\.load\(path\)"):
        of(tmp_path)


def test_estimators_are_scored_by_their_kind():
    classifier, regressor = LogisticRegression().fit(X, Y), LinearRegression().fit(X, X[:, 0])
    assert of(classifier, compiled=True).scores == "accuracy"
    assert of(regressor, compiled=True).scores == "r2"
    assert of(regressor).scores is None


def test_an_evaluation_has_no_outputs():
    assert outputs(of(lambda x: x), verb="evaluate") == (0, [])


def test_the_same_model_has_the_same_name_and_another_has_not():
    fitted, again = (LinearRegression().fit(X, X[:, 0]) for _ in range(2))
    other = LinearRegression().fit(X, X[:, 1] + 1)
    tokens = [of(each).value.token for each in (fitted, again, other)]
    assert tokens[0] == tokens[1] != tokens[2]
    assert (
        of(LogisticRegression().fit(X, Y)).value.token
        != of(LogisticRegression().fit(X, Y), method="predict_proba").value.token
    )


def doubled(x: Any) -> Any:
    return 2 * x


def test_a_file_of_a_model_with_own_functions_is_sent_as_the_model_that_it_is(tmp_path):
    for activation, kind in (("relu", "file"), (doubled, "keras")):
        model = keras.Sequential([keras.Input((2,)), keras.layers.Activation(activation)])
        model.compile(loss="mse")
        model.save(tmp_path / f"{kind}.keras")
        for compiled in (False, True):
            with keras.saving.custom_object_scope({"doubled": doubled}):
                found = of(str(tmp_path / f"{kind}.keras"), compiled=compiled)
            assert found.value.kind == kind
            assert outputs(found) == (0, [("<f4", (2,))])
    opened = open_parts(found.value.header, found.value.arrays)  # where the name is not registered
    np.testing.assert_allclose(opened(np.ones((1, 2), "f4")), np.full((1, 2), 2.0))
    assert opened.compiled


def test_a_relative_path_of_a_model_is_below_the_working_directory_of_the_client(tmp_path, monkeypatch):
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.save(tmp_path / "m.keras")
    (tmp_path / "other").mkdir()
    shutil.copy(tmp_path / "m.keras", tmp_path / "other")
    monkeypatch.chdir(tmp_path)
    made = [of("m.keras"), of(f"file://{tmp_path}/m.keras")]
    monkeypatch.chdir(tmp_path / "other")
    assert of("m.keras").value.token == made[0].value.token, "a copy of it"
    (tmp_path / "other" / "m.keras").unlink()
    for each in made:
        np.testing.assert_array_equal(open_file(each.value.header).get_weights()[0], model.get_weights()[0])


def test_a_function_is_another_one_where_a_module_in_it_is_in_another_mode():
    module = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Dropout(0.5))

    def function(x: np.ndarray) -> Any:
        return module(torch.from_numpy(x.astype("f4"))).detach().numpy()

    training = [of(each).value.token for each in (function, module)]
    module.eval()
    evaluating = [of(each).value.token for each in (function, module)]
    assert [one == other for one, other in zip(training, evaluating, strict=True)] == [False, True]


@pytest.mark.parametrize("compiled", [False, True])
def test_an_estimator_that_is_not_fitted_is_told(compiled):
    for model in (LinearRegression(), Ridge()):
        with pytest.raises(
            ValueError, match=r"(LinearRegression|Ridge) is not fitted, .*Call its fit, or dask_train\.fit"
        ):
            of(model, compiled=compiled)


def test_a_model_is_another_one_under_other_settings():
    estimator, twice = LinearRegression().fit(X, X[:, 0]), 2 * torch.nn.Linear(2, 1).weight.detach()
    module = torch.nn.Linear(2, 1)

    def function(x: np.ndarray) -> Any:
        return torch.from_numpy(x) @ twice.T

    before = [of(each).value for each in (estimator, module, function)]
    with sklearn.config_context(assume_finite=True):
        within = [of(each).value for each in (estimator, module, function)]
    assert [one.token == other.token for one, other in zip(before, within, strict=True)] == [False, True, False]
    assert within[0].settings.changed["sklearn"] == {"assume_finite": True}
    torch.set_default_dtype(torch.float64)
    try:
        within = [of(each).value for each in (estimator, module, function)]
    finally:
        torch.set_default_dtype(torch.float32)
    assert [one.token == other.token for one, other in zip(before, within, strict=True)] == [True, False, False]
    assert within[1].settings.changed["torch"] == {"default_dtype": "float64"}


def test_a_module_without_weights_is_refused():
    module = torch.nn.Sequential(torch.nn.LazyLinear(2))
    with pytest.raises(ValueError, match=r"'0.weight' of Sequential has no shape yet: it is of a lazy module"):
        of(module)
    module(torch.zeros(1, 2))
    assert outputs(of(module)) == (0, [("<f4", (2,))])


def test_what_no_other_process_can_take_over_is_refused():
    with torch.autocast("cpu"), pytest.raises(ValueError, match=r"torch\.autocast\('cpu'\) .*in forward\(\)"):
        of(torch.nn.Linear(2, 1))
    with np.errstate(over="call"):
        np.seterrcall(open(os.devnull, "rb"))  # noqa: SIM115 - of which no pickle can be made
        try:
            with pytest.raises(ValueError, match=r"numpy\.seterrcall .* can't be pickled"):
                of(lambda x: x)
        finally:
            np.geterrcall().close()
            np.seterrcall(None)
