"""What ``fit`` refuses because a kind of model, or its library, can't do it: one table.

What is invalid of whatever kind is refused by the settings themselves, and rows that do not fit a model by its kind.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dask_train.fitting.model_kind import FitCall, ModelKind

# What calls ask for, by the words of the table.
_ASKED: dict[str, Callable[[FitCall], Any]] = {
    "workers=0": lambda call: call.workers == 0,
    "ps": lambda call: getattr(call.settings, "ps", 0),
    "scorer": lambda call: getattr(call.settings, "scorer", 0),
    "qid": lambda call: getattr(call.settings, "qid", None) is not None,
    "streaming": lambda call: call.run.window is not None,
    "stop": lambda call: call.run.stop is not None,
    "checkpoint": lambda call: call.run.checkpoint is not None,
    "best": lambda call: call.run.checkpoint is not None and call.run.checkpoint.best is not None,
    "restore_best": lambda call: call.run.checkpoint is not None and call.run.checkpoint.restore_best,
    "in place": lambda call: call.in_place,
}
_OF_ITS_OWN = (
    "{argument}={{call.settings.{argument}!r}} with workers=0, which trains in this process: {argument} would need one "
    "of its own. Leave {argument} out, or pass workers=1 or more."
)
_ONE_PASS = (
    "{{model}} is fitted in one pass over the rows, so there is no step at which {given} could act. Leave it out."
)
_ALL_START = " Leave recovery= out: then all start again, from the last checkpoint."
_SUMS = (
    "recovery='in_place' is for workers that sum in every step and validate themselves, and "
    "{argument}={{call.settings.{argument}}} was passed." + _ALL_START
)
_OWN_STEP = (
    "recovery='in_place' needs Keras' own train_step and compute_metrics, and model {{call.model.name!r}} has a {method} "
    "of its own, which may apply gradients more than once." + _ALL_START
)
_IN_MEMORY = "streaming with {what}: {reason}, and data that is streamed is never all in memory. Leave either out."
# Kinds by their names; what is refused if all of it is asked for, or is so of the model (:meth:`ModelKind.traits`); and
# the error, in which ``call`` and the name of the model's class are put.
REFUSED: tuple[tuple[str, str, str], ...] = (
    ("keras", "workers=0, ps", _OF_ITS_OWN.format(argument="ps")),
    ("keras", "workers=0, scorer", _OF_ITS_OWN.format(argument="scorer")),
    ("keras", "in place, ps", _SUMS.format(argument="ps")),
    ("keras", "in place, scorer", _SUMS.format(argument="scorer")),
    (
        "keras",
        "in place, jax",
        "recovery='in_place' is for Keras on TensorFlow and torch, and this is JAX." + _ALL_START,
    ),
    ("keras", "in place, train_step", _OWN_STEP.format(method="train_step")),
    ("keras", "in place, compute_metrics", _OWN_STEP.format(method="compute_metrics")),
    ("linear", "one pass, stop, checkpoint", _ONE_PASS.format(given="stop or checkpoint")),
    ("linear", "one pass, stop", _ONE_PASS.format(given="stop")),
    ("linear", "one pass, checkpoint", _ONE_PASS.format(given="checkpoint")),
    (
        "linear",
        "best",
        "checkpoint has best=, and a linear model is the best one where its solver ends. Leave best out of "
        "dt.Checkpoint.",
    ),
    (
        "xgboost lightgbm",
        "restore_best",
        "restore_best=True: boosted trees keep the rounds up to the best one by themselves. Pass early_stopping_rounds "
        "to the estimator, or xgboost.callback.EarlyStopping(..., save_best=True).",
    ),
    (
        "xgboost",
        "streaming, ranker",
        "streaming with {model}: a query's rows have to be together, and those of data that is streamed are never all "
        "in memory. Leave streaming out, and use more hosts, or float32.",
    ),
    (
        "xgboost",
        "streaming, device",
        "streaming with device={call.model.device!r}: bins of rows that are streamed are made by CPUs, from files. "
        "Leave device out, or streaming.",
    ),
    ("lightgbm", "streaming, qid", _IN_MEMORY.format(what="qid", reason="a query's rows have to be together")),
    (
        "lightgbm",
        "streaming, linear_tree",
        _IN_MEMORY.format(what="linear_tree", reason="LightGBM keeps all features for the models in leaves"),
    ),
    (
        "lightgbm",
        "streaming, scores its rows",
        _IN_MEMORY.format(
            what="the rows to train on in eval_set", reason="the first worker scores whole sets, from memory"
        ),
    ),
)


def check_refusals(kind: ModelKind, call: FitCall) -> None:
    """Check that a call asks for nothing that its kind of model can't do.

    Raises
    ------
    ValueError
        It does.
    """
    asked = {word for word, is_asked in _ASKED.items() if is_asked(call)}
    asked.update(kind.traits(call))
    for names, words, why in REFUSED:
        if kind.name in names.split() and asked.issuperset(words.split(", ")):
            raise ValueError(why.format(call=call, model=type(call.model).__name__))
