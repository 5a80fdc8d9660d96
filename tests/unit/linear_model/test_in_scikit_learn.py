"""Programs like those of scikit-learn's gallery, with these models in place of its own: they come to the same."""

from __future__ import annotations

import functools

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn import linear_model as plain
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import TransformedTargetRegressor, make_column_transformer
from sklearn.datasets import load_iris
from sklearn.decomposition import PCA
from sklearn.ensemble import (
    AdaBoostClassifier,
    AdaBoostRegressor,
    BaggingClassifier,
    BaggingRegressor,
    StackingClassifier,
    StackingRegressor,
    VotingClassifier,
    VotingRegressor,
)
from sklearn.experimental import enable_halving_search_cv  # noqa: F401 - it makes HalvingGridSearchCV
from sklearn.feature_selection import RFECV, SelectFromModel, SelectKBest, SequentialFeatureSelector
from sklearn.impute import SimpleImputer
from sklearn.inspection import partial_dependence, permutation_importance
from sklearn.model_selection import (
    GridSearchCV,
    HalvingGridSearchCV,
    KFold,
    TunedThresholdClassifierCV,
    cross_val_predict,
    cross_validate,
    learning_curve,
    validation_curve,
)
from sklearn.multiclass import OneVsOneClassifier, OneVsRestClassifier
from sklearn.multioutput import ClassifierChain, MultiOutputRegressor, RegressorChain
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import OneHotEncoder, StandardScaler, TargetEncoder
from sklearn.semi_supervised import SelfTrainingClassifier
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from dask_train import linear_model as ours

RANDOM = np.random.default_rng(0)
X, numbers = load_iris(return_X_y=True)
ORDER = RANDOM.permutation(len(X))
X, LABELS = X[ORDER], np.array(["setosa", "versicolor", "virginica"])[numbers[ORDER]]
TARGETS = np.exp(X @ [0.2, -0.1, 0.1, 0.3]) + RANDOM.random(150)
WEIGHTS = RANDOM.integers(0, 4, 150).astype(float)
EXACT = {"tol": 1e-10, "max_iter": 1000}
CLASSIFIERS = ours.LogisticRegression(**EXACT), plain.LogisticRegression(solver="newton-cholesky", **EXACT)

OF_CLASSIFIERS = {
    "pipeline": lambda model: make_pipeline(StandardScaler(), PCA(3, random_state=0), model),
    "union": lambda model: make_pipeline(make_union(PCA(2, random_state=0), SelectKBest(k=2)), model),
    "voting": lambda model: VotingClassifier([("a", model), ("b", GaussianNB())], voting="soft", weights=[2, 1]),
    "stacking": lambda model: StackingClassifier(
        [("a", model), ("b", DecisionTreeClassifier(max_depth=2, random_state=0))], final_estimator=clone(model), cv=3
    ),
    "boosting": lambda model: AdaBoostClassifier(model, n_estimators=4, random_state=0),
    "bagging": lambda model: BaggingClassifier(model, n_estimators=4, max_features=0.5, random_state=0),
    "calibration": lambda model: CalibratedClassifierCV(model, cv=3, ensemble=False),
    "one against the rest": OneVsRestClassifier,
    "one against one": OneVsOneClassifier,
    "grid": lambda model: GridSearchCV(model, {"C": [0.01, 1.0, 100.0]}, cv=3, scoring="roc_auc_ovr"),
    "halving": lambda model: HalvingGridSearchCV(model, {"C": [0.01, 1.0, 100.0]}, cv=3, random_state=0),
    "of large coefficients": lambda model: make_pipeline(SelectFromModel(clone(model), threshold="median"), model),
    "recursive elimination": lambda model: RFECV(model, cv=3),
    "one by one": lambda model: make_pipeline(SequentialFeatureSelector(model, n_features_to_select=2, cv=3), model),
}
METHODS = ("predict_proba", "decision_function", "transform", "predict")


def check_same(found, wanted, x):
    """See that two fitted estimators make the same of rows."""
    methods = [name for name in METHODS if hasattr(wanted, name)]
    assert methods == [name for name in METHODS if hasattr(found, name)]
    for name in methods:
        of_found, of_wanted = getattr(found, name)(x), getattr(wanted, name)(x)
        if of_wanted.dtype.kind == "f":
            np.testing.assert_allclose(of_found, of_wanted, rtol=1e-5, atol=1e-6, err_msg=name)
        else:
            np.testing.assert_array_equal(of_found, of_wanted, err_msg=name)


@pytest.mark.parametrize("kind", OF_CLASSIFIERS)
def test_what_is_made_of_classifiers(kind):
    found, wanted = (OF_CLASSIFIERS[kind](clone(model)).fit(X, LABELS) for model in CLASSIFIERS)
    check_same(found, wanted, X)
    assert found.score(X, LABELS) == wanted.score(X, LABELS)


@pytest.mark.parametrize(
    "made_of",
    [
        lambda model: TunedThresholdClassifierCV(model, cv=3, thresholds=20, scoring="f1"),
        SelfTrainingClassifier,
    ],
    ids=["threshold", "some labels"],
)
def test_what_is_made_of_two_classes(made_of):
    y = (LABELS == "virginica").astype(int)
    if isinstance(made_of(CLASSIFIERS[0]), SelfTrainingClassifier):
        y[::3] = -1
    found, wanted = (made_of(clone(model)).fit(X, y) for model in CLASSIFIERS)
    check_same(found, wanted, X)


def test_several_labels_a_row():
    y = np.column_stack([LABELS == "setosa", X[:, 0] > 6]).astype(int)
    found, wanted = (ClassifierChain(clone(model), random_state=0).fit(X, y) for model in CLASSIFIERS)
    check_same(found, wanted, X)


# Boosting with a class whose twin has no random_state: it would draw a number for that, and other rows then.
OF_REGRESSORS = [
    ("LinearRegression", lambda model: TransformedTargetRegressor(model, func=np.log1p, inverse_func=np.expm1)),
    ("PoissonRegressor", lambda model: VotingRegressor([("a", model), ("b", DecisionTreeRegressor(max_depth=2))])),
    ("Ridge", lambda model: StackingRegressor([("a", model)], final_estimator=plain.RidgeCV(), cv=3)),
    ("PoissonRegressor", lambda model: AdaBoostRegressor(model, n_estimators=3, random_state=0)),
    ("GammaRegressor", lambda model: BaggingRegressor(model, n_estimators=3, random_state=0)),
    ("ElasticNet", lambda model: RFECV(model, cv=3)),
    ("LinearRegression", lambda model: plain.RANSACRegressor(model, min_samples=50, random_state=0)),
]
REGRESSORS = {
    "LinearRegression": ({}, {}),
    "Ridge": ({"alpha": 2.0}, {}),
    "ElasticNet": ({"alpha": 0.01, **EXACT}, {"tol": 1e-14}),
    "PoissonRegressor": (EXACT, {"solver": "newton-cholesky"}),
    "GammaRegressor": (EXACT, {"solver": "newton-cholesky"}),
}


def regressors(name):
    settings, of_theirs = REGRESSORS[name]
    return getattr(ours, name)(**settings), getattr(plain, name)(**{**settings, **of_theirs})


@pytest.mark.parametrize(("name", "made_of"), OF_REGRESSORS)
def test_what_is_made_of_regressors(name, made_of):
    found, wanted = (made_of(model).fit(X, TARGETS) for model in regressors(name))
    check_same(found, wanted, X)


@pytest.mark.parametrize("chain", [RegressorChain, MultiOutputRegressor])
def test_several_targets_a_row(chain):
    found, wanted = (chain(model).fit(X, np.column_stack([TARGETS, X[:, 1]])) for model in regressors("Ridge"))
    check_same(found, wanted, X)


def same_results(found, wanted):
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-8)


def test_scores_of_folds_and_of_what_is_looked_into():
    found, wanted = CLASSIFIERS
    scored = functools.partial(
        cross_validate, X=X, y=LABELS, cv=3, scoring=["accuracy", "neg_log_loss"], return_train_score=True
    )
    theirs = scored(wanted)
    for name, values in scored(found).items():
        if "time" not in name:
            np.testing.assert_allclose(values, theirs[name], rtol=1e-6, err_msg=name)
    same_results(*(learning_curve(each, X, LABELS, cv=3, train_sizes=[0.5, 1.0]) for each in CLASSIFIERS))
    same_results(
        *(validation_curve(each, X, LABELS, param_name="C", param_range=[0.1, 1], cv=3) for each in CLASSIFIERS)
    )
    same_results(*(cross_val_predict(each, X, LABELS, cv=3, method="predict_proba") for each in CLASSIFIERS))
    found, wanted = (clone(each).fit(X, LABELS) for each in CLASSIFIERS)
    looked = functools.partial(permutation_importance, X=X, y=LABELS, n_repeats=2, random_state=0)
    same_results(looked(found)["importances"], looked(wanted)["importances"])
    same_results(*(partial_dependence(each, X, [2], grid_resolution=5)["average"] for each in (found, wanted)))


def mixed():
    """Rows of several types with holes, a column each."""
    frame = pd.DataFrame(X, columns=["a", "b", "c", "d"])
    frame.loc[::7, "b"] = np.nan
    frame["kind"] = RANDOM.choice(["x", "y", "z"], 150)
    frame["place"] = pd.Categorical(RANDOM.choice(list("klmnop"), 150))
    return frame


def test_columns_of_several_types_weights_and_frames_between_the_steps():
    columns = make_column_transformer(
        (make_pipeline(SimpleImputer(), StandardScaler()), ["a", "b", "c"]),
        (OneHotEncoder(sparse_output=False, handle_unknown="ignore"), ["kind"]),
        (TargetEncoder(cv=KFold(3)), ["place"]),
        remainder="drop",
    )
    rows = mixed()
    found, wanted = (
        make_pipeline(clone(columns), clone(each)).set_output(transform="pandas").fit(rows, LABELS)
        for each in CLASSIFIERS
    )
    check_same(found, wanted, rows)
    assert found[-1].feature_names_in_.tolist() == wanted[-1].feature_names_in_.tolist()
    sparse = make_column_transformer((OneHotEncoder(), ["kind", "place"]), remainder="drop", sparse_threshold=1.0)
    found, wanted = (make_pipeline(clone(sparse), clone(each)).fit(rows, LABELS) for each in CLASSIFIERS)
    check_same(found, wanted, rows)


def test_weights_are_routed():
    with sklearn.config_context(enable_metadata_routing=True):
        found, wanted = (
            cross_validate(
                make_pipeline(
                    PCA(2), clone(each).set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
                ),
                X,
                LABELS,
                cv=3,
                params={"sample_weight": WEIGHTS},
            )["test_score"]
            for each in CLASSIFIERS
        )
    np.testing.assert_allclose(found, wanted)
