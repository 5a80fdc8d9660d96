"""The table of losses and metrics that several workers compute as one process does, on each backend.

A cell trains a model on 1, 2 or 3 workers, and by Keras' own ``fit``: weights and history are the same to rounding. Of
a batch of 50 rows three workers have 17, 17 and 16. The last batch, of training and of validation, has one row: workers
without rows take part with a padded one, which weighs nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import pytest
from keras import losses, metrics
from keras.optimizers import SGD, LossScaleOptimizer
from loading import loaded

import dask_train as dt
from dask_train.data.columns import Columns

pytestmark = [pytest.mark.backends]
BACKEND = keras.backend.backend()

whole, equal = loaded(__file__, "whole_batches"), loaded(__file__, "test_fit_equivalence")
steps = loaded(__file__, "contrastive_steps")
CLASS, TARGETS, STEPS, BINARY = equal.CLASS, equal.TARGETS, equal.STEPS, equal.BINARY
network, of_numbers, of_steps = whole.network, whole.of_numbers, whole.of_steps


def cell(make: Callable[[], Any], labels: Any = TARGETS, features: int = equal.X, **case: Any) -> Any:
    """Return two epochs of that model on these columns of the data."""
    columns = Columns(features=features, labels=labels, weights=case.pop("weights", None))
    return equal.Case(make=make, columns=columns, **{"epochs": 2, "batch_size": 50, "validates": True, **case})


def by_class(**settings: Any) -> Any:
    """Return cross-entropy by row."""
    return losses.SparseCategoricalCrossentropy(from_logits=True, **settings)


series = functools.partial(cell, labels=STEPS, features=equal.IDS)
two = functools.partial(cell, labels={"value": TARGETS, "late": BINARY}, tolerance=1e-8)
trained = functools.partial(cell, labels=CLASS, validates=False)
WEIGHTED, BY_STEP, BY_CLASS = {"weights": equal.WEIGHT}, {"weights": equal.IDS}, {"class_weight": {0: 3.0, 2: 0.5}}
WEIGHTS = "mean_with_sample_weight"
# A step on JAX has shapes that do not depend on values.
CUTS = ("tensorflow", "torch")

# Losses of Keras' own, of which each worker computes the sum over its rows.
BY_ROW = {
    "mse": cell(lambda: network(2, "mse", metrics=["mae"])),
    "sum": cell(lambda: network(3, by_class(reduction="sum"), SGD(1e-3)), CLASS, **WEIGHTED),
    "sample weights": cell(lambda: network(3, by_class(), weighted_metrics=["accuracy"]), CLASS, **WEIGHTED),
    "mean with sample weights": cell(lambda: network(3, by_class(reduction=WEIGHTS)), CLASS, **WEIGHTED),
    "class weights": cell(lambda: network(3, by_class()), CLASS, **BY_CLASS),
    "mask": series(lambda: of_steps(by_class())),
    "mask, weights by step": series(lambda: of_steps(by_class()), **BY_STEP),
    "mask, mean with weights by step": series(lambda: of_steps(by_class(reduction=WEIGHTS)), **BY_STEP),
    "ignored class": cell(lambda: network(3, by_class(ignore_class=0), metrics=["accuracy"]), CLASS),
    "ignored class, sample weights": cell(lambda: network(3, by_class(ignore_class=1)), CLASS, **WEIGHTED),
    "ignored class, mean with sample weights": cell(
        lambda: network(3, by_class(ignore_class=1, reduction=WEIGHTS)), CLASS, **WEIGHTED
    ),
    "ignored class, mask": series(lambda: of_steps(by_class(ignore_class=2))),
    "mask, unequal lengths": series(lambda: whole.cut(whole.Cut, by_class(), masks=True), backends=CUTS),
    "two outputs": two(lambda: whole.of_two("mse")),
    # Sums of 11 or 8 bits are other ones in another order.
    "mixed_float16": cell(lambda: whole.in_half_precision("mixed_float16", "mse"), tolerance=1e-3),
    "mixed_bfloat16": cell(lambda: whole.in_half_precision("mixed_bfloat16", "mse"), tolerance=8e-3),
}
# Losses that compare rows, or of which nothing is known: they get the rows of all workers.
COMPARED = {
    "correlation": cell(lambda: network(2, whole.correlation)),
    "pairs": cell(lambda: network(2, whole.ranking)),
    "largest error": cell(lambda: network(2, whole.largest)),
    "from the middle": cell(lambda: network(2, whole.from_the_middle)),
    "sum": cell(lambda: network(2, whole.total)),
    "root": cell(lambda: network(2, whole.root)),
    "call of its own": cell(lambda: network(2, whole.Everything())),
    "supervised contrastive": cell(lambda: network(4, whole.supervised_contrastive), CLASS),
    "circle": cell(lambda: whole.embedding(losses.Circle(gamma=4)), CLASS),
    "dice": cell(lambda: network(2, losses.Dice()), tolerance=1e-7),
    "cosine over rows": cell(lambda: network(2, losses.CosineSimilarity(axis=0))),
    "cosine of numbers": cell(lambda: of_numbers("cosine_similarity"), BINARY),
    "divergence of numbers": cell(lambda: of_numbers("kl_divergence"), BINARY),
    "mean with sample weights": cell(lambda: network(3, whole.SharesOfClasses(reduction=WEIGHTS)), CLASS, **WEIGHTED),
    "class weights": cell(lambda: network(3, whole.SharesOfClasses()), CLASS, **BY_CLASS),
    "mask": series(lambda: of_steps(whole.steps_beside_mean)),
    "mask, weights by step": series(lambda: of_steps(whole.steps_beside_mean), **BY_STEP),
    "ignored class": cell(lambda: network(3, whole.without_a_class), CLASS),
    "ignored class, sample weights": cell(lambda: network(3, whole.without_a_class), CLASS, **WEIGHTED),
    "two outputs": two(lambda: whole.of_two(whole.correlation)),
    "loss scaling": cell(lambda: network(2, whole.correlation, LossScaleOptimizer(SGD(0.05)), metrics=["mae"])),
    "mixed_float16": cell(lambda: whole.in_half_precision("mixed_float16", whole.correlation), tolerance=1e-3),
    "mixed_bfloat16": cell(lambda: whole.in_half_precision("mixed_bfloat16", whole.correlation), tolerance=8e-3),
}
# Metrics of compile: what counts rows is added up, others get the rows of all workers.
METRICS = {
    "own": cell(lambda: network(2, whole.correlation, metrics=[whole.Largest(), whole.ordered_pairs, "mae"])),
    "own, class weights": cell(
        lambda: network(3, by_class(), weighted_metrics=[whole.Confident(), "accuracy"]), CLASS, **BY_CLASS
    ),
    "curves": cell(
        lambda: of_numbers("mse", metrics=[metrics.AUC(name="auc"), metrics.PrecisionAtRecall(0.5, name="at")]), BINARY
    ),
    "over rows": cell(lambda: network(2, "mse", metrics=[metrics.CosineSimilarity(axis=0), metrics.R2Score()])),
    "of numbers": cell(lambda: of_numbers("mse", metrics=["cosine_similarity", "mae", metrics.KLDivergence()]), BINARY),
    # On torch Keras' own fit multiplies weights with masks before metrics get them.
    "ignored class, sample weights": cell(
        lambda: network(3, by_class(ignore_class=1), weighted_metrics=["accuracy"]),
        CLASS,
        backends=("tensorflow", "jax"),
        **WEIGHTED,
    ),
    "mask": series(lambda: of_steps(by_class(), weighted_metrics=["accuracy"]), **BY_STEP),
}
# Steps, losses and layers of a user's own that gather rows with dt.keras.global_batch.
GATHERED = {
    "mean": trained(lambda: steps.Computes.made("of all"), validates=True),
    "sum": trained(lambda: steps.Computes.made("a sum")),
    "own rows against all": trained(lambda: steps.Computes.made("own rows against all"), validates=True),
    "SimCLR": trained(lambda: steps.TwoTowers.made("simclr")),
    "CLIP": trained(lambda: steps.TwoTowers.made("clip")),
    "MoCo": trained(lambda: steps.Moco.made("moco")),
    "queue": trained(steps.Remembers.made, validates=True),
    "ring": trained(lambda: steps.with_layer(steps.Avoids()), validates=True),
    "layer": trained(lambda: steps.with_layer(steps.Contrasts()), validates=True),
    "statistics": trained(lambda: steps.with_layer(steps.Centers()), validates=True),
    "lengths, by row": series(lambda: whole.cut(whole.CutTogether, by_class(), masks=False), backends=CUTS),
    "lengths, compared": series(
        lambda: whole.cut(whole.CutTogether, whole.spread_of_steps, masks=False), backends=CUTS
    ),
    "loss scaling": trained(lambda: steps.Computes.made("of all", LossScaleOptimizer(SGD(0.05)))),
}
WAYS = {"by row": BY_ROW, "compared": COMPARED, "metrics": METRICS, "gathered": GATHERED}
TABLE = {f"{way}: {name}": one for way, cells in WAYS.items() for name, one in cells.items() if BACKEND in one.backends}
SOME = ["metrics: own"]  # with a loss that compares rows


@pytest.fixture(scope="module")
def alone() -> Iterator[Any]:
    with equal.one_process(TABLE) as found:
        yield found


slow = pytest.mark.slow
every_night = [slow, pytest.mark.nightly]
# On other backends the quick ones have some of each way.
at_times = [slow] if BACKEND == "tensorflow" else every_night


@pytest.mark.parametrize(
    ("num_workers", "names"),
    [
        pytest.param(1, [*SOME, "by row: mask", "gathered: mean"], marks=at_times, id="1 worker, some"),
        pytest.param(2, SOME, id="2 workers, some"),
        *(
            pytest.param(
                workers, [name for name in TABLE if name.startswith(way)], marks=marks, id=f"{workers} workers, {way}"
            )
            for way in WAYS
            # On two workers those that compare rows run with each change; of the others the quick ones have some.
            for workers, marks in ((2, at_times if way == "compared" else every_night), (3, every_night))
        ),
    ],
)
def test_workers_compute_what_one_process_does(client, alone, num_workers, names):
    first, *others = equal.trained({name: TABLE[name] for name in names}, num_workers)
    assert all(set(outcomes.values()) == {None} for outcomes in others)
    wrong = {name: told for name in names if (told := equal.differing(TABLE[name], first[name], *alone(name)))}
    assert wrong == {}


# What can't be exact is an error.
REFUSED = {
    "unequal lengths": (
        series(lambda: whole.of_unequal_lengths(whole.spread_of_steps)),
        dict.fromkeys(CUTS, "and those of another worker's are of other shapes"),
    ),
    "sum over own rows beside those of all": (
        trained(lambda: steps.Computes.made("own rows summed", SGD(0.001))),
        {"tensorflow": "Gather all that it takes", "jax": "gather all rows that it compares"},
    ),
}


@slow
@pytest.mark.usefixtures("alone")  # models are made with the dtypes of these
@pytest.mark.parametrize("name", [name for name, (_, told) in REFUSED.items() if BACKEND in told])
def test_what_is_not_is_refused(client, name):
    one, told = REFUSED[name]
    with pytest.raises(dt.RoleFailedError, match=told[BACKEND]):
        equal.trained({name: one}, 2)


IDS = np.ones((64, 5), np.int64)
IDS[:, 3:] = 0
IDS[::16] = 1  # one row of each batch is longer than all others


@slow
@pytest.mark.skipif(BACKEND not in CUTS, reason="a step on JAX has shapes that do not depend on values")
def test_a_loss_by_row_of_unequal_lengths_is_refused(client):
    """Each row's mean is over the steps of the longest row that its worker has."""
    model = whole.of_unequal_lengths("mse")
    with pytest.raises(dt.RoleFailedError, match="have a size of 3 on one worker and of 5 on another"):
        dt.fit(model, IDS, np.ones((64, 1, 1)), batch_size=16, shuffle=False, workers=2, verbose=0)


@pytest.mark.skipif(BACKEND != "tensorflow", reason="takes text")
@pytest.mark.parametrize("masks", [pytest.param(True, marks=slow), False])
def test_texts_are_padded_to_the_longest_of_all_workers(client, masks):
    texts, classes = np.array(["a b c d e", *["f g"] * 15] * 3, object), np.arange(48) % 3
    models = []
    for _ in range(2):
        keras.utils.set_random_seed(0)
        models.append(whole.of_texts(masks=masks))
    one, several = models
    one.fit(keras.ops.convert_to_tensor(texts.tolist()), classes, batch_size=16, shuffle=False, verbose=0)
    dt.fit(several, texts, classes, batch_size=16, shuffle=False, workers=2, verbose=0)
    for mine, others in zip(one.get_weights(), several.get_weights(), strict=True):
        np.testing.assert_allclose(mine, others, atol=1e-6)
