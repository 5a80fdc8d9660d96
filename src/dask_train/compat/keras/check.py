"""The private parts of Keras that the library uses: which, and whether this version of Keras has them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

from dask_train.errors import VersionMismatchError

# Of which objects which attributes; a trainer has its own while ``fit`` runs only.
ATTRIBUTES = {
    "model": (
        "_call_has_training_arg",
        "_compile_loss",
        "_compile_metrics",
        "_compute_loss",
        "_flatten_layers",
        "_symbolic_build",
    ),
    "layer": (
        "_layers",
        "_loss_ids",
        "_losses",
        "_non_trainable_variables",
        "_tracker",
        "_trainable",
        "_trainable_variables",
    ),
    "optimizer": (
        "_backend_apply_gradients",
        "_check_variables_are_known",
        "_filter_empty_gradients",
        "_iterations",
        "_learning_rate",
        "_trainable_variables",
        "_use_weight_decay",
        "_var_key",
    ),
    "variable": ("_autocast", "_trainable"),
    "losses that are compiled": ("_user_loss", "_user_loss_weights"),
    "metrics that are compiled": ("_user_metrics", "_user_weighted_metrics"),
    "config": ("_auto_config",),
    "trainer": ("_initial_epoch",),
}
# What modules have, and what is imported of them.
MODULES = {
    "keras.src.backend": ("compute_output_spec", "get_keras_mask", "random", "set_keras_mask"),
    "keras.src.backend.common.masking": ("get_tensor_attr", "set_tensor_attr"),
    "keras.src.backend.common.stateless_scope": ("get_stateless_scope",),
    "keras.src.losses.loss": ("apply_mask", "reduce_weighted_values", "squeeze_or_expand_to_same_rank"),
    "keras.src.losses.losses": ("LossFunctionWrapper",),
    "keras.src.metrics.reduction_metrics": ("MeanMetricWrapper",),
    "keras.src.models.functional": ("Functional", "functional_like_constructor"),
    "keras.src.trainers.compile_utils": ("CompileLoss", "MetricsList"),
    "keras.src.saving.saving_lib": ("DiskIOStore", "H5IOStore", "_load_state", "_save_state"),
    "keras.src.saving.serialization_lib": ("ObjectSharingScope",),
    "keras.src.utils.python_utils": ("is_default", "pythonify_logs"),
}
_REDUCED = ("values", "sample_weight", "mask", "reduction", "dtype")


def check_private_parts(model: Any) -> None:
    """Check that Keras has what ``fit`` calls, and uses what ``fit`` puts in place of its own.

    What would be missing is an error sooner or later. What Keras would pass by would be none: losses, say, that count
    otherwise than in one process.

    Parameters
    ----------
    model : keras.Model
        Compiled.

    Raises
    ------
    VersionMismatchError
        A part is gone, or Keras does without it.
    """
    import keras

    if moved := [*_gone(model), *_passed_by()]:
        raise VersionMismatchError(
            f"Keras {keras.__version__} is none that fit can train with: {'; '.join(moved)}.",
            "These are private parts of Keras, which a version may move; what fit does by them would not be done.",
            "Install a version of Keras that docs/reference/backends.md names, or a later one of dask-train.",
        )


def _gone(model: Any) -> Iterator[str]:
    for module, names in MODULES.items():
        try:
            imported = import_module(module)
        except ImportError:
            yield f"there is no {module}"
        else:
            yield from (f"{module} has no {name}" for name in names if not hasattr(imported, name))
    owners = {"model": model, "layer": model, "optimizer": model.optimizer}
    owners |= {"variable": next(iter(model.variables), None)}
    owners |= {"losses that are compiled": getattr(model, "_compile_loss", None)}
    owners |= {"metrics that are compiled": getattr(model, "_compile_metrics", None)}
    for owner, value in owners.items():
        if value is not None:
            names = ATTRIBUTES[owner]
            yield from (f"a {type(value).__name__} has no {name}" for name in names if not hasattr(value, name))


def _passed_by() -> Iterator[str]:
    import keras
    from keras.src.losses import loss
    from keras.src.trainers import compile_utils

    reduces = getattr(loss, "reduce_weighted_values", None)
    if reduces is not None and tuple(inspect.signature(reduces).parameters) != _REDUCED:
        yield f"reduce_weighted_values does not take {', '.join(_REDUCED)}"
    looks_up: list[tuple[str, Callable[..., Any], tuple[str, ...]]] = [
        ("Loss.__call__", keras.losses.Loss.__call__, ("reduce_weighted_values",)),
        ("Model.compute_loss", keras.Model.compute_loss, ("_aggregate_additional_loss",)),
        ("CompileLoss.call", compile_utils.CompileLoss.call, ("_flat_losses",)),
        ("CompileMetrics.update_state", compile_utils.CompileMetrics.update_state, ("_flat_metrics", "update_state")),
        ("Model.fit", keras.Model.fit, ("train_function", "_should_eval", "_initial_epoch", "CallbackList")),
        ("Model.evaluate", keras.Model.evaluate, ("test_function",)),
    ]
    for where, function, names in looks_up:
        known = inspect.unwrap(function).__code__.co_names
        yield from (f"{where} does not use {name}" for name in names if name not in known)
