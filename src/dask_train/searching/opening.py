"""Optuna's study of a search: made, or opened again; Optuna is imported here, when it is needed."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dask_train.compat.optuna import num_grid_points
from dask_train.extras import check_installed, install_command
from dask_train.stores import is_url, named_place


def optuna_here() -> Any:
    """Import Optuna, or say how to install it.

    Raises
    ------
    ImportError
        It is not installed.
    """
    check_installed("dt.search", "optuna", install_command("search"))
    import optuna

    return optuna


def open_study(
    study: Any = None,
    *,
    direction: str | None,
    sampler: Any,
    pruner: Any,
    storage: Any,
    study_name: Any,
    seed: int,
) -> Any:
    """Return the given study, else a new one or the one of that name in that storage.

    Raises
    ------
    TypeError, ValueError
        An argument is not one of Optuna's; the study goes another way, or has several objectives; the storage can't be
        opened.
    """
    optuna = optuna_here()
    if study is not None:
        arguments = {"sampler": sampler, "pruner": pruner, "storage": storage, "study_name": study_name}
        return _given(study, direction, {name for name, value in arguments.items() if value is not None})
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
    with _quietly(optuna.logging):  # its line about a new study has escape codes, in a saved notebook, too
        study = optuna.create_study(
            storage=_storage(storage),
            sampler=sampler or default_sampler(seed),
            pruner=pruner or optuna.pruners.NopPruner(),
            study_name=study_name,
            direction=direction or "maximize",
            load_if_exists=study_name is not None,
        )
    _check_direction(study, direction or "maximize", "Pass another study_name, or its direction.")
    return study


def default_sampler(seed: int) -> Any:
    """Return the sampler of searches that were given none."""
    return optuna_here().samplers.TPESampler(seed=seed % 2**32)


def _given(study: Any, direction: str | None, beside: set[str]) -> Any:
    """Return a study of the user's own, which knows all that it needs."""
    if not isinstance(study, optuna_here().Study):
        raise TypeError(f"study is {study!r}; pass an optuna.Study, or leave it out.")
    if beside:
        raise ValueError(
            f"There are study and {', '.join(sorted(beside))}; a study has its own. Pass one of them: make the study "
            "with optuna.create_study(sampler=..., pruner=..., storage=..., study_name=...)."
        )
    _check_direction(study, direction or study.directions[0].name.lower(), "Leave direction out.")
    return study


@contextmanager
def _quietly(logging: Any) -> Iterator[None]:
    verbosity = logging.get_verbosity()
    logging.set_verbosity(max(verbosity, logging.WARNING))
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)


def _check_direction(study: Any, direction: str, change: str) -> None:
    known = ", ".join(each.name.lower() for each in study.directions)
    if len(study.directions) != 1:
        raise ValueError(
            f"Study {study.study_name!r} has {len(study.directions)} objectives ({known}), and search follows one. "
            "Pass a study of one objective; for several, train trials with dt.fit between study.ask() and study.tell()."
        )
    if known != direction:
        raise ValueError(f"Study {study.study_name!r} is there to {known}, and direction is {direction!r}. {change}")


def tell(study: Any, trial: Any, value: float | None, state: Any) -> None:
    """Tell a study how a trial has ended, of which it may be the number; also one that is no point of its grid."""
    try:
        study.tell(trial, value, state)
    except KeyError as unknown:
        # Optuna's grid sampler looks up the grid point of each finished trial; an enqueued one has none.
        if unknown.args != ("grid_id",):
            raise


def points_left(study: Any) -> float:
    """Return how many points of its grid a study has not come to; infinite without a grid.

    Optuna's sampler takes a point twice while others try the last ones, and does not show its size.
    """
    num_points = num_grid_points(study.sampler)
    if num_points is None:
        return math.inf
    visited = {trial.system_attrs.get("grid_id") for trial in study.get_trials(deepcopy=False)}
    waiting = study.get_trials(deepcopy=False, states=(optuna_here().trial.TrialState.WAITING,))
    enqueued = sum("grid_id" not in trial.system_attrs for trial in waiting)  # which are outside the grid
    return float(num_points - len(visited - {None}) + enqueued)


def _storage(storage: Any) -> Any:
    """Open a storage as Optuna takes it; a path is a file of SQLite."""
    if not isinstance(storage, str | os.PathLike):
        return storage
    name = named_place(storage)
    if is_url(name):
        return name
    folder = os.path.dirname(os.path.abspath(name))
    if not os.path.isdir(folder) or os.path.isdir(name):
        what = "is a folder" if os.path.isdir(name) else f"is in {folder!r}, which does not exist"
        raise ValueError(f"storage is {name!r}, which {what}. Pass the path of a file in a folder that exists.")
    return f"sqlite:///{os.path.abspath(name)}"
