"""A grid over a pipeline, its units done one after the other in this process: scores, failures, losses, frames."""

from __future__ import annotations

import copy
from collections import Counter
from contextlib import contextmanager

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression, Ridge, SGDClassifier
from sklearn.metrics import check_scoring, get_scorer
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    KFold,
    LeaveOneGroupOut,
    ParameterGrid,
    RepeatedKFold,
    ShuffleSplit,
    StratifiedGroupKFold,
)
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier

from dask_train.data.columns import Columns, SourceColumn
from dask_train.errors import DaskTrainError, RoleFailedError
from dask_train.identity.digest import digest
from dask_train.searching.estimators.data import estimator_data
from dask_train.searching.estimators.folds import Folds, Split
from dask_train.searching.estimators.grid import GridStudy
from dask_train.searching.estimators.result import GridResult
from dask_train.searching.estimators.rows import FoldRows, RowTable
from dask_train.searching.estimators.scoring import Scoring, scoring_of
from dask_train.searching.estimators.trial import check_rounds, fitting

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(120, 5))
Y = (X[:, 0] + RANDOM.normal(size=120) > 0).astype(int)
WEIGHTS = RANDOM.integers(0, 4, 120).astype(float)
GROUPS = RANDOM.choice(["a", "b", "c", "d", "e"], 120)


class Rows:
    """Rows by their numbers, as role processes have them."""

    def __init__(self, *columns):
        self.columns = columns

    def __len__(self):
        return len(self.columns[0])

    def take(self, numbers):
        return [column[numbers] for column in self.columns]

    @contextmanager
    def lent(self, first, num_rows):
        yield [column[first : first + num_rows].copy() for column in self.columns]


class Writes(TransformerMixin, BaseEstimator):
    """Works in place, as estimators with ``copy=False`` do."""

    def __init__(self, by=2.0):
        self.by = by

    def fit(self, features, targets=None):
        return self

    def transform(self, features):
        features *= self.by
        return features


CALLS: Counter[str] = Counter()


class Counts(StandardScaler):
    def fit(self, features, targets=None, sample_weight=None):
        CALLS["fit"] += 1
        return super().fit(features, targets, sample_weight)


def searched(estimator, params, cv, *, scorers=None, refit="score", by_hand=False, y=Y, weights=None, groups=None):
    scorers = scorers or {"score": check_scoring(estimator)}
    splits = Folds(cv, len(X), X.shape[1:], y, groups).of(estimator)
    scoring = Scoring(scorers=scorers, of_last_step=not by_hand)
    if weights is not None:
        scoring = scoring_of(estimator, scorers, has_weights=True)
    work = GridStudy(estimator, list(ParameterGrid(params)), splits, scoring, refit)
    through(work, *(each for each in (X, y, weights) if each is not None))
    return work, GridResult(work)


def through(work, *columns):
    tables = {"data": RowTable(Rows(*columns), Columns.of_batch(len(columns)))}
    while (handed := work.next()) is not None:
        work.done(handed, handed.request.work(handed.request, None, tables))


def check_same(work, wanted):
    for name, column in wanted.cv_results_.items():
        if "time" not in name and "param" not in name:
            np.testing.assert_array_equal(work.table[name], column, err_msg=name)
        assert name in work.table
    assert str(work.table["params"]) == str(wanted.cv_results_["params"])


@pytest.mark.parametrize(
    "cv",
    [
        3,
        KFold(4, shuffle=True, random_state=0),
        ShuffleSplit(3, random_state=1),
        RepeatedKFold(n_splits=2, n_repeats=2, random_state=0),
    ],
)
def test_scores_are_those_of_grid_search(cv):
    pipe = Pipeline([("scale", Counts()), ("reduce", PCA()), ("model", LogisticRegression())])
    params = [{"reduce__n_components": [2, 3], "model__C": [0.1, 1.0]}, {"reduce": [None], "model": [GaussianNB()]}]
    wanted = GridSearchCV(pipe, params, cv=cv).fit(X, Y)
    CALLS.clear()
    work, found = searched(pipe, params, cv)
    check_same(work, wanted)
    assert CALLS["fit"] == wanted.n_splits_ + 1, "the first step of all candidates once a fold, and in the refit"
    assert work.num_fits == wanted.n_splits_ * (1 + 2 + 4 + 1)
    assert found.best_params == wanted.best_params_
    assert (found.best_estimator.predict(X) == wanted.best_estimator_.predict(X)).all()
    assert len(found.trials_dataframe()) == 5
    shown = found._repr_html_()
    assert f"{wanted.best_score_:.4g}" in shown
    assert shown.count("<tr") == 1 + 5 + 3 + 1 + len(wanted.best_params_), "candidates under a heading, and facts"


def test_steps_that_write_into_their_input_spoil_nothing_that_others_share():
    pipe = Pipeline([("first", Writes()), ("second", Writes(3.0)), ("model", Ridge())])
    params = {"first__by": [1.0, 2.0], "second__by": [5.0, 7.0], "model__alpha": [1.0, 100.0]}
    wanted = GridSearchCV(pipe, params, cv=3).fit(X.copy(), X[:, 0].copy())
    check_same(searched(pipe, params, 3, y=X[:, 0])[0], wanted)

    def whole(pipeline, features, targets):
        return pipeline.score(features.copy(), targets)

    wanted = GridSearchCV(pipe, params, cv=3, scoring=whole).fit(X.copy(), X[:, 0].copy())
    check_same(searched(pipe, params, 3, scorers={"score": whole}, by_hand=True, y=X[:, 0])[0], wanted)


@pytest.mark.parametrize(
    ("estimator", "params", "of_step"),
    [
        (LogisticRegression(), {"C": [0.01, 1.0]}, ""),
        (
            make_pipeline(StandardScaler(), LogisticRegression()),
            {"logisticregression__C": [0.01, 1.0]},
            "logisticregression__",
        ),
        (
            Pipeline([("scale", StandardScaler()), ("both", make_pipeline(PCA(3), LogisticRegression()))]),
            {"both__pca__n_components": [1, 3]},
            "both__logisticregression__",
        ),
        (
            Pipeline([("none", "passthrough"), ("tree", DecisionTreeClassifier(random_state=0))]),
            {"tree__max_depth": [1, 2]},
            "tree__",
        ),
    ],
    ids=["alone", "pipeline", "nested", "tree"],
)
def test_weights_count_where_they_do_in_grid_search(estimator, params, of_step):
    """Of an estimator alone in its scores, too."""
    scorers = {"accuracy": get_scorer("accuracy"), "roc_auc": get_scorer("roc_auc")}
    search = GridSearchCV(estimator, params, cv=3, scoring=list(scorers), refit="roc_auc")
    wanted = search.fit(X, Y, **{f"{of_step}sample_weight": WEIGHTS})
    work, found = searched(estimator, params, 3, scorers=scorers, refit="roc_auc", weights=WEIGHTS)
    check_same(work, wanted)
    np.testing.assert_array_equal(found.best_estimator.predict_proba(X), wanted.best_estimator_.predict_proba(X))
    unweighted = GridSearchCV(estimator, params, cv=3, scoring=list(scorers), refit="roc_auc").fit(X, Y)
    assert (unweighted.cv_results_["mean_test_roc_auc"] != wanted.cv_results_["mean_test_roc_auc"]).any()


def test_a_score_without_weights_is_told_of():
    def plain(estimator, features, targets):
        return float((estimator.predict(features) == targets).mean())

    def takes(estimator, features, targets, sample_weight=None):
        return float(np.average(estimator.predict(features) == targets, weights=sample_weight))

    with pytest.warns(UserWarning, match="The score 'plain' takes no sample_weight: all rows count alike in it"):
        rule = scoring_of(LogisticRegression(), {"plain": plain, "takes": takes}, has_weights=True)
    assert rule.weighted == {"takes"}
    fitted = LogisticRegression().fit(X, Y)
    assert rule(fitted, X, Y, WEIGHTS) == {"plain": fitted.score(X, Y), "takes": fitted.score(X, Y, WEIGHTS)}


def test_of_several_scores_one_that_cannot_be_made_is_missing_alone():
    def broken(estimator, features, targets):
        raise ZeroDivisionError("of nothing")

    scorers = {"fits": get_scorer("r2"), "broken": broken}
    with pytest.warns(UserWarning, match="Scoring failed|non-finite"):
        wanted = GridSearchCV(Ridge(), {"alpha": [1.0]}, cv=3, scoring=scorers, refit="fits").fit(X, Y)
    work, _ = searched(Ridge(), {"alpha": [1.0]}, 3, scorers=scorers, refit="fits", by_hand=True)
    check_same(work, wanted)
    with pytest.warns(UserWarning, match="^UserWarning: The score 'broken' can't be made: ZeroDivisionError: of noth"):
        work.warn()


@pytest.mark.parametrize(
    "cv", [GroupKFold(3), LeaveOneGroupOut(), StratifiedGroupKFold(3, shuffle=True, random_state=0)]
)
def test_groups_are_kept_together_as_in_grid_search(cv):
    wanted = GridSearchCV(LogisticRegression(), {"C": [0.1, 1.0]}, cv=cv).fit(X, Y, groups=GROUPS)
    check_same(searched(LogisticRegression(), {"C": [0.1, 1.0]}, cv, groups=GROUPS)[0], wanted)
    with pytest.raises(ValueError, match=r"keeps groups of rows together\. Pass groups="):
        searched(LogisticRegression(), {"C": [0.1, 1.0]}, cv)


def test_what_has_no_targets_and_what_is_no_pipeline():
    params = {"n_clusters": [2, 3], "random_state": [0]}
    wanted = GridSearchCV(KMeans(n_init=1), params, cv=KFold(3)).fit(X)
    work, found = searched(KMeans(n_init=1), params, KFold(3), y=None)
    check_same(work, wanted)
    assert found.best_estimator.n_clusters == wanted.best_params_["n_clusters"]


def test_fits_that_fail_have_no_score_and_all_of_them_are_an_error():
    pipe = make_pipeline(FunctionTransformer(np.log, validate=False), LogisticRegression())
    params = {"functiontransformer__func": [np.abs, None], "logisticregression__C": [1.0, -1.0]}
    work, found = searched(pipe, params, 3)
    assert np.isnan(work.table["mean_test_score"]).tolist() == [False, True, False, True]
    assert found.best_params["logisticregression__C"] == 1.0
    told = "^6 of 12 fits have failed, and have NaN for scores. Candidate 1 on fold 0: InvalidParam"
    with pytest.warns(UserWarning, match=told):
        work.warn()
    with pytest.raises(RoleFailedError, match="All 3 fits have failed"):
        searched(pipe, {"logisticregression__C": [-1.0]}, 3)
    on_one_fold = make_pipeline(OneHotEncoder(), LogisticRegression())
    rare = np.zeros((len(X), 1))
    rare[0] = 1.0
    scoring = Scoring(scorers={"score": check_scoring(on_one_fold)}, of_last_step=True)
    work = GridStudy(on_one_fold, [{}], Folds(3, len(X), (1,), Y, None).of(on_one_fold), scoring, "score")
    with pytest.raises(
        RoleFailedError, match=r"No candidate has a score 'score' .* Candidate 0 on fold 0: .*nknown cat"
    ):
        through(work, rare, Y)
    work.cut_short("The search ended.")
    with pytest.raises(DaskTrainError, match="none has a score on each fold yet"):
        _ = GridResult(work).best_params
    _, unfitted = searched(pipe, params, 3, refit=None)
    assert unfitted.best_index in (0, 2)
    with pytest.raises(DaskTrainError, match="was not fitted on all rows"):
        _ = unfitted.best_estimator


def test_a_unit_whose_process_is_lost_is_begun_once_more():
    splits = Folds(3, len(X), (5,), Y).of(Ridge())
    work = GridStudy(Ridge(), [{}], splits, Scoring(scorers={"score": check_scoring(Ridge())}, of_last_step=True), None)
    tables = {"data": RowTable(Rows(X, Y), Columns.of_batch(2))}
    work.lost(work.next(), "RoleLostError: gone")
    assert work.num_left == 3
    while work.num_left > 1:
        handed = work.next()
        work.done(handed, handed.request.work(handed.request, None, tables))
    work.lost(work.next(), "RoleLostError: gone again")
    scores = [work.table[f"split{fold}_test_score"][0] for fold in range(3)]
    assert np.isnan(scores).tolist() == [True, False, False]


def test_equal_steps_are_one_and_others_are_not():
    assert digest(PCA(3)) == digest(PCA(n_components=3))
    assert digest(PCA(3)) != digest(PCA(3.0))
    assert digest(make_pipeline(PCA(3), Ridge())) != digest(make_pipeline(PCA(2), Ridge()))
    assert digest(FunctionTransformer(np.log)) != digest(FunctionTransformer(np.exp))


def test_splits_travel_as_tested_rows_alone_where_the_others_are_trained_on():
    plain = Split.of(10, np.arange(4, 10), np.arange(4))
    assert plain.trained is None
    assert plain.train.tolist() == [4, 5, 6, 7, 8, 9]
    drawn = Split.of(10, [5, 1, 5], np.arange(10) > 7)
    assert (drawn.train.tolist(), drawn.test.tolist()) == ([5, 1, 5], [8, 9])
    with pytest.raises(ValueError, match="cv gives rows up to 10, and there are 10"):
        Split.of(10, [1], [10])


def test_frames_keep_their_names_and_types():
    kinds = pd.CategoricalDtype(["u", "v"])
    described, _ = Columns.of({"a": "x", "k": "x"}, "y")
    dtypes = (np.dtype("f4"), kinds, kinds)
    described = described.with_origins({n: (SourceColumn(name="aky"[n], dtype=each),) for n, each in enumerate(dtypes)})
    columns = [np.ones(3, "f4"), np.array([0, -1, 1]), np.array([1, 1, 0])]
    frame = FoldRows.of(described, columns).X
    assert frame.dtypes.tolist() == [np.float32, kinds]
    assert frame["k"].isna().tolist() == [False, True, False]
    assert FoldRows.of(described, columns).y.tolist() == ["v", "v", "u"]
    with pytest.raises(ValueError, match=r"y has 1 rows without a category\. Fill them in"):
        FoldRows.of(described, [*columns[:2], np.array([0, -1, 1])])


def test_columns_of_frames_are_taken_as_they_are():
    frame = pd.DataFrame({"a": [1.0, 2.0], "k": pd.Categorical(["u", "v"]), "t": ["x", "y"]})
    y = pd.Series(pd.Categorical(["no", "yes"]))
    data = estimator_data("data", dd.from_pandas(frame, npartitions=1), dd.from_pandas(y, npartitions=1), None, None)
    assert data.columns.places() == {"x": {"a": 0, "k": 1, "t": 2}, "y": 3, "sample_weight": None}
    assert data.columns[3].categories[0].tolist() == ["no", "yes"]
    named = estimator_data("data", frame, None, ["t", "a"], "k")
    assert named.columns.places() == {"x": {"t": 0, "a": 1}, "y": 2, "sample_weight": None}
    with pytest.raises(ValueError, match="features= names columns of a frame"):
        estimator_data("data", X, Y, ["a"], None)
    beside = {"sample_weight": "a", "groups": "k"}
    named = estimator_data("data", frame.assign(b=1.0), None, None, "t", **beside)
    assert named.columns.places() == {"x": {"b": 0}, "y": 1, "sample_weight": 2}
    assert (named.columns.groups, named.columns[3].categories[0].tolist(), len(named.value)) == (3, ["u", "v"], 4)
    lists = estimator_data("data", X, Y.tolist(), None, None, sample_weight=WEIGHTS.tolist(), groups=GROUPS.tolist())
    assert (*lists.columns.places().values(), lists.columns.groups) == (0, 1, 2, 3)
    for wrong, told in (
        ({"sample_weight": "w"}, "data has no column 'w'"),
        ({"groups": np.ones((2, 2))}, "groups of data has 2 dimensions; it has one"),
    ):
        with pytest.raises(ValueError, match=told):
            estimator_data("data", frame, None, None, "t", **wrong)
    with pytest.raises(ValueError, match="sample_weight='w' names a column of a frame, and x is none"):
        estimator_data("data", X, Y, None, None, sample_weight="w")


def test_rounds_of_estimators():
    scaled = StandardScaler().fit_transform(X)
    for weights in (None, WEIGHTS):
        steps = fitting(make_pipeline(StandardScaler(), SGDClassifier(random_state=0)), FoldRows(X, Y, weights), 3)
        alone = SGDClassifier(random_state=0)
        for _ in range(3):
            found = next(steps)
            alone.partial_fit(scaled, Y, classes=[0, 1], sample_weight=weights)
            np.testing.assert_array_equal(found[-1].coef_, alone.coef_)
    with pytest.raises(ValueError, match=r"can't be fitted in rounds"):
        check_rounds(Ridge(), 2)
    check_rounds(KNeighborsClassifier(), 1)
    with pytest.raises(ValueError, match="There are sample weights, and KNeighborsClassifier takes none: its fit has"):
        check_rounds(make_pipeline(PCA(), KNeighborsClassifier()), 1, has_weights=True)


def test_a_grid_that_is_cut_short_keeps_what_it_has_found():
    scorers = {"score": check_scoring(Ridge())}
    splits = Folds(2, len(X), X.shape[1:], X[:, 0], None).of(Ridge())
    work = GridStudy(
        Ridge(), [{"alpha": 1.0}, {"alpha": 9.0}], splits, Scoring(scorers=scorers, of_last_step=True), "score"
    )
    tables = {"data": RowTable(Rows(X, X[:, 0]), Columns.of_batch(2))}
    for number in range(3):
        handed = work.next()
        work.done(handed, handed.request.work(handed.request, None, tables))
        if number == 0:
            early = copy.copy(work)
            early._scores = dict(work._scores)
            early.cut_short("It was interrupted.")
            assert early.best_index is None, "none has a score on every fold"
    work.cut_short("It was interrupted.")
    found = GridResult(work)
    scores = found.cv_results_["mean_test_score"]
    assert np.isfinite(scores).sum() == 1
    assert found.best_index == int(np.nanargmax(scores))
    with pytest.raises(DaskTrainError, match="not fitted on all rows"):
        _ = found.best_estimator
