"""A network, a boosted tree and a logistic model on the same flights in the same memory: which tells best who is late.

The flights that left New York in 2013 (see ``flights.py``, which joins the tables): will a plane that leaves the gate
arrive more than 15 minutes late? What to look at:

* **One data set in shared memory for all models.** ``dt.persist`` puts it there once; each model is trained by role
  processes that map it.
* **Each is trained by its own library**: Keras in workers that share each batch, XGBoost by histograms that are summed,
  Newton's method over sums of all rows. Estimators of ``dask_train`` have ``fit(X, y)`` for Dask collections by
  themselves; ``dt.fit`` fits those of XGBoost.
* **All are asked lazily** for the chance that each flight is late. The area under the ROC curve on days that were held
  out compares them.

Run it::

    python examples/models_compared.py               # all flights, some two minutes on two cores
    python examples/models_compared.py --small       # those of January and February, as in CI
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # read when TensorFlow is imported

import dask
import dask.array as da
import numpy as np
import xgboost
from sklearn.metrics import roc_auc_score

import dask_train as dt
from dask_train.cluster.local import local_client
from dask_train.frameworks.tensorflow.startup_noise import without_startup_noise
from dask_train.linear_model import LogisticRegression
from dask_train.sklearn import KerasClassifier
from flights import HELD_OUT_DAYS, NUMBERS, joined

with without_startup_noise():
    import keras
    from keras import layers

ONE_HOT = ("carrier", "origin", "month", "hour", "weekday")  # those of few values
BEGUN = time.perf_counter()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="the flights of two months, as in CI")
    args = parser.parse_args()
    models = {
        "network": KerasClassifier(
            network, fit_kwargs={"epochs": 2 if args.small else 4, "batch_size": 256, "workers": 2, "verbose": 0}
        ),
        "boosted tree": xgboost.XGBClassifier(n_estimators=60 if args.small else 300, max_depth=6, learning_rate=0.1),
        "logistic": LogisticRegression(C=1.0, workers=2),
    }
    with tempfile.TemporaryDirectory() as folder, local_client(2):
        frame = joined(Path(folder), num_months=2 if args.small else 12)
        held = frame["day"].isin(HELD_OUT_DAYS)
        X, y = dt.persist(*rows_of(frame, frame[~held], of=~held))
        X_test, y_test = dt.persist(*rows_of(frame, frame[~held], of=held))
        say(f"{len(X):,} flights to learn from, {len(X_test):,} held out, {X.shape[1]} features")
        areas = {}
        for name, model in models.items():
            if name == "boosted tree":
                dt.fit(model, X, y, workers=2, verbose=0)
                chances = dt.predict(model, X_test, method="predict_proba")
            else:
                chances = model.fit(X, y).predict_proba(X_test)
            chance, late = dask.compute(chances[:, 1], y_test)
            areas[name] = float(roc_auc_score(late, chance))
            say(f"{name}: held-out AUC {areas[name]:.4f}")
        print("best:", max(areas, key=areas.__getitem__))
    return 0 if min(areas.values()) > 0.85 else 1


def rows_of(frame: Any, learnt: Any, of: Any) -> tuple[Any, Any]:
    """Features and whether a flight is late, as Dask arrays: numbers brought to mean 0 and variance 1, categories."""
    facts = learnt[list(NUMBERS)]
    mean, deviation = (found.to_numpy() for found in dask.compute(facts.mean(), facts.std()))
    chosen = frame[of]
    numbers = (chosen[list(NUMBERS)].to_dask_array(lengths=True) - mean) / np.where(deviation > 0, deviation, 1)
    codes = [chosen[name].cat.codes.to_dask_array(lengths=numbers.chunks[0]) for name in ONE_HOT]
    columns = [
        code[:, None] == np.arange(len(frame[name].cat.categories)) for code, name in zip(codes, ONE_HOT, strict=True)
    ]
    X = da.concatenate([numbers, *columns], axis=1).astype("float32").rechunk({1: -1})
    return X, chosen["late"].to_dask_array(lengths=numbers.chunks[0]).astype("int64")


def network(X: Any, y: Any) -> Any:  # noqa: N803 - as Keras calls it
    """Two hidden layers."""
    keras.utils.set_random_seed(1)
    model = keras.Sequential(
        [
            layers.Input((X.shape[1],)),
            layers.Dense(128, activation="relu"),
            layers.Dense(64, activation="relu"),
            layers.Dense(y.shape[1], activation="softmax"),
        ]
    )
    model.compile(keras.optimizers.Adam(1e-3), "categorical_crossentropy")
    return model


def say(text: str) -> None:
    print(f"[{time.perf_counter() - BEGUN:5.1f} s] {text}", flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("Interrupted: the run has ended, and its cluster is closed.")
