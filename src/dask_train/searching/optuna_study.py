"""The trials of a search with Optuna: asked of it, built, judged, and reported to it."""

from __future__ import annotations

import math
import time
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from dask_train.arguments import nearest
from dask_train.checkpoint.best import is_better
from dask_train.errors import RoleFailedError
from dask_train.fitting.model_kind import TrialSpec
from dask_train.input_errors import warn_at_the_call
from dask_train.masking import masked
from dask_train.searching.checks import OtherKindError, UnfitRowsError
from dask_train.searching.going_on import SearchState, restore
from dask_train.searching.kept import KeptSearch, Model
from dask_train.searching.opening import default_sampler, optuna_here, points_left, tell
from dask_train.searching.stops import follow_stop, leave_stop
from dask_train.searching.study import FinishedTrial, Handed, Study, closed
from dask_train.searching.worker import NoMetricError, TrialDone, TrialPlace, TrialRequest
from dask_train.trainers.common.score_names import score_name

# User attributes of trials, which Optuna keeps: why it failed, what it repeats, its best epoch, how long it took.
ERROR, RETRY_OF, EPOCH, SECONDS = "error", "retry_of", "epoch", "seconds"


class OptunaStudy(Study):
    """The trials of one call of ``search``, in an Optuna study.

    See :class:`~dask_train.searching.study.Study` for attributes.

    Parameters
    ----------
    study
        Optuna's.
    built
        Return what is to be trained for a trial of Optuna; raises what the user's ``build`` raises.
    metric
        The score that counts.
    most
        How many trials are begun, not counting those that repeat a lost one.
    timeout_s
        No trial is begun after that many seconds; None for no limit.
    sampler_seed
        Seed of the default sampler, to which the number of this call's first trial is added: no other call has that, be
        it before this one or at the same time, so none draws the same. None to leave the study's sampler as it is.
    kept
        Where the search is kept, and what of it there is to resume; None if it is not.
    **of_all
        As of any study.
    """

    def __init__(
        self,
        study: Any,
        built: Callable[[Any], TrialSpec],
        *,
        metric: str,
        most: int,
        timeout_s: float | None,
        sampler_seed: int | None = None,
        kept: KeptSearch[SearchState] | None = None,
        **of_all: Any,
    ) -> None:
        super().__init__(**of_all)
        optuna = optuna_here()
        self.study, self._built, self._metric = study, built, metric
        self._sampler_seed = sampler_seed
        self._state, self._pruned = optuna.trial.TrialState, optuna.TrialPruned
        self._create = optuna.trial.create_trial
        self.mode = "max" if study.direction.name == "MAXIMIZE" else "min"
        self._deadline = math.inf if timeout_s is None else time.monotonic() + timeout_s
        self._num_begun = 0
        self._former_best = self.best
        self._ending: tuple[Any, float | None, Any] | None = None  # what Optuna may not have been told yet
        self._lost: set[int] = set()  # trials whose repeats wait in Optuna's study, as far as is known
        self._is_stopped = False
        self._has_metric = False  # whether some trial had the metric, as far as that is known before it starts
        self._kept, self._places = kept, dict[int, list[str]]()
        self._to_take_up: deque[Any] = deque()
        self._ready: Handed | None = None
        follow_stop(study, self._stop)
        try:
            if kept is not None and kept.state is not None:
                self._go_on(kept.state, kept.best_model)
            self._most = int(min(most, self._num_begun + max(0.0, points_left(study))))
            complete = study.get_trials(deepcopy=False, states=(self._state.COMPLETE,))
            self._to_beat: float | None = study.best_value if complete else None
        except BaseException:
            self.close()
            raise

    def _go_on(self, state: SearchState, best: Model | None) -> None:
        """Be where the search was when it was kept last."""
        self._num_begun, self._is_stopped = state.num_begun, state.is_stopped
        self._to_take_up.extend(restore(self.study, state))  # where the sampler may say that it was the last one
        self.ended, self.warnings = [FinishedTrial(**ended) for ended in state.ended], dict(state.warnings)
        self._lost = {ended.number for ended in self.ended if ended.state == "FAIL"}
        self._places = {number: list(names) for number, names in state.places.items()}
        if state.best is not None and best is not None:
            self.best = (*state.best, best)

    def _keep(self, ending: tuple[int, str, float | None] | None = None) -> None:
        """Save the search as it is now, or as it will be when the study has the result of a trial that ends."""
        if self._kept is None:
            return
        number, value, parts = self.best or (None, None, None)
        state = SearchState(
            study_name=self.study.study_name,
            trials=self.study.get_trials(deepcopy=False),
            sampler=self.study.sampler,
            ending=ending,
            places=self._places,
            unfinished=sorted([*self.handed, *(trial.number for trial in self._to_take_up)]),
            num_begun=self._num_begun,
            is_stopped=self._is_stopped,
            ended=[asdict(ended) for ended in self.ended],
            warnings=self.warnings,
            best=None if number is None or value is None else (number, value),
        )
        self._kept.save(state, parts)

    def _stop(self) -> None:
        self._is_stopped = True

    @property
    def num_left(self) -> int:
        """Return how many trials are still to be begun."""
        begun = len(self._to_take_up) + (self._ready is not None)  # in an earlier call, or before there is a slot
        if time.monotonic() >= self._deadline:
            return begun
        return begun + self._num_repeats + (0 if self._is_stopped else max(0, self._most - self._num_begun))

    @property
    def _num_repeats(self) -> int:
        """How many repeats of lost trials wait; another client of the storage may take one, and trains it then."""
        if self._lost:
            waiting = self.study.get_trials(deepcopy=False, states=(self._state.WAITING,))
            self._lost &= {trial.user_attrs.get(RETRY_OF) for trial in waiting}
        return len(self._lost)

    def prepare(self) -> bool:
        """Build the next trial before anyone takes it, since it tells what processes it needs; whether there is one."""
        if self._ready is None:
            self._ready = self.next()
        return self._ready is not None

    def next(self) -> Handed | None:
        """Ask for a trial and build it; None if there are no more. Those that can't be built are failures.

        Raises
        ------
        OtherKindError, UnfitRowsError, NoMetricError
            No trial can be built by this search.
        """
        if self._ready is not None:
            ready, self._ready = self._ready, None
            ready.began = time.monotonic()
            return ready
        while self.num_left > 0:
            handed = self._next()
            self.handed[handed.number] = handed
            try:
                spec = self._built(handed.trial)
                self._check_metric(spec)
                handed.params = dict(handed.trial.params)
                if self.log is not None:
                    self.log.begin(handed.number, handed.trial.params)
            except self._pruned:
                self._tell(handed, "PRUNED")
            except (OtherKindError, UnfitRowsError, NoMetricError):
                raise
            except Exception as error:
                self.failed(handed, f"{type(error).__name__}: {error}", traceback=traceback.format_exc())
            else:
                number, place, work = handed.number, None, spec.work
                if (folders := None if self._kept is None else self._kept.folders) is not None:
                    earlier = self._places.setdefault(number, [])
                    name = folders.new(number, len(earlier))
                    work = folders.with_checkpoints(work, name)
                    place = TrialPlace(url=folders.url_of(name), earlier=[*map(folders.url_of, earlier)])
                    earlier.append(name)
                handed.request = TrialRequest(
                    number=number, work=work, metric=self._metric, mode=self.mode, to_beat=self._to_beat, place=place
                )
                handed.model = spec.model
                self._keep()
                return handed
        return None

    def _check_metric(self, spec: TrialSpec) -> None:
        """Check that a trial will have the metric that counts, as far as its scores are known before it starts.

        Raises
        ------
        NoMetricError
            It will not, and no trial before it had.
        ValueError
            It will not.
        """
        if spec.scores is None:
            self._has_metric = True  # as far as is known before an epoch
            return
        names = list(map(score_name, spec.scores))
        if self._metric in names:
            self._has_metric = True
            return
        error = ValueError if self._has_metric else NoMetricError
        raise error(
            f"There is no score {self._metric!r} at the end of an epoch; there are {', '.join(names)}."
            f"{nearest(self._metric, names)} Pass one of them as metric."
        )

    def _next(self) -> Handed:
        """Return one that an earlier call has begun, one to repeat, or a new one."""
        if self._to_take_up:
            trial = self._to_take_up.popleft()
            number = trial.number
            known = next(each for each in self.study.get_trials(deepcopy=False) if each.number == number)
            return self._handed(trial, set(known.intermediate_values))
        trial = self.study.ask()
        if self._sampler_seed is not None:  # and nothing was drawn for the trial yet
            self.study.sampler = default_sampler(self._sampler_seed + trial.number)
            self._sampler_seed = None
        if RETRY_OF in trial.user_attrs:
            self._places[trial.number] = self._places.pop(trial.user_attrs[RETRY_OF], [])
        else:
            self._num_begun += 1
        return self._handed(trial)

    def _handed(self, trial: Any, reported: Collection[int] = ()) -> Handed:
        is_repeat = RETRY_OF in trial.user_attrs
        return Handed(
            number=trial.number, params=dict(trial.params), is_repeat=is_repeat, trial=trial, reported={*reported}
        )

    def scored(self, handed: Handed, scores: dict[str, Any]) -> bool:
        """Let the pruner see the scores of an epoch; whether the trial is to end, which is reported to Optuna then."""
        handed.scores = scores
        if self.log is not None:
            self.log.write(handed.number, scores)
        value = scores.get(self._metric)
        if handed.is_told or "step" in scores or value is None:
            return False
        if scores["epoch"] in handed.reported:  # of a trial that resumes from a checkpoint
            return False
        handed.reported.add(scores["epoch"])
        handed.trial.report(value, scores["epoch"])
        if not handed.trial.should_prune():
            return False
        self._tell(handed, "PRUNED", value)
        return True

    def done(self, handed: Handed, done: TrialDone) -> None:
        """Take what a trial has given."""
        self._note_warnings(done)
        if handed.is_told:
            return
        if done.value is None:
            self.failed(handed, "It ended before its first epoch did.")
            return
        handed.trial.set_user_attr(EPOCH, done.epoch)
        if is_better(done.value, self._to_beat, mode=self.mode):
            self._to_beat = done.value
            assert done.parts is not None
            with warnings.catch_warnings(record=True) as caught:  # such as of a solver that has not converged
                warnings.simplefilter("always")
                model = handed.model(done.parts)
            self._former_best, self.best = self.best, (done.number, done.value, model)
            for each in caught:
                self.warnings.setdefault(str(each.message), done.number)
        self._tell(handed, "COMPLETE", done.value, seconds=done.seconds)

    def failed(self, handed: Handed, error: str, *, traceback: str = "", seconds: float | None = None) -> None:
        """Note that a trial has raised, after that many seconds in its process."""
        if not handed.is_told:
            self._tell(handed, "FAIL", seconds=seconds, error=error, traceback=traceback)

    def lost(self, handed: Handed, error: str) -> None:
        """Record that a trial's workers are gone, and begin it once more, with the same parameters."""
        if handed.is_told:
            return
        number = handed.number
        if handed.is_repeat or time.monotonic() >= self._deadline:
            self._tell(handed, "FAIL", error=error)
            return
        frozen = next(trial for trial in self.study.get_trials(deepcopy=False) if trial.number == number)
        self.study.add_trial(
            self._create(
                state=self._state.WAITING,
                params=frozen.params,
                distributions=frozen.distributions,
                user_attrs={RETRY_OF: number},
                system_attrs=frozen.system_attrs,  # where a grid's sampler notes which point it is
            )
        )
        self._lost.add(number)
        self._tell(handed, "FAIL", error=error, is_repeated=True)

    def end(self) -> None:
        """Remove checkpoints of trials, which none needs any more, and see that some trial has not failed."""
        if self._kept is not None:
            self._kept.end()
        failed = [ended for ended in self.ended if ended.state == "FAIL"]
        if failed and len(failed) == len(self.ended):
            all_failed = RoleFailedError(
                f"All {len(failed)} trials have failed. Trial {failed[0].number}: {failed[0].error}"
            )
            if failed[0].traceback:
                all_failed.add_note(f"Traceback of trial {failed[0].number}:\n{failed[0].traceback.rstrip()}")
            raise all_failed

    def warn(self) -> None:
        """Warn of what fits would have, each once, with the first trial that reported it."""
        for message, number in self.warnings.items():
            warn_at_the_call(f"Trial {number}: {message}")

    def close(self) -> None:
        """Leave Optuna's study as it was made; it may live for long, and holds neither data nor this any more."""
        leave_stop(self.study, self._stop)
        self._built = closed

    def cut_short(self, why: str) -> None:
        """End the search now: what is not finished has failed, or waits for another call if the search is kept."""
        if self._kept is None:
            self._finish_telling()  # before the others, which are told by way of the same attribute
        else:
            self.handed.clear()
        for handed in list(self.handed.values()):
            self.failed(handed, why)
        self._check_best()

    def _finish_telling(self) -> None:
        """Tell Optuna of a trial at whose end Ctrl-C came, if one did not get that far."""
        if self._ending is not None:
            with suppress(Exception):  # Optuna knows it, or its storage is gone
                tell(self.study, *self._ending)

    def _check_best(self) -> None:
        """Name the best trial before, where Optuna does not know that the last best one is complete."""
        if self.best is None:
            return
        with suppress(Exception):
            if self.study.get_trials(deepcopy=False)[self.best[0]].state is not self._state.COMPLETE:
                self.best = self._former_best

    def _tell(
        self,
        handed: Handed,
        state: str,
        value: float | None = None,
        *,
        seconds: float | None = None,
        error: str = "",
        traceback: str = "",
        is_repeated: bool = False,
    ) -> None:
        seconds = time.monotonic() - handed.began if seconds is None else seconds
        error, traceback = masked(error), masked(traceback)
        handed.is_told = True
        trial = handed.trial
        final = value if state == "COMPLETE" else None
        self._ending = trial.number, final, self._state[state]
        del self.handed[trial.number]
        trial.set_user_attr(SECONDS, round(seconds, 3))
        if error:
            trial.set_user_attr(ERROR, error)
        ended = FinishedTrial(
            number=trial.number,
            state=state,
            params=dict(trial.params),
            value=value,
            seconds=seconds,
            error=error,
            traceback=traceback,
        )
        self.ended.append(ended)
        if self.log is not None:
            self.log.trial_ended(ended.number, state, params=ended.params, value=value, why=error)
        places = [] if is_repeated else self._places.pop(trial.number, [])
        self._keep((trial.number, state, final))
        tell(self.study, *self._ending)
        self._ending = None
        if self._kept is not None and self._kept.folders is not None:
            self._kept.folders.remove(places)
