"""Keras models as estimators of scikit-learn over Dask collections, and searches over pipelines."""

from __future__ import annotations

import gc
import os

import dask
import dask.array as da
import dask.dataframe as dd
import keras
import numpy as np
import optuna
import pandas as pd
import pytest
import scipy.sparse
from keras import layers
from sklearn.compose import make_column_transformer
from sklearn.decomposition import PCA
from sklearn.exceptions import FitFailedWarning
from sklearn.linear_model import LogisticRegression, SGDClassifier, SGDRegressor
from sklearn.model_selection import GridSearchCV, GroupKFold, LeaveOneGroupOut
from sklearn.naive_bayes import MultinomialNB
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import estimator_checks_generator

import dask_train as dt
from dask_train.sklearn import Incremental, KerasClassifier, KerasRegressor, KerasTransformer

pytestmark = pytest.mark.slow

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(300, 4)).astype("f4")
LABELS = np.where(X[:, 0] + X[:, 1] > 0, "yes", "no")
CHUNKS = (120, 0, 30, 150)


@pytest.fixture(autouse=True)
def _few_seconds(client):
    """Model processes end soon after use."""
    with dask.config.set({"train.predict.idle": "100ms"}):
        yield
    gc.collect()


def on_dask(array):
    return da.from_array(array, chunks=(CHUNKS, *array.shape[1:]))


def network(X, y, loss="categorical_crossentropy", activation="softmax"):  # noqa: N803 - as Keras calls it
    keras.utils.set_random_seed(3)
    model = keras.Sequential(
        [layers.Input((X.shape[1],)), layers.Dense(8, "tanh"), layers.Dense(y.shape[1], activation)]
    )
    model.compile(keras.optimizers.SGD(0.5), loss)
    return model


def test_keras_estimators_fit_and_predict_dask_collections_where_they_are(client):
    settings = {"epochs": 4, "shuffle": False, "workers": 2, "verbose": 0}
    found = KerasClassifier(network, fit_kwargs=settings).fit(on_dask(X), on_dask(LABELS))
    assert found.classes_.tolist() == ["no", "yes"]
    assert found.ledger_.dropped == 0
    assert found.ledger_.trained == 4 * 300
    alone = network(X, np.zeros((1, 2)))
    alone.fit(X, np.eye(2)[(LABELS == "yes").astype(int)], epochs=4, shuffle=False, verbose=0)
    np.testing.assert_allclose(found.predict_proba(X), alone.predict(X, verbose=0), rtol=1e-3, atol=1e-4)
    predicted = found.predict(on_dask(X))
    assert predicted.chunks[0] == CHUNKS, "lazily, the same partitions"
    assert (predicted.compute() == found.predict(X)).all()
    weights = RANDOM.integers(0, 3, 300)
    assert found.score(on_dask(X), on_dask(LABELS)) == pytest.approx(found.score(X, LABELS))
    assert found.score(on_dask(X), LABELS, on_dask(weights)) == pytest.approx(found.score(X, LABELS, weights))
    for method in ("predict_proba", "decision_function"):
        np.testing.assert_allclose(getattr(found, method)(on_dask(X)), getattr(found, method)(X), rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="y has labels of dtype int64, and the classes that were learnt are of <U3"):
        found.score(on_dask(X), on_dask(weights))
    found.fit(on_dask(X), LABELS, on_dask(weights))
    alone = network(X, np.zeros((1, 2)))
    alone.fit(X, np.eye(2)[(LABELS == "yes") * 1], epochs=4, shuffle=False, verbose=0, sample_weight=weights)
    np.testing.assert_allclose(found.predict_proba(X), alone.predict(X, verbose=0), rtol=1e-3, atol=1e-4)

    frame = pd.DataFrame(X, columns=list("abcd")).assign(y=X @ [1, -1, 0.5, 0])
    table = dd.from_pandas(frame, npartitions=3)
    squares = {"model_kwargs": {"loss": "mse", "activation": None}, "fit_kwargs": {"epochs": 2, "verbose": 0}}
    regressor = KerasRegressor(network, **squares).fit(table[list("abcd")], table["y"])
    assert regressor.feature_names_in_.tolist() == list("abcd")
    assert regressor.predict(table[list("abcd")]).compute().shape == (300,)
    wanted = regressor.score(frame[list("abcd")], frame["y"])
    assert regressor.score(table[list("abcd")], table["y"]) == pytest.approx(wanted, rel=1e-5)
    with pytest.raises(ValueError, match="feature names should match"):
        regressor.predict(table[list("bacd")])

    transformer = KerasTransformer(network, **squares).fit(on_dask(X), on_dask(X[:, 0])).set_output(transform="pandas")
    made = transformer.transform(on_dask(X))
    assert isinstance(made, dd.DataFrame), "nothing comes into this process"
    np.testing.assert_allclose(made.compute().to_numpy(), transformer.transform(X), rtol=1e-4, atol=1e-5)

    holes = X.copy()
    holes[200, 1] = np.nan
    with pytest.raises(ValueError, match="contains NaN or infinity"):
        KerasRegressor(network, **squares).fit(on_dask(holes), on_dask(X[:, 0]))
    for odd in (on_dask(X).map_blocks(scipy.sparse.csr_array), on_dask(X) + 1j):
        with pytest.raises(ValueError, match=r"sparse partitions|has the dtype complex"):
            KerasRegressor(network, **squares).fit(odd, on_dask(X[:, 0]))
    with pytest.raises(ValueError, match="only one class"):
        KerasClassifier(network).fit(on_dask(X), da.zeros(300, chunks=(CHUNKS,)))


def same_scores(found, wanted):
    assert set(found.cv_results_) == set(wanted.cv_results_)
    for name in wanted.cv_results_:
        if "test" in name or "train" in name:
            np.testing.assert_array_equal(found.cv_results_[name], wanted.cv_results_[name], err_msg=name)
    assert found.best_params == wanted.best_params_


def test_a_grid_over_a_pipeline_fits_each_beginning_once_and_scores_as_grid_search_does(client):
    pipe = Pipeline([("scale", StandardScaler()), ("reduce", PCA(random_state=0)), ("classify", LogisticRegression())])
    params = [
        {"scale": [StandardScaler(), MinMaxScaler()], "reduce__n_components": [2, 3], "classify__C": [0.1, 1.0, 10.0]},
        {"reduce": ["passthrough"], "classify": [DecisionTreeClassifier(random_state=0)]},
    ]
    scoring = ["accuracy", "roc_auc"]
    wanted = GridSearchCV(pipe, params, cv=3, scoring=scoring, refit="roc_auc").fit(X, LABELS)
    found = dt.search(pipe, on_dask(X), on_dask(LABELS), params=params, cv=3, scoring=scoring, refit="roc_auc")
    same_scores(found, wanted)
    assert found.num_fits == 3 * (2 + 4 + 12 + 1), "of scalers, reductions, models, and a tree behind the first scaler"
    assert (found.best_estimator.predict(X) == wanted.best_estimator_.predict(X)).all()
    assert found.best_value == wanted.best_score_

    frame = pd.DataFrame(X, columns=list("abcd")).assign(kind=pd.Categorical(np.resize(["u", "v", "w"], 300)), y=LABELS)
    table = dd.from_pandas(frame, npartitions=3)
    columns = make_column_transformer((OneHotEncoder(), ["kind"]), remainder=StandardScaler())
    pipe = Pipeline([("columns", columns), ("classify", LogisticRegression())])
    params = {"classify__C": [1.0, -1.0], "columns__remainder__with_mean": [True, False]}
    with pytest.warns(UserWarning, match="6 of 12 fits have failed"):
        found = dt.search(pipe, table.drop(columns="y"), table["y"], params=params, cv=3, scoring=by_hand)
    with pytest.warns(FitFailedWarning, match="6 fits failed"), pytest.warns(UserWarning, match="non-finite"):
        wanted = GridSearchCV(pipe, params, cv=3, scoring=by_hand).fit(frame.drop(columns="y"), frame["y"])
    same_scores(found, wanted)
    turned = table[["kind", *"dcba"]].assign(kind=table["kind"].cat.set_categories(["x", "w", "v", "u"]))
    later = dt.predict(found.best_estimator, turned).compute()
    np.testing.assert_array_equal(later, wanted.best_estimator_.predict(frame.drop(columns="y")))
    with pytest.raises(ValueError, match="Column 'kind' of x has 'x', and the model is fitted with the categories"):
        dt.predict(found.best_estimator, frame.assign(kind="x")).compute()
    with pytest.raises(ValueError, match="Invalid parameter 'D'"):
        dt.search(pipe, on_dask(X), LABELS, params={"classify__D": [1]})
    with pytest.raises(ValueError, match="epochs=7 is not of a search over a grid"):
        dt.search(pipe, on_dask(X), LABELS, params={}, epochs=7)


def test_weights_and_groups_of_a_frame_and_a_grid_that_is_kept_and_logged(client, tmp_path):
    frame = pd.DataFrame(X, columns=list("abcd")).assign(y=LABELS, weight=RANDOM.integers(0, 3, 300) * 1.0)
    frame["group"] = RANDOM.choice(["u", "v", "w", "x"], 300)
    params, told = {"C": [0.01, 1.0]}, []
    wanted = GridSearchCV(LogisticRegression(), params, cv=LeaveOneGroupOut(), scoring="roc_auc").fit(
        frame[list("abcd")], LABELS, sample_weight=frame["weight"], groups=frame["group"]
    )

    def search(**more):
        table = dd.from_pandas(frame, npartitions=3)
        columns = {"label": "y", "sample_weight": "weight", "groups": "group"}
        more |= {"cv": LeaveOneGroupOut(), "scoring": "roc_auc", "checkpoint": tmp_path / "kept"}
        return dt.search(LogisticRegression(), table, params=params, **columns, **more)

    found = search(log=told.append)
    same_scores(found, wanted)
    np.testing.assert_array_equal(found.best_estimator.coef_, wanted.best_estimator_.coef_)
    scores = {(each["trial"], each["step"]): each["score"] for each in told}
    assert scores == {(c, f): wanted.cv_results_[f"split{f}_test_score"][c] for c in range(2) for f in range(4)}
    same_scores(search(resume=True), wanted)
    frame["a"] = 0.0
    with pytest.raises(dt.CheckpointError, match="checksum of data was"):
        search(resume=True)
    params = {"C": [1.0]}
    with pytest.raises(dt.CheckpointError, match=r"params was .*0\.01.*, and is"):
        search(resume=True)


def by_hand(pipeline, features, targets):
    assert "kind" in features.columns, "the rows as they were, for the whole pipeline"
    return float((pipeline.predict(features) == targets).mean())


def test_trials_of_estimators_share_the_data_and_are_pruned_by_rounds(client, tmp_path):
    def build(trial):
        kind = trial.suggest_categorical("kind", ["learns", "pruned", "dies", "raises"])
        if kind == "dies":
            return Dies()
        return SGDClassifier(alpha=1e-3 if kind != "raises" else -1, random_state=0), {"rounds": 3}

    class Pruner(optuna.pruners.BasePruner):
        def prune(self, study, trial):
            return trial.params["kind"] == "pruned"

    sampler = optuna.samplers.GridSampler({"kind": ["learns", "pruned", "dies", "raises"]}, seed=0)
    found = dt.search(build, on_dask(X), LABELS, cv=3, scoring="accuracy", sampler=sampler, pruner=Pruner(), trials=9)
    states = [(trial.params["kind"], trial.state.name) for trial in found.trials]
    assert sorted(states) == [
        ("dies", "FAIL"), ("dies", "FAIL"), ("learns", "COMPLETE"), ("pruned", "PRUNED"), ("raises", "FAIL"),
    ]  # fmt: skip
    assert found.best_params == {"kind": "learns"}
    assert found.best_model.score(X, LABELS) > 0.9
    weights = RANDOM.integers(0, 3, 300) * 1.0
    held_out = dt.search(
        lambda trial: LogisticRegression(),
        X,
        LABELS,
        sample_weight=weights,
        validation_data=(X, LABELS, weights),
        scoring="accuracy",
        trials=1,
    )
    assert held_out.best_value == LogisticRegression().fit(X, LABELS, weights).score(X, LABELS, weights)
    groups = RANDOM.integers(0, 5, 300)
    beside = {"cv": GroupKFold(3), "groups": groups, "sample_weight": weights, "checkpoint": tmp_path / "kept"}
    first = dt.search(lambda trial: LogisticRegression(), on_dask(X), LABELS, trials=1, **beside)
    wanted = GridSearchCV(LogisticRegression(), {}, cv=GroupKFold(3))
    assert first.best_value == wanted.fit(X, LABELS, groups=groups, sample_weight=weights).best_score_
    again = dt.search(lambda trial: LogisticRegression(), on_dask(X), LABELS, trials=1, resume=True, **beside)
    np.testing.assert_array_equal(again.best_model.coef_, first.best_model.coef_)
    with pytest.raises(dt.RoleFailedError, match="Put a Keras model into dask_train"):
        dt.search(lambda trial: network(X, X), X, LABELS, cv=2, trials=1)


class Dies(LogisticRegression):
    def fit(self, features, targets):
        os._exit(9)


class DiesOnce(SGDClassifier):
    """Kills its process with its fourth batch, once."""

    def __init__(self, mark="", random_state=0):
        super().__init__(random_state=random_state)
        self.mark = mark

    def partial_fit(self, features, targets, classes=None, sample_weight=None):
        if int(getattr(self, "t_", 1)) > 150 and not os.path.exists(self.mark):
            open(self.mark, "w").close()
            os._exit(9)
        return super().partial_fit(features, targets, classes=classes, sample_weight=sample_weight)


@pytest.mark.parametrize("keeps", [True, pytest.param(False, marks=pytest.mark.nightly)], ids=["checkpoints", "anew"])
def test_an_incremental_estimator_learns_each_row_once_also_when_its_process_is_killed(client, tmp_path, keeps):
    settings = {"checkpoint": dt.Checkpoint(str(tmp_path / "kept"), every_steps=1)} if keeps else {}
    weights = RANDOM.integers(1, 3, 300).astype(float)
    model = Incremental(
        DiesOnce(str(tmp_path / "died")), epochs=2, batch_size=50, shuffle=False, train_kwargs=settings
    ).fit(on_dask(X), on_dask(LABELS), on_dask(weights))
    assert (tmp_path / "died").exists()
    wanted = SGDClassifier(random_state=0)
    for start in [*range(0, 300, 50)] * 2:
        rows = slice(start, start + 50)
        wanted.partial_fit(X[rows], LABELS[rows], classes=["no", "yes"], sample_weight=weights[rows])
    np.testing.assert_array_equal(model.estimator_.coef_, wanted.coef_)
    assert model.ledger_.dropped == 0
    assert model.score(on_dask(X), on_dask(LABELS)) == wanted.score(X, LABELS)
    assert (model.predict(on_dask(X)).compute() == wanted.predict(X)).all()
    wanted.partial_fit(X, LABELS)
    model.set_params(batch_size=300).set_params(train_kwargs=None).partial_fit(on_dask(X), on_dask(LABELS))
    np.testing.assert_array_equal(model.estimator_.coef_, wanted.coef_)


# Those of scikit-learn's checks that are about errors: of what a role raises, too, they come as in one process.
OF_ERRORS = {"check_estimators_nan_inf", "check_dtype_object", "check_complex_data", "check_supervised_y_no_nan"}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("estimator", [SGDClassifier(random_state=0), SGDRegressor(random_state=0)], ids=str)
def test_wrong_rows_of_incremental_estimators_are_errors_as_scikit_learn_checks_them(client, estimator):
    checks = {check.func.__name__: (check, each) for each, check in estimator_checks_generator(Incremental(estimator))}
    for name in OF_ERRORS & set(checks):
        check, each = checks[name]
        check(each)
    with pytest.raises(ValueError, match="Negative values in data passed to MultinomialNB"):
        Incremental(MultinomialNB()).fit(on_dask(X), on_dask(LABELS))
