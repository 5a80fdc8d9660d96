"""Optuna's study of a search that is resumed: as it was when its checkpoint was made."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import cloudpickle  # type: ignore[import-untyped]

from dask_train.compat.optuna import take_up_trial
from dask_train.errors import CheckpointError
from dask_train.searching.opening import optuna_here, tell


@dataclass(kw_only=True)
class SearchState:
    """What a checkpoint of a search holds.

    Attributes
    ----------
    study_name
        Of Optuna's study.
    trials, sampler
        Of that study, as Optuna has them.
    ending
        Number, state and value of a trial that ends at this moment, which ``trials`` do not know yet.
    places
        The folders of checkpoints of each trial that has not ended, or is to be begun once more.
    unfinished
        The numbers of the former.
    num_begun, is_stopped, ended, warnings
        As in :class:`~dask_train.searching.optuna_study.OptunaStudy`.
    best
        Number and value of the trial whose model is the best one; None before there is one.
    """

    kind: ClassVar[str] = "search"

    study_name: str
    trials: list[Any] = field(repr=False)
    sampler: Any
    ending: tuple[int, str, float | None] | None
    places: dict[int, list[str]]
    unfinished: list[int]
    num_begun: int
    is_stopped: bool
    ended: list[dict[str, Any]]
    warnings: dict[str, int]
    best: tuple[int, float] | None


def check_goes_on(study: Any, build: Any, state: SearchState | None) -> None:
    """Check that a study's sampler can be kept, and that it and ``build`` are those of the search that is resumed.

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
    if state is not None:
        _check_study(study, state)
        _check_parameters(build, state)


def _check_study(study: Any, state: SearchState) -> None:
    """Check that a study is the one to resume, or a new one; with the same kind of sampler.

    Raises
    ------
    CheckpointError
        It has other trials, or another sampler.
    """
    known = study.get_trials(deepcopy=False)
    for trial in state.trials[: len(known)]:
        now = known[trial.number].params
        if {**now, **trial.params} != now:
            raise CheckpointError(
                f"Trial {trial.number} of study {study.study_name!r} has the parameters {now}, and in the checkpoint "
                f"{trial.params}.",
                f"The checkpoint is of another study, {state.study_name!r}.",
                "Pass the storage and study_name of then, or leave them out; or checkpoint= another folder.",
            )
    if type(study.sampler).__qualname__ != type(state.sampler).__qualname__:
        raise CheckpointError(
            f"The search was begun with {type(state.sampler).__name__}, and sampler= is a "
            f"{type(study.sampler).__name__}.",
            change="Pass the sampler of then, or checkpoint= another folder to begin anew.",
        )


def restore(study: Any, state: SearchState) -> list[Any]:
    """Bring a study to where the search was, and give the trials that are to be taken up, as Optuna's ``Trial``.

    Trials that it lacks are added: all of them, where it is a new one in memory. Its sampler is that of the checkpoint.
    """
    optuna = optuna_here()
    study.add_trials(state.trials[len(study.get_trials(deepcopy=False)) :])
    known = study.get_trials(deepcopy=False)
    running = [number for number in state.unfinished if not known[number].state.is_finished()]
    study.sampler = optuna.samplers.RandomSampler(0)  # to make a Trial may ask it, and no random number is to be drawn
    taken_up = [take_up_trial(study, known[number]) for number in running]
    study.sampler = state.sampler
    if state.ending is not None:
        number, ended, value = state.ending
        if not known[number].state.is_finished():
            tell(study, number, value, optuna.trial.TrialState[ended])
    return taken_up


def _check_parameters(build: Any, state: SearchState) -> None:
    """Check that ``build`` suggests what it has suggested, by building the last trial's model once more.

    Raises
    ------
    CheckpointError
        It asks for other parameters, or for others of their values.
    """
    optuna = optuna_here()
    of_this_search = {ended["number"] for ended in state.ended if ended["state"] == "COMPLETE"}
    last = next((trial for trial in reversed(state.trials) if trial.number in of_this_search), None)
    if last is None:
        return
    suggested: list[str] = []

    class Again(optuna.trial.FixedTrial):  # type: ignore[misc,name-defined,unused-ignore]
        def suggest_float(self, name: str, *args: Any, **more: Any) -> float:
            suggested.append(name)
            return float(super().suggest_float(name, *args, **more))

        def suggest_int(self, name: str, *args: Any, **more: Any) -> int:
            suggested.append(name)
            return int(super().suggest_int(name, *args, **more))

        def suggest_categorical(self, name: str, choices: Any) -> Any:
            suggested.append(name)
            return super().suggest_categorical(name, choices)

    again = Again(dict(last.params), number=last.number)
    try:
        build(again)
    except Exception:
        if not set(suggested) - set(last.params):
            return  # it needs more of a trial than its parameters
    other = {*suggested} ^ {*last.params}
    other |= {name for name, kind in again.distributions.items() if last.distributions.get(name) != kind}
    if other:
        raise CheckpointError(
            f"build suggests something else than when the search was begun: {', '.join(sorted(other))} of trial "
            f"{last.number} of study {state.study_name!r} was {last.distributions}, and is {again.distributions}.",
            change="Pass the function of then, or checkpoint= another folder to begin anew.",
        )
