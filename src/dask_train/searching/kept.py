"""A search as it is kept: its trials, its sampler and its best model in a checkpoint, and beside it those of trials.

One checkpoint is made whenever a trial is begun or ends, before Optuna is told of the end. So the best model, and what
is known of each trial, are of one moment, whenever the client dies.
"""

from __future__ import annotations

import re
import secrets
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cloudpickle  # type: ignore[import-untyped]

from dask_train.checkpoint.place import CheckpointPlace
from dask_train.checkpoint.policy import Checkpoint
from dask_train.searching import best_model
from dask_train.searching.going_on import SearchState, check_parameters, check_study
from dask_train.searching.kept_place import KeptPlace
from dask_train.training.launch import place_of

if TYPE_CHECKING:
    from dask_train.trainers.common.entry import LoopRole

# Under this name the best trial's value is the score of a checkpoint; more is better.
_VALUE = "value of the best trial"
_STATE, _MODEL = "search.pickle", "model"
_OF_A_TRIAL = re.compile(r"trial-\d{8,}-\d+-[0-9a-f]{8}")

# A Keras model taken apart, or another model as it is.
Model = Any


@contextmanager
def kept_search(
    policy: Checkpoint, arguments: Mapping[str, Any], *, resume: bool, of_trials: bool = True
) -> Iterator[KeptSearch]:
    """Claim the place where a search with these arguments is kept, while this lasts; see :meth:`KeptSearch.open`."""
    place = place_of(policy, f"search-{uuid.uuid4().hex[:6]}", resume)
    kept = KeptSearch(policy, place, arguments, of_trials=of_trials)
    try:
        kept.open()
        yield kept
    finally:
        kept.close()


class KeptSearch(KeptPlace):
    """Where a search is kept; for one client.

    Parameters
    ----------
    policy
        How often trials keep checkpoints, and how many stay.
    place
        Where.
    arguments
        What fixes the search; "metric" and "direction" among it.
    of_trials
        Whether trials in hand keep checkpoints of their own, as models do that train in loops; else they begin anew.

    Attributes
    ----------
    state
        What an earlier call has left there, where this one goes on; else None.
    best_parts
        The best model of then.
    """

    def __init__(
        self, policy: Checkpoint, place: CheckpointPlace, arguments: Mapping[str, Any], *, of_trials: bool = True
    ) -> None:
        super().__init__(replace(place, best=_VALUE, mode="max"), arguments, _STATE)
        self._policy, self._metric, self.of_trials = policy, arguments["metric"], of_trials
        self._mode = "max" if arguments["direction"] == "maximize" else "min"
        self.state: SearchState | None = None
        self.best_parts: Model | None = None
        self._best: int | None = None  # the trial whose model is kept

    def open(self) -> None:
        """Claim the place, and see what there is to go on with; see :meth:`KeptPlace.load` for errors."""
        loaded = self.load()
        if loaded is None:
            self._remove_folders_of_trials()
            return
        self.state = SearchState(**loaded[0])
        if self.state.best is not None:
            best = self._folder.load_best(self.scratch)
            assert best is not None
            self.best_parts, self._best = best_model.kept(best.folder / _MODEL), self.state.best[0]

    @property
    def study_name(self) -> str | None:
        """The name of the study that is gone on with."""
        return None if self.state is None else self.state.study_name

    def check_study(self, study: Any, build: Any) -> None:
        """See that a study's sampler can be kept, and that it and ``build`` are those of the search that goes on.

        Raises
        ------
        TypeError
            The sampler can't be pickled.
        CheckpointError
            They are not.
        """
        try:
            cloudpickle.dumps(study.sampler)
        except Exception as error:
            raise TypeError(
                f"sampler is a {type(study.sampler).__name__}, which can't be pickled: {error}. Pass another one, or "
                "leave checkpoint= out."
            ) from error
        if self.state is not None:
            check_study(study, self.state)
            check_parameters(build, self.state)

    def save(self, state: SearchState, best: Model | None) -> None:
        """Keep all of it; the model is written where it is another trial's than before.

        Raises
        ------
        CheckpointError
            It can't be written.
        """
        number = None if state.best is None else state.best[0]
        is_new = number != self._best

        def more(folder: Path) -> None:
            if is_new and best is not None:
                best_model.keep(folder / _MODEL, best)

        value = None if state.best is None or not is_new else state.best[1]
        self.store(vars(state), more, score=value if value is None or self._mode == "max" else -value)
        self._best = number

    def new_place(self, number: int, num_before: int) -> str:
        """Return the name of a folder for a trial that is begun, or begun again: one writer each."""
        return f"trial-{number:08d}-{num_before}-{secrets.token_hex(4)}"

    def with_checkpoints(self, role: LoopRole, name: str) -> LoopRole:
        """Return the same work of a trial, with checkpoints in that folder."""
        policy = replace(self._policy, url=self.url_of(name), best=self._metric, mode=self._mode, restore_best=False)
        kept: LoopRole = replace(role, task=replace(role.task, checkpoint=policy, resume=True))  # type: ignore[type-var]
        return kept

    def url_of(self, name: str) -> str:
        """Return where the folder of that name lies."""
        return f"{self.url.rstrip('/')}/{name}"

    def remove(self, names: Iterable[str]) -> None:
        """Remove checkpoints of a trial that has ended; what can't be removed is left there."""
        system, root = self.place.opened()
        for name in names:
            with suppress(Exception):
                system.rm(f"{root}/{name}", recursive=True)

    def end(self) -> None:
        """End the search: no trial needs its checkpoints any more."""
        with suppress(Exception):
            self._remove_folders_of_trials()

    def _remove_folders_of_trials(self) -> None:
        system, root = self.place.opened()
        system.invalidate_cache()
        names = [str(entry["name"]).rstrip("/").rpartition("/")[2] for entry in system.ls(root, detail=True)]
        self.remove(name for name in names if _OF_A_TRIAL.fullmatch(name))
