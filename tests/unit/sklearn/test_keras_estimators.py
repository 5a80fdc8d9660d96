"""Keras models as estimators in this process: scikit-learn's checks, labels, probabilities, copies, frames."""

from __future__ import annotations

import pickle
import unittest

import keras
import numpy as np
import pytest
from keras import layers
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import AdaBoostClassifier, BaggingRegressor, StackingClassifier, VotingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

from dask_train.sklearn import KerasClassifier, KerasRegressor, KerasTransformer
from dask_train.testing import check_dask_estimator

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(60, 4))
LABELS = np.where(X[:, 0] + X[:, 1] > 0, "yes", "no")
CLASSES = np.digitize(X[:, 0], [-0.5, 0.5])

# What Keras' own wrappers, which take no weights, do not pass either, or would not.
OF_KERAS = {
    "check_classifiers_classes": "in so few steps not all classes are found",
    "check_sample_weight_equivalence_on_dense_data": "a batch has as many rows, whatever they weigh",
}


def network(X, y, loss="categorical_crossentropy", units=8, activation="softmax"):  # noqa: N803 - as Keras calls it
    keras.utils.set_random_seed(0)  # many checks compare two fits
    outputs = y.shape[1] if len(y.shape) > 1 else 1
    model = keras.Sequential(
        [layers.Input((X.shape[1],)), layers.Dense(units, "tanh"), layers.Dense(outputs, activation)]
    )
    model.compile("adam", loss, run_eagerly=True)  # nothing is traced: these fits have a few steps each
    return model


def classifier(**settings):
    return KerasClassifier(network, fit_kwargs={"epochs": 1, "verbose": 0}, **settings)


def squares(kind=KerasRegressor, **settings):
    model_kwargs = {"loss": "mse", "activation": None}
    return kind(network, model_kwargs=model_kwargs, fit_kwargs={"epochs": 1, "verbose": 0}, **settings)


@pytest.mark.slow
@pytest.mark.parametrize(
    "estimator",
    [classifier(), *(pytest.param(each, marks=pytest.mark.nightly) for each in (squares(), squares(KerasTransformer)))],
    ids=lambda each: type(each).__name__,
)
def test_checks_of_scikit_learn_as_far_as_those_of_keras_pass(estimator):
    failed = {}
    for each, check in estimator_checks_generator(estimator):
        name = getattr(check, "func", check).__name__
        if name in OF_KERAS:
            continue
        try:
            check(each)
        except unittest.SkipTest:
            continue
        except Exception as error:
            failed[name] = repr(error)
    assert failed == {}


class Interrupted(keras.callbacks.Callback):
    def on_epoch_begin(self, *_):
        raise KeyboardInterrupt


def test_a_fit_that_does_not_end_leaves_the_model_and_what_its_outputs_mean():
    found, other = classifier().fit(X, LABELS), np.where(X[:, 2] > 0, "sick", "healthy")
    labels, features = found.predict(X), found.n_features_in_
    with pytest.raises(KeyboardInterrupt):
        found.fit(X[:, :3], other, callbacks=[Interrupted()])
    assert (found.classes_.tolist(), found.n_features_in_) == (["no", "yes"], features)
    assert (found.predict(X) == labels).all()
    found = classifier()
    with pytest.raises(KeyboardInterrupt):
        found.fit(X, LABELS, callbacks=[Interrupted()])
    assert not hasattr(found, "classes_")


def test_labels_probabilities_and_confidences_as_scikit_learn_has_them():
    found = classifier().fit(X, LABELS)
    assert found.classes_.tolist() == ["no", "yes"]
    chances = found.predict_proba(X)
    np.testing.assert_allclose(chances.sum(axis=1), 1, rtol=1e-6)
    assert found.decision_function(X).shape == (60,), "one number a row, of two classes"
    assert (found.predict(X) == found.classes_[chances.argmax(axis=1)]).all()
    assert ((found.decision_function(X) > 0) == (found.predict(X) == "yes")).all()
    assert classifier().fit(X, CLASSES).decision_function(X).shape == (60, 3)
    loss = keras.losses.CategoricalCrossentropy(from_logits=True)
    logits = classifier(model_kwargs={"loss": loss, "activation": None}).fit(X, CLASSES)
    raw = logits.model_.predict(X, verbose=0)
    np.testing.assert_allclose(logits.predict_proba(X), np.exp(raw) / np.exp(raw).sum(1, keepdims=True), rtol=1e-4)
    logits.model_.compile("adam", "mse")
    with pytest.raises(ValueError, match="are no probabilities"):
        logits.predict_proba(X)


def test_copies_keep_all_parameters_and_a_fit_changes_none():
    made = classifier()
    assert clone(made).fit_kwargs == {"epochs": 1, "verbose": 0}, "Keras' own wrapper loses them"
    made.fit(X, LABELS, epochs=2)
    assert (made.fit_kwargs["epochs"], made.epoch_, made.ledger_) == (1, 2, None)
    back = pickle.loads(pickle.dumps(made))
    np.testing.assert_allclose(back.predict_proba(X), made.predict_proba(X), rtol=1e-5)
    grid = {"kerasclassifier__fit_kwargs": [{"epochs": 1, "verbose": 0}, {"epochs": 3, "verbose": 0}]}
    found = GridSearchCV(make_pipeline(StandardScaler(), made), grid, cv=2, refit=False, error_score="raise").fit(
        X, LABELS
    )
    assert np.isfinite(found.cv_results_["mean_test_score"]).all()


def test_a_warm_start_goes_on_and_knows_its_classes():
    made = classifier(warm_start=True).fit(X, LABELS)
    model, steps = made.model_, int(made.model_.optimizer.iterations.numpy())
    made.fit(X, LABELS)
    assert made.model_ is model
    assert int(model.optimizer.iterations.numpy()) == 2 * steps
    with pytest.raises(ValueError, match="A warm start keeps the classes"):
        made.fit(X, CLASSES)
    given = network(X, X[:, :1], loss="mse", activation=None)
    before = given.get_weights()
    assert KerasRegressor(given, fit_kwargs={"verbose": 0}).fit(X, X[:, 0]).model_ is not given
    np.testing.assert_array_equal(given.get_weights()[0], before[0])


def test_weights_of_rows_are_those_of_keras():
    weights = RANDOM.integers(0, 3, 60)
    found = classifier().fit(X, LABELS, weights)
    alone = network(X, np.zeros((1, 2)))
    alone.fit(X, np.eye(2)[(LABELS == "yes").astype(int)], epochs=1, verbose=0, sample_weight=weights)
    np.testing.assert_allclose(found.predict_proba(X), alone.predict(X, verbose=0), rtol=1e-5)
    assert not np.allclose(found.predict_proba(X), classifier().fit(X, LABELS).predict_proba(X), rtol=1e-3)
    with pytest.raises(ValueError, match=r"sample_weight.shape == \(59,\), expected \(60,\)"):
        classifier().fit(X, LABELS, weights[1:])


@pytest.mark.slow
@pytest.mark.parametrize(
    "estimator",
    [classifier(), pytest.param(squares(), marks=pytest.mark.nightly)],
    ids=lambda each: type(each).__name__,
)
def test_they_hold_to_the_suite_for_dask_collections(estimator):
    estimator.set_params(fit_kwargs={"epochs": 1, "shuffle": False, "workers": 0, "verbose": 0})
    left_out = {"check_weights_are_repetitions": "Keras takes the mean over the rows of a batch, whatever they weigh"}
    assert "check_methods_are_lazy" in check_dask_estimator(estimator, rtol=1e-3, expected_failed_checks=left_out)


@pytest.mark.slow
def test_what_scikit_learn_makes_of_estimators_takes_them_too():
    made = {
        "boosting": AdaBoostClassifier(classifier(), n_estimators=2),
        "calibration": CalibratedClassifierCV(classifier(), cv=2),
        "stacking": StackingClassifier([("a", classifier())], final_estimator=LogisticRegression(), cv=2),
        "voting": VotingClassifier([("a", classifier()), ("b", LogisticRegression())], voting="soft"),
    }
    for name, estimator in made.items():
        found = estimator.fit(X, LABELS, sample_weight=np.ones(60)) if name != "stacking" else estimator.fit(X, LABELS)
        assert set(found.predict(X)) <= {"yes", "no"}, name
        np.testing.assert_allclose(found.predict_proba(X).sum(axis=1), 1, rtol=1e-5, err_msg=name)
    assert BaggingRegressor(squares(), n_estimators=2).fit(X, X[:, 0]).predict(X).shape == (60,)


@pytest.mark.parametrize("loss", ["mse", "binary_crossentropy"])
def test_a_network_without_an_output_for_each_class_is_refused(loss):
    def one_unit(X, y):  # noqa: N803
        return network(X, X[:, 0], loss=loss, activation="sigmoid")

    with pytest.raises(ValueError, match=r"makes \(1,\) numbers of each row, and there are 2 classes"):
        KerasClassifier(one_unit, fit_kwargs={"verbose": 0}).fit(X, LABELS)
