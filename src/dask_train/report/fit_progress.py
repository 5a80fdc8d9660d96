"""The progress of ``fit`` in the words that Keras' users know: epoch, step, time left, metrics; of trees, rounds."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Mapping
from typing import Any, Self, TextIO

from dask_train.printing import SafeFile
from dask_train.report.fitted import LineField
from dask_train.report.formats import score_text, seconds_text
from dask_train.report.progress import RunDisplay
from dask_train.report.rates import RATE_OVER_S
from dask_train.scores import values_of


class FitDisplay(RunDisplay):
    """As :class:`~dask_train.report.progress.RunDisplay`, for a run of ``fit``.

    Parameters
    ----------
    progress
        Show it.
    epochs
        Where training ends.
    """

    # Workers share a batch: their parts of it are one step.
    _counted = "steps"

    def __init__(self, progress: bool | None = None, *, epochs: int, **settings: Any) -> None:
        super().__init__(progress, **settings)
        self._epochs = epochs
        self._steps: deque[tuple[float, int]] = deque()

    def update(self, status: Mapping[str, Any]) -> None:
        """See :meth:`RunDisplay.update`."""
        score = _of_first_worker(status)
        if score is not None and (not self._steps or self._steps[-1][1] != _done(score)):
            if self._steps and _done(score) < self._steps[-1][1]:  # it has started again, from a checkpoint
                self._steps.clear()
            self._steps.append((score["time"], _done(score)))
            while len(self._steps) > 2 and score["time"] - self._steps[0][0] > RATE_OVER_S:
                self._steps.popleft()
        super().update(status)

    def _score_fields(self) -> list[LineField]:
        """Epoch, step, time left, then metrics; those of a scorer, too."""
        worker_score = _of_first_worker(self._status)
        fields: list[LineField] = []
        if worker_score is not None:
            epoch = f"epoch {worker_score['epoch'] + 1}/{self._epochs}"
            fields.append(LineField(1, epoch, epoch))
            if "step" in worker_score:
                step = f"{worker_score['step']}/{worker_score['num_steps']}"
                fields.append(LineField(4, f"step {step}", step))
            if (left_s := self._left_s(worker_score)) and not self._is_over():
                fields.append(LineField(3, f"{seconds_text(left_s)} left", f"{left_s:.0f} s left"))
            fields += _metrics(worker_score, rank=2)
        scorer = next((score for role, _, score in self._status.get("last_scores", ()) if role == "scorer"), None)
        return fields + ([] if scorer is None else _metrics(scorer, rank=5))

    def _share_done(self) -> float | None:
        score = _of_first_worker(self._status)
        whole = 0 if score is None else self._epochs * score["num_steps"]
        return _done(score) / whole if score is not None and whole else None

    def rates(self) -> tuple[float, float, float]:
        """Return scores, steps and rows per second over the last seconds; 0 where a rate is unknown."""
        scores, _, rows = super().rates()
        return scores, self._steps_per_s(), rows

    def _steps_per_s(self) -> float:
        """Return the speed of the last seconds, without validation; 0 if it is unknown."""
        (since, first), (now, done) = (self._steps[0], self._steps[-1]) if self._steps else ((0.0, 0), (0.0, 0))
        return (done - first) / (now - since) if done > first and now > since else 0.0

    def _left_s(self, score: Mapping[str, Any]) -> float | None:
        """Seconds until the last epoch ends; None if unknown."""
        steps_per_s = self._steps_per_s()
        if not steps_per_s:
            return None
        return float((self._epochs * score["num_steps"] - self._steps[-1][1]) / steps_per_s)


class EpochLines:
    """Show a line for each epoch that has ended, or round of trees, wherever that is written to: ``verbose=2``.

    Parameters
    ----------
    epochs
        Where training ends; None for rounds of trees.
    file
        Where to write; None is the standard error of the moment.
    """

    shown = True

    def __init__(self, *, epochs: int | None, file: TextIO | None = None) -> None:
        self._counts = "round" if epochs is None else "num_steps"
        self._epochs, self._file = epochs, SafeFile(sys.stderr if file is None else file)
        self._num_seen = 0
        self._since: float | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Leave: nothing is held."""

    def update(self, status: Mapping[str, Any]) -> None:
        """Write a line for each that has ended since.

        Parameters
        ----------
        status
            As :meth:`RunDisplay.update` takes it, with ``scores``, all that there are.
        """
        scores = status["scores"]
        for score in scores[self._num_seen : (num_seen := len(scores))]:
            if (score["role"], score["rank"]) == ("worker", 0) and self._counts in score:
                if "step" not in score:
                    seconds = None if self._since is None else score["time"] - self._since
                    self._file.write(self._line(score, seconds) + "\n")
                    self._since = score["time"]
                elif self._since is None:
                    self._since = score["time"]
        self._num_seen = num_seen
        self._file.flush()

    def _line(self, score: Mapping[str, Any], seconds: float | None) -> str:
        """Return the line of an epoch; ``seconds`` is None where nothing is known of when it began."""
        took = [] if seconds is None else [seconds_text(seconds)]
        metrics = [f"{name}: {score_text(value)}" for name, value in values_of(score).items()]
        if self._epochs is None:
            return " - ".join([f"Round {score['round']}", *took, *metrics])
        place = f"Epoch {score['epoch'] + 1}/{self._epochs}"
        return " - ".join([place, f"{score['num_steps']} steps", *took, *metrics])


def _of_first_worker(status: Mapping[str, Any]) -> Mapping[str, Any] | None:
    scores = (score for role, rank, score in status.get("last_scores", ()) if (role, rank) == ("worker", 0))
    latest = next(scores, None)
    return latest if latest is not None and "num_steps" in latest else None


def _done(score: Mapping[str, Any]) -> int:
    """Return steps since the first epoch; at the end of an epoch no step is reported."""
    return int(score["epoch"] * score["num_steps"] + score.get("step", score["num_steps"]))


def _metrics(score: Mapping[str, Any], rank: int) -> list[LineField]:
    values = values_of(score)
    text = "  ".join(f"{name} {score_text(value)}" for name, value in values.items())
    brief = "  ".join(f"{name} {value:.3g}" for name, value in list(values.items())[:1])
    return [LineField(rank, text, brief)] if text else []


class RoundsDisplay(RunDisplay):
    """As :class:`~dask_train.report.progress.RunDisplay`, for a run that adds trees round by round.

    Parameters
    ----------
    progress
        Show it.
    rounds
        The number of rounds at the end, if nothing stops the run before.
    """

    _place = RunDisplay._place | {"round"}

    def __init__(self, progress: bool | None = None, *, rounds: int, **settings: Any) -> None:
        super().__init__(progress, **settings)
        self._rounds = rounds
        self._done: deque[tuple[float, int]] = deque()

    def update(self, status: Mapping[str, Any]) -> None:
        """See :meth:`RunDisplay.update`."""
        scores = [score for _, _, score in status.get("last_scores", ()) if "round" in score]
        if scores and (not self._done or self._done[-1][1] != scores[0]["round"]):
            latest = scores[0]
            if self._done and latest["round"] < self._done[-1][1]:  # it has started again, from a checkpoint
                self._done.clear()
            self._done.append((latest["time"], latest["round"]))
            while len(self._done) > 2 and latest["time"] - self._done[0][0] > RATE_OVER_S:
                self._done.popleft()
        super().update(status)

    def _score_fields(self) -> list[LineField]:
        """Return rounds and the time left, then scores."""
        if not self._done:
            return super()._score_fields()
        done = self._done[-1][1]
        # A model that is trained further, or a name of the library's own for their number, has more.
        known = done <= self._rounds
        round_text = f"round {done}/{self._rounds}" if known else f"round {done}"
        fields = [LineField(1, round_text, round_text)]
        if known and (left_s := self._left_s()) and not self._is_over():
            fields.append(LineField(3, f"{seconds_text(left_s)} left", f"{left_s:.0f} s left"))
        return fields + super()._score_fields()

    def _share_done(self) -> float | None:
        return min(1.0, self._done[-1][1] / self._rounds) if self._done and self._rounds else None

    def _left_s(self) -> float | None:
        """Return the seconds until the last round at the speed of the last seconds; None if unknown."""
        (since, first), (now, done) = (self._done[0], self._done[-1]) if self._done else ((0.0, 0), (0.0, 0))
        if done <= first or now <= since:
            return None
        return max(0, self._rounds - done) * (now - since) / (done - first)
