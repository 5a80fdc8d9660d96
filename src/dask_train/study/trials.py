"""The trials of one call of ``search``: asked of Optuna, built, judged, and told to it. Knows no cluster."""

from __future__ import annotations

import math
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from dask_train.fit_roles.task import FitTask
from dask_train.fit_roles.trials import Done, Order, is_better
from dask_train.study.opening import optuna_here, points_left

# User attributes of trials, which Optuna keeps: why it failed, what it repeats, its best epoch, how long it took.
ERROR, RETRY_OF, EPOCH, SECONDS = "error", "retry_of", "epoch", "seconds"
Parts = tuple[dict[str, Any], list[Any]]


@dataclass(kw_only=True)
class Handed:
    """A trial that was asked for and is not finished.

    Attributes
    ----------
    trial
        Optuna's.
    order
        What its workers are sent; None where it could not be built.
    began
        Monotonic seconds.
    scores
        The last ones that its workers have told.
    is_told
        Whether Optuna knows how it ended, and only its workers go on.
    """

    trial: Any
    order: Order | None = field(default=None, repr=False)
    began: float = field(default_factory=time.monotonic)
    scores: dict[str, Any] = field(default_factory=dict)
    is_told: bool = False


@dataclass(frozen=True, kw_only=True)
class Ended:
    """A trial that this call has finished, as the table shows it."""

    number: int
    state: str
    params: dict[str, Any]
    value: float | None
    seconds: float
    error: str = ""
    traceback: str = field(default="", repr=False)


def _closed(_: Any) -> FitTask:
    raise AssertionError("the search is over")


class Trials:
    """See the module.

    Parameters
    ----------
    study
        Optuna's.
    built
        Makes of a trial of Optuna what is to be trained; raises what the user's ``build`` raises.
    metric
        The score that counts.
    most
        How many trials are begun, not counting those that repeat a lost one.
    timeout_s
        No trial is begun after so many seconds; None for no limit.

    Attributes
    ----------
    ended
        Those that are finished.
    handed
        Those that are not, by number.
    best
        Number, value and model of the best one of this call, taken apart; None before there is one.
    """

    def __init__(
        self, study: Any, built: Callable[[Any], FitTask], *, metric: str, most: int, timeout_s: float | None
    ) -> None:
        optuna = optuna_here()
        self.study, self._built, self._metric = study, built, metric
        self._most = int(min(most, max(0.0, points_left(study))))
        self._state, self._pruned = optuna.trial.TrialState, optuna.TrialPruned
        self._create = optuna.trial.create_trial
        self.maximize = study.direction.name == "MAXIMIZE"
        self._deadline = math.inf if timeout_s is None else time.monotonic() + timeout_s
        self._num_begun = self._num_retries = 0
        self._is_stopped = False
        study.stop = self._stop  # samplers that have no more to suggest call it, and Optuna's own is for `optimize`
        self.handed: dict[int, Handed] = {}
        self.ended: list[Ended] = []
        self.best: tuple[int, float, Parts] | None = None
        complete = study.get_trials(deepcopy=False, states=(self._state.COMPLETE,))
        self._to_beat: float | None = study.best_value if complete else None

    def _stop(self) -> None:
        self._is_stopped = True

    @property
    def num_left(self) -> int:
        """How many are still to be begun."""
        if time.monotonic() >= self._deadline:
            return 0
        return self._num_retries + (0 if self._is_stopped else self._most - self._num_begun)

    @property
    def best_ended(self) -> Ended | None:
        """The best one of this call as the table shows it."""
        return next((ended for ended in self.ended if self.best is not None and ended.number == self.best[0]), None)

    def next(self) -> Handed | None:
        """Ask for a trial and build it; None where there are no more. Those that can't be built are failures."""
        while self.num_left > 0:
            handed = Handed(trial=self.study.ask())
            self.handed[handed.trial.number] = handed
            if RETRY_OF in handed.trial.user_attrs:
                self._num_retries = max(0, self._num_retries - 1)
            else:
                self._num_begun += 1
            try:
                task = self._built(handed.trial)
            except self._pruned:
                self._tell(handed, "PRUNED")
            except Exception as error:
                self.failed(handed, f"{type(error).__name__}: {error}", traceback=traceback.format_exc())
            else:
                handed.order = Order(
                    number=handed.trial.number,
                    task=task,
                    metric=self._metric,
                    maximize=self.maximize,
                    to_beat=self._to_beat,
                )
                return handed
        return None

    def scored(self, handed: Handed, scores: dict[str, Any]) -> bool:
        """Let the pruner see the scores of an epoch; whether the trial is to end, which Optuna has been told then."""
        handed.scores = scores
        value = scores.get(self._metric)
        if handed.is_told or "step" in scores or value is None or math.isnan(value):
            return False
        handed.trial.report(value, scores["epoch"])
        if not handed.trial.should_prune():
            return False
        self._tell(handed, "PRUNED", value)
        return True

    def done(self, handed: Handed, done: Done) -> None:
        """A trial has been gone through."""
        if handed.is_told:
            return
        if done.value is None:
            self.failed(handed, "It ended before its first epoch did.")
            return
        handed.trial.set_user_attr(EPOCH, done.epoch)
        self._tell(handed, "COMPLETE", done.value, seconds=done.seconds)
        if is_better(done.value, self._to_beat, maximize=self.maximize):
            self._to_beat = done.value
            assert done.parts is not None
            self.best = (done.number, done.value, done.parts)

    def failed(self, handed: Handed, error: str, *, traceback: str = "", seconds: float | None = None) -> None:
        """A trial has raised, after so many seconds in its process."""
        if not handed.is_told:
            self._tell(handed, "FAIL", seconds=seconds, error=error, traceback=traceback)

    def lost(self, handed: Handed, error: str) -> None:
        """The workers of a trial are gone: it is recorded, and begun once more, with the same parameters."""
        if handed.is_told:
            return
        frozen = self._tell(handed, "FAIL", error=error)
        if RETRY_OF in frozen.user_attrs or time.monotonic() >= self._deadline:
            return
        self.study.add_trial(
            self._create(
                state=self._state.WAITING,
                params=frozen.params,
                distributions=frozen.distributions,
                user_attrs={RETRY_OF: frozen.number},
                system_attrs=frozen.system_attrs,  # where a grid's sampler notes which point it is
            )
        )
        self._num_retries += 1

    def close(self) -> None:
        """Leave Optuna's study as it was made; it may live for long, and holds neither data nor this any more."""
        del self.study.stop
        self._built = _closed

    def cut_short(self, why: str) -> None:
        """The search ends now: what is not finished has failed."""
        for handed in list(self.handed.values()):
            self.failed(handed, why)

    def _tell(
        self,
        handed: Handed,
        state: str,
        value: float | None = None,
        *,
        seconds: float | None = None,
        error: str = "",
        traceback: str = "",
    ) -> Any:
        seconds = time.monotonic() - handed.began if seconds is None else seconds
        handed.is_told = True
        trial = handed.trial
        del self.handed[trial.number]
        trial.set_user_attr(SECONDS, round(seconds, 3))
        if error:
            trial.set_user_attr(ERROR, error)
        frozen = self.study.tell(trial, value if state == "COMPLETE" else None, self._state[state])
        self.ended.append(
            Ended(
                number=trial.number,
                state=state,
                params=dict(frozen.params),
                value=value,
                seconds=seconds,
                error=error,
                traceback=traceback,
            )
        )
        return frozen
