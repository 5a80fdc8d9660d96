"""Arguments that ``fit`` refuses for a kind of model or its library: one table, and checks of parameter servers.

Settings classes refuse values that are invalid for all kinds. Each kind refuses rows that its models can't take.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dask_train.fitting.model_kind import FitCall, ModelKind
from dask_train.fitting.stop_checks import monitored
from dask_train.input_errors import warn_at_the_call

# Conditions of the table -> whether a call meets them.
_ASKED: dict[str, Callable[[FitCall], Any]] = {
    "workers=0": lambda call: call.workers == 0,
    "ps": lambda call: getattr(call.settings, "ps", 0),
    "no ps": lambda call: not getattr(call.settings, "ps", 0),
    "scorer": lambda call: getattr(call.settings, "scorer", 0),
    "qid": lambda call: getattr(call.settings, "qid", None) is not None,
    "streaming": lambda call: call.run.window is not None,
    "stop": lambda call: call.run.stop is not None,
    "checkpoint": lambda call: call.run.checkpoint is not None,
    "best": lambda call: call.run.checkpoint is not None and call.run.checkpoint.best is not None,
    "restore_best": lambda call: call.run.checkpoint is not None and call.run.checkpoint.restore_best,
    "in place": lambda call: call.in_place,
    "wire": lambda call: getattr(call.settings, "wire", None),
    "sync_every": lambda call: getattr(call.settings, "sync_every", None),
    "follows": lambda call: call.run.follows is not None,
    "virtual_workers": lambda call: getattr(call.settings, "virtual_workers", None) is not None,
    "gpus": lambda call: call.run.gpus == 1,
}
_BESIDE = (
    "{word}={value!r} with workers=0, which trains in this process: {word} would need one of its own. Leave {word} "
    "out, or pass workers=1 or more."
)
_AT_A_STEP = "{model} is fitted in one pass over the rows, so there is no step at which {word} could act. Leave it out."
_ALONE = (
    "{in_place} is for workers that sum in every step and validate themselves, and {word}={value} was passed. {change}"
)
_FOLLOWS = (
    "{in_place} is for workers that keep the rows in memory, sum in every step and validate themselves, and "
    "{word}={value!r} was passed. Leave {word}= out, or pass a single number of workers."
)
_SAME_BITS = (
    "virtual_workers={call.settings.virtual_workers!r} gives the same bits for any number of workers, and "
    "{word}={value!r}, which sends less between them, gives others. Leave either out."
)
_OWN_STEP = (
    "{in_place} needs Keras' own train_step and compute_metrics, and model {call.model.name!r} has a {word} of its "
    "own, which may apply gradients more than once. {change}"
)
_IN_MEMORY = ", and data that is streamed is never all in memory. Leave either out."
# (Names of kinds; conditions that must all hold; template of the error.) A condition is a key of _ASKED, or a trait of
# the model (:meth:`ModelKind.traits`). The template is formatted with ``call``; ``model``, the name of its class;
# ``word``, the last condition, and ``value``, if that is a setting; ``in_place``, the argument that asks for
# replacement in place, and ``change``, what to pass instead.
REFUSED: tuple[tuple[str, str, str], ...] = (
    ("keras", "workers=0, ps", _BESIDE),
    ("keras", "workers=0, scorer", _BESIDE),
    ("keras torch", "follows, streaming", _FOLLOWS),
    (
        "torch",
        "virtual_workers, streaming",
        "virtual_workers={call.settings.virtual_workers!r} is for rows that are kept in memory, and {word}={value!r} "
        "was passed. Leave either out.",
    ),
    (
        "torch",
        "virtual_workers, gpus",
        "virtual_workers={call.settings.virtual_workers!r} is for workers that compute on CPUs, as sums on a GPU have "
        "no fixed order, and {word}={value!r} was passed. Pass gpus=0, or leave virtual_workers= out.",
    ),
    ("torch", "virtual_workers, wire", _SAME_BITS),
    ("torch", "virtual_workers, sync_every", _SAME_BITS),
    ("keras", "follows, no ps, scorer", _FOLLOWS),
    (
        "keras",
        "ps, wire",
        "wire={value!r} is for workers that sum gradients, and with ps={call.settings.ps} each brings its own to "
        "parameter servers. Leave wire= or ps= out.",
    ),
    (
        "torch",
        "in place, sync_every",
        "{in_place} is for workers that sum in every step, and sync_every={value} was passed. {change}",
    ),
    ("keras", "in place, ps", _ALONE),
    ("keras", "in place, scorer", _ALONE),
    ("keras", "in place, train_step", _OWN_STEP),
    ("keras", "in place, compute_metrics", _OWN_STEP),
    ("linear", "one pass, stop", _AT_A_STEP),
    ("linear", "one pass, checkpoint", _AT_A_STEP),
    (
        "linear",
        "one pass, in place",
        "{model} is fitted in one pass over the rows, so there is no step at which recovery='in_place' could act. "
        "Leave it out.",
    ),
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
    ("lightgbm", "streaming, qid", "streaming with qid: a query's rows have to be together" + _IN_MEMORY),
    (
        "lightgbm",
        "streaming, linear_tree",
        "streaming with linear_tree: LightGBM keeps all features for the models in leaves" + _IN_MEMORY,
    ),
    (
        "lightgbm",
        "streaming, scores its rows",
        "streaming with the rows to train on in eval_set: the first worker scores whole sets, from memory" + _IN_MEMORY,
    ),
)


def check_refusals(kind: ModelKind, call: FitCall) -> None:
    """Check that a call combines no arguments that its kind of model can't do.

    Raises
    ------
    ValueError
        The call meets all conditions of an entry of :data:`REFUSED`.
    """
    traits = {word for word, is_asked in _ASKED.items() if is_asked(call)}
    traits.update(kind.traits(call))
    for names, words, why in REFUSED:
        if kind.name in names.split() and traits.issuperset(words.split(", ")):
            word = words.rpartition(", ")[2]
            value = getattr(call.settings, word, getattr(call.run, word, None))
            in_place, change = _in_place(call)
            named = {"model": type(call.model).__name__, "word": word, "value": value}
            raise ValueError(why.format(call=call, in_place=in_place, change=change, **named))


def _in_place(call: FitCall) -> tuple[str, str]:
    if call.run.follows is not None:
        return f"workers={tuple(call.run.follows)}", "Pass a single number of workers."
    return "recovery='in_place'", "Leave recovery= out: then all start again, from the last checkpoint."


def check_servers(ps: Any, scorer: Any, *, validates: bool) -> None:
    """Check the numbers of parameter servers and scorers.

    Raises
    ------
    ValueError
        A number is invalid, or there is a scorer without validation data.
    """
    for name, value in (("ps", ps), ("scorer", scorer)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise ValueError(f"{name} is {value!r}; it is a whole number from 0.")
    if scorer and not (validates and scorer == 1):
        raise ValueError(
            f"scorer={scorer!r}: one scorer validates beside training. Pass scorer=1 with validation_data, or leave it "
            "out."
        )


def check_served(model: Any, ps: int) -> None:
    """Check that ``ps`` parameter servers can share a model.

    :func:`~dask_train.fitting.checks.check_rows` has built the model, where it could.

    Raises
    ------
    ValueError
        The model has no weights yet, too few of them, or an optimizer that can't be shared.
    """
    from dask_train.fitting.roles.shards import check_sharing
    from dask_train.keras_models.state import held_optimizers, is_built

    if not ps:
        return
    if not is_built(model):
        raise ValueError(f"Model {model.name!r} has no weights yet. Build it first, or give it an Input, to use ps.")
    if len(model.trainable_variables) < ps:
        raise ValueError(
            f"ps={ps} servers share {len(model.trainable_variables)} trainable weights of model {model.name!r}: some "
            "would have none. Use a smaller ps, or 0."
        )
    for optimizer, _ in held_optimizers(model) if ps > 1 else ():
        check_sharing(_like(optimizer, model.trainable_variables))


def _like(optimizer: Any, variables: Sequence[Any]) -> Any:
    """Return this optimizer if it is built, else a copy of it that is."""
    if optimizer.built:
        return optimizer
    twin = type(optimizer).from_config(optimizer.get_config())
    twin.build(list(variables))
    return twin


def check_callbacks_with_servers(callbacks: Sequence[Any], ps: int, scorer: int) -> None:
    """Check that callbacks work while other workers train on, or while a scorer validates.

    Raises
    ------
    ValueError
        One does not.
    """
    import keras

    for callback in callbacks if ps or scorer else ():
        name = type(callback).__name__
        if isinstance(callback, keras.callbacks.SwapEMAWeights):
            raise ValueError(
                f"Callback {name} puts moving averages in place of the weights for a while, and "
                + (
                    "with parameter servers other workers train on meanwhile. "
                    if ps
                    else "a scorer does not see them. "
                )
                + "Leave it out: with use_ema=True training ends with the averages; or train with ps=0, scorer=0."
            )
        if scorer and (monitor := monitored(callback)).startswith("val_"):
            raise ValueError(
                f"Callback {name} looks at {monitor!r} when an epoch ends, and a scorer finds it later, while training "
                f"continues. Leave scorer out; or, to stop, pass stop=dt.Patience({monitor!r}, 3) in its place."
            )


def warn_of_idle_callbacks(callbacks: Sequence[Any]) -> None:
    """Warn of callbacks that monitor a ``val_`` score in a fit without validation. Keras warns, too, in a worker."""
    for callback in callbacks:
        if (monitor := monitored(callback)).startswith("val_"):
            warn_at_the_call(
                f"Callback {type(callback).__name__} looks at {monitor!r}, which nothing computes, so it never acts. "
                "Pass validation_data or validation_split, or let it monitor another score."
            )
