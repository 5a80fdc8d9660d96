"""What a cluster answered when it was examined, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dask_train.doctor.health_probe import HealthProbe

# Above this, the times of scores and logs from several hosts no longer tell what came first.
CLOCK_S = 0.5


@dataclass(frozen=True)
class Clock:
    """How far another clock is ahead of ours, give or take; in seconds."""

    ahead_s: float
    error_s: float

    @classmethod
    def compared(cls, sent_at: float, asked_at: float, answered_at: float, back_at: float) -> Clock:
        """Compare clocks by one question and its answer, as NTP does: https://www.rfc-editor.org/rfc/rfc5905#section-8."""
        ahead_s = ((asked_at - sent_at) + (answered_at - back_at)) / 2
        return cls(ahead_s, max(0.0, (back_at - sent_at) - (answered_at - asked_at)) / 2)

    @property
    def differs(self) -> bool:
        """Whether it is off for certain."""
        return abs(self.ahead_s) - self.error_s > CLOCK_S


@dataclass(frozen=True, kw_only=True)
class Route:
    """Whether a Dask worker could connect to a port of another; ``problem`` is ``""`` where it could."""

    start: str
    to: str
    problem: str


@dataclass(frozen=True, kw_only=True)
class Examination:
    """The questions and answers.

    Attributes
    ----------
    address
        The scheduler's; ``""`` where this machine alone was examined.
    here
        This process.
    scheduler
        Its versions and whether it has our plug-in, or why it did not say.
    workers, clocks
        By address, the Dask workers that answered.
    silent
        Why others did not, by address.
    routes
        The connections that were tried.
    sights
        By host that has GPUs, why frameworks use none there: by framework, ``""`` for one that does; or, as text, why
        that is not known.
    """

    address: str
    here: HealthProbe
    scheduler: tuple[dict[str, str], bool] | str = ""
    workers: Mapping[str, HealthProbe] = field(default_factory=dict)
    clocks: Mapping[str, Clock] = field(default_factory=dict)
    silent: Mapping[str, str] = field(default_factory=dict)
    routes: tuple[Route, ...] = ()
    sights: Mapping[str, Mapping[str, str] | str] = field(default_factory=dict)

    @property
    def asked(self) -> Mapping[str, HealthProbe]:
        """What the findings are about: the Dask workers, or this machine where there is no cluster."""
        return self.workers if self.address else {"this machine": self.here}
