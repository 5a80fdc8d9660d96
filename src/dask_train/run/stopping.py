"""Rules of ``stop=``: what it may be, and when they hold.

The driver asks them; in ``dt.fit``, the first worker asks those of epochs.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from dask_train.input_errors import made_at_the_call
from dask_train.run.repeated_reports import Reached, comes_again
from dask_train.run.stop_rule import EPOCH, AllScores, RunProgress, StopRule, number, origin
from dask_train.run.threshold import Threshold

__all__ = ["AnyOf", "Condition", "Patience", "RunProgress", "AllScores", "StopRule", "Threshold", "check_stop"]

# Keras asks the compiled metric; here there is only the name, and these are the ones that grow.
_GROWING = ("acc", "auc", "precision", "recall", "f1")


@made_at_the_call
@dataclass(frozen=True)
class Patience(StopRule):
    """Stop when a score has not got better for a while, as Keras's ``EarlyStopping`` does [1]_.

    Parameters
    ----------
    monitor
        The score's name.
    patience
        Number of reports in a row without a better score; 0 is as 1.
    min_delta
        Least difference that counts as better. Default: 0.0.
    mode
        ``"min"`` or ``"max"`` for what is better; ``"auto"`` is max for names with acc, auc, precision, recall or f1
        in them, and else min.

    Raises
    ------
    ValueError, TypeError
        A parameter has another value or type.

    Notes
    -----
    In ``dt.fit``, a report is an epoch, a round of boosted trees, or a step of a linear model. The workers look at the
    whole history when one has ended, also at that before a resume, and stop there. With ``ps=`` or ``scorer=``, and in
    ``dt.train``, the client looks at all reports of all roles as they arrive, and roles stop some time later.

    NaN is never better; unlike Keras, that holds for the first report too. A role that starts again from a checkpoint
    may report some epochs again. These reports don't count if they have an ``epoch``, or a scorer's ``updates``, by
    which they are recognised. So let a loop over folds report an ``epoch`` that grows over all folds: else a role that
    starts again in the second fold seems to repeat the first one. The best score is that of all folds.

    References
    ----------
    .. [1] https://keras.io/api/callbacks/early_stopping/
    """

    # What the last call has seen: the list of scores, their number, the best, how many came after it, whether none came
    # at all, and how far roles are; no part of the value, and no rule needs it.
    _last: ClassVar[tuple[AllScores, int, float, int, bool, Reached]] = ((), 0, math.inf, 0, True, {})

    monitor: str
    patience: int
    min_delta: float = field(default=0.0, kw_only=True)
    mode: Literal["min", "max", "auto"] = field(default="auto", kw_only=True)

    def __post_init__(self) -> None:
        unchecked: Any = self  # not yet what the annotations say
        if not isinstance(unchecked.monitor, str) or not self.monitor:
            raise TypeError(f"monitor is {self.monitor!r}, but it is a score's name, like Patience('val_loss', 3).")
        if not isinstance(unchecked.patience, int) or isinstance(unchecked.patience, bool):
            raise TypeError(f"patience is {self.patience!r}, but it is a number of reports, like 3.")
        if self.patience < 0:
            raise ValueError(f"patience is {self.patience}, but a number of reports is not negative. Use 1 or more.")
        if isinstance(unchecked.min_delta, bool) or not (math.isfinite(delta := number(self.min_delta)) and delta >= 0):
            raise ValueError(f"min_delta is {self.min_delta!r}, but it is a finite number, 0 or more, like 0.001.")
        if self.mode not in ("min", "max", "auto"):
            raise ValueError(f"mode is {self.mode!r}, but it is 'min', 'max' or 'auto'.")

    @property
    def names(self) -> frozenset[str]:
        """See :attr:`StopRule.names`."""
        return frozenset([self.monitor])

    def met(self, scores: AllScores, progress: RunProgress, since: int = 0) -> str:  # noqa: ARG002
        """Return the reason to stop if the score has not got better for long enough; see :meth:`StopRule.met`.

        Parameters
        ----------
        scores, progress, since
            As :meth:`StopRule.met` takes them.

        Returns
        -------
        str
            The reason to stop, or ``""``.
        """
        monitor = self.monitor
        grows = self.mode == "max" or (self.mode == "auto" and any(part in monitor.lower() for part in _GROWING))
        sign = -1.0 if grows else 1.0
        seen, num_seen, best, waited, first, reached = self._last
        reached = dict(reached)  # who finds a reason keeps nothing
        if seen is not scores or num_seen != since:  # of another run, or after a pickle
            num_seen, best, waited, first, reached = 0, math.inf, 0, True, {}
            if not any(monitor in scores[place] for place in range(since, len(scores))):
                return ""
        for place in range(num_seen, len(scores)):
            score = scores[place]
            if monitor not in score or comes_again(score, reached):
                continue
            value = sign * number(score[monitor])
            if value + self.min_delta < best:
                best, waited = value, 0
            else:
                waited += 1
            if place >= since and waited >= max(1, self.patience) and not first:
                since_best = f"better than {sign * best:.4g}" if math.isfinite(best) else "a number"
                return f"{monitor} was not {since_best} in {waited} reports{origin(score)}"
            first = False
        object.__setattr__(self, "_last", (scores, len(scores), best, waited, first, reached))
        return ""

    def __getstate__(self) -> dict[str, Any]:
        """Return the value alone."""
        return {name: value for name, value in vars(self).items() if name != "_last"}


@dataclass(frozen=True)
class AnyOf(StopRule):
    """Met if any of ``rules`` is; the reason is that of the first."""

    rules: tuple[StopRule, ...]

    @property
    def names(self) -> frozenset[str]:
        """See :attr:`StopRule.names`."""
        return frozenset().union(*(rule.names for rule in self.rules))

    def met(self, scores: AllScores, progress: RunProgress, since: int = 0) -> str:
        """See :meth:`StopRule.met`."""
        return next(filter(None, (rule.met(scores, progress, since) for rule in self.rules)), "")


@dataclass(frozen=True)
class Condition(StopRule):
    """Met if ``function(scores)`` is true, as ``lambda scores: scores[-1]["loss"] < 0.1``.

    An ``IndexError`` or ``KeyError`` means not yet, because the scores that it looks for may still come; any other
    exception is the function's own and propagates.
    """

    function: Callable[[AllScores], Any]

    def met(self, scores: AllScores, progress: RunProgress, since: int = 0) -> str:  # noqa: ARG002
        """See :meth:`StopRule.met`."""
        try:
            answer = bool(self.function(scores))
        except (IndexError, KeyError):
            return ""
        return f"{getattr(self.function, '__name__', repr(self.function))}(scores) is true" if answer else ""


def rules_of_epochs(rule: StopRule | None) -> tuple[StopRule, ...]:
    """Return the rules, of which each may end a run by itself, that can be asked about whole epochs alone.

    They look at scores, and not at the steps or seconds of the run; functions of the user's are asked in the client.
    """
    return tuple(filter(_is_of_epochs, _alternatives(rule)))


def rule_within_epochs(rule: StopRule | None) -> StopRule | None:
    """Return what is left of a rule for the time between ends of epochs; None if nothing is."""
    rest = tuple(each for each in _alternatives(rule) if not (_is_of_epochs(each) and _comes_with_epochs(each)))
    return AnyOf(rest) if len(rest) > 1 else rest[0] if rest else None


def _alternatives(rule: StopRule | None) -> tuple[StopRule, ...]:
    return () if rule is None else rule.rules if isinstance(rule, AnyOf) else (rule,)


def _is_of_epochs(rule: StopRule) -> bool:
    return type(rule) is Patience or (type(rule) is Threshold and not rule.looks_at_progress)


def _comes_with_epochs(rule: StopRule) -> bool:
    """Return whether a rule can be met when an epoch has ended, and only then."""
    return type(rule) is Patience or all(name == EPOCH or name.startswith("val_") for name in rule.names)


def check_stop(stop: Any) -> StopRule | None:
    """Return the rule that ``stop=`` means: a text, a rule, a function, or a list of these, of which any may be met.

    Raises
    ------
    ValueError
        A text is no rule, or a list is empty.
    TypeError
        It is something else.
    """
    match stop:
        case None | StopRule():
            return stop
        case str():
            return Threshold(stop)
        case list() | tuple():
            rules = tuple(check_stop(one) for one in stop)
            if not rules or None in rules:
                raise ValueError(f"stop is {stop!r}, but a list holds one rule or more. Pass None to have no rule.")
            return AnyOf(tuple(rule for rule in rules if rule is not None))
    if not callable(stop) or isinstance(stop, type) or inspect.iscoroutinefunction(stop):
        raise TypeError(
            f"stop is {stop!r}, which is no rule to stop by. Pass text like 'val_loss < 0.1', "
            "Patience('val_loss', 3), a function of the scores that is not async, or a list of these."
        )
    return Condition(stop)
