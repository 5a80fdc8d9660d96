"""Optuna's study of a search: made, or opened again; Optuna is imported here, when it is needed."""

from __future__ import annotations

import math
import os
from typing import Any


def optuna_here() -> Any:
    """The module.

    Raises
    ------
    ImportError
        It is not installed.
    """
    try:
        import optuna
    except ImportError as error:
        raise ImportError("search needs Optuna, which is not installed: pip install 'dask-train[search]'.") from error
    return optuna


def open_study(*, direction: str, sampler: Any, pruner: Any, storage: Any, study_name: Any, seed: int) -> Any:
    """A new study, or the one of that name in that storage.

    Raises
    ------
    TypeError, ValueError
        An argument is none of Optuna's; or a study of that name goes another way.
    """
    optuna = optuna_here()
    for name, value, kind in (
        ("sampler", sampler, optuna.samplers.BaseSampler),
        ("pruner", pruner, optuna.pruners.BasePruner),
    ):
        if value is not None and not isinstance(value, kind):
            raise TypeError(f"{name} is {value!r}; pass one of optuna.{name}s, or leave it out.")
    if study_name is not None and (not isinstance(study_name, str) or not study_name):
        raise ValueError(f"study_name is {study_name!r}; it is a string that is not empty.")
    if storage is not None and not isinstance(storage, str | os.PathLike | optuna.storages.BaseStorage):
        raise TypeError(f"storage is {storage!r}; pass a file for SQLite, a URL, or one of optuna.storages.")
    study = optuna.create_study(
        storage=_storage(storage),
        sampler=sampler or optuna.samplers.TPESampler(seed=seed),
        pruner=pruner or optuna.pruners.NopPruner(),
        study_name=study_name,
        direction=direction,
        load_if_exists=study_name is not None,
    )
    if len(study.directions) != 1 or study.direction.name.lower() != direction:
        known = ", ".join(each.name.lower() for each in study.directions)
        raise ValueError(
            f"Study {study_name!r} is there already, to {known}, and direction is {direction!r}. Pass another "
            "study_name, or its direction."
        )
    return study


def points_left(study: Any) -> float:
    """How many points of its grid a study has not come to; infinite without a grid.

    Optuna's sampler takes a point twice while others try the last ones, and tells its size to nobody.
    """
    sampler = study.sampler
    num_points = getattr(sampler, "_n_min_trials", None)
    if not isinstance(sampler, optuna_here().samplers.GridSampler) or num_points is None:
        return math.inf
    visited = {trial.system_attrs.get("grid_id") for trial in study.get_trials(deepcopy=False)}
    return float(num_points - len(visited - {None}))


def _storage(storage: Any) -> Any:
    """As Optuna takes it; a path is a file of SQLite."""
    if not isinstance(storage, str | os.PathLike):
        return storage
    name = os.fspath(storage)
    return name if "://" in name else f"sqlite:///{os.path.abspath(name)}"
