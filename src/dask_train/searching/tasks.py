"""What is trained for each trial of ``search``: the model that the user's ``build`` returns, of whatever kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from reprlib import repr as short
from typing import Any

from dask_train.fitting.kinds import searched_kind_of, searched_kinds_here
from dask_train.fitting.model_kind import ModelKind, TrialRows, TrialSpec
from dask_train.frameworks.base import Framework
from dask_train.searching.checks import OtherKindError, UnfitRowsError, check_built

# Settings of training that mean something in every search: what a sampler draws.
_OF_ANY_SEARCH = ("seed",)


@dataclass(kw_only=True)
class TrialTasks:
    """What is trained for each trial.

    Attributes
    ----------
    build
        The user's.
    rows
        What all trials are trained on.
    arguments
        Settings of all trials that the user has passed, where a trial has none of its own.
    defaults
        Those that a search has by itself, for kinds of model that have them.
    kind
        The kind of the models, which the first one tells; None before.
    """

    build: Callable[[Any], Any]
    rows: TrialRows
    arguments: Mapping[str, Any]
    defaults: Mapping[str, Any] = field(default_factory=dict)
    kind: ModelKind | None = field(default=None, init=False)

    def task(self, trial: Any) -> TrialSpec:
        """Return what is to be trained for a trial of Optuna.

        Raises
        ------
        OtherKindError, UnfitRowsError
            No trial can be trained so.
        TypeError, ValueError
            This one can't.
        """
        model, built_settings = self._built(trial)
        check_built(model)
        kind = searched_kind_of(model)
        self._check_given(kind, model)
        if self.kind is not None and kind is not self.kind:
            raise TypeError(
                f"build returned a {type(model).__name__}, and the processes of this search train models of the kind "
                "of its first one. Search each kind by itself."
            )
        if not kind.takes_missing and (text := self.rows.missing()):
            raise UnfitRowsError(text)
        self.kind = kind
        settings = kind.settings_of_trial(model, {**self.defaults, **self.arguments}, built_settings)
        return kind.trial(model, settings, self.rows)

    def _built(self, trial: Any) -> tuple[Any, dict[str, Any]]:
        built = self.build(trial)
        if not isinstance(built, tuple):
            return built, {}
        if len(built) != 2 or not isinstance(built[1], Mapping):
            raise TypeError(f"build returned a tuple of {len(built)}; it returns a model, or a model and a dict.")
        return built[0], dict(built[1])

    def _check_given(self, kind: ModelKind, model: Any) -> None:
        known = {*_OF_ANY_SEARCH, *(each.name for each in fields(kind.settings))}
        if "validation_data" in known:
            known.add("validation_split")
        for name in sorted(set(self.arguments) - known):
            raise OtherKindError(
                f"{name}={short(self.arguments[name])} is not of a {type(model).__name__}, which build returned. Leave "
                "it out."
            )


def largest_framework() -> Framework:
    """Return the adapter whose processes take the most memory, of those that trials may have as far as is known."""
    return max((kind.framework() for kind in searched_kinds_here()), key=lambda each: each.role_bytes)
