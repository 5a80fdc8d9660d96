"""What a place for scores has to do: the contract between a run's log and its writers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from dask_train.masking import masked, masked_value

Score = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Start:
    """Beginning of a run, of a search, or of a trial of one.

    Attributes
    ----------
    run
        Its name.
    params
        Its parameters, by name; without secrets.
    time
        Time of the beginning, in seconds since the epoch.
    checkpoint
        Folder or URL of its checkpoints, without secrets; empty if it keeps none.
    resumes
        Whether it resumes from the last checkpoint there, and so continues an earlier run.
    """

    run: str
    params: Mapping[str, Any]
    time: float
    checkpoint: str = ""
    resumes: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "params", masked_value(self.params))
        object.__setattr__(self, "checkpoint", masked(self.checkpoint))


@dataclass(frozen=True, kw_only=True)
class Ending:
    """End of a run, of a search, or of a trial of one.

    Attributes
    ----------
    status
        "finished"; "failed"; or "stopped", if it was interrupted.
    reason
        Reason, as text.
    values
        Numbers that are known at the end only, by name.
    time
        Time of the end, in seconds since the epoch.
    """

    status: Literal["finished", "failed", "stopped"]
    reason: str
    time: float
    values: Mapping[str, float] = field(default_factory=dict)


class Sink(ABC):
    """One run, or one trial, at the place that it is written to.

    All methods are called in one thread, never at the same time. One that raises is called again later, for as long as
    the run lasts and for ``train.logging.timeout`` after that.
    """

    @abstractmethod
    def write(self, scores: Sequence[Score]) -> None:
        """Write scores, in the order in which they came: what was reported, plus role, rank, attempt and time.

        Scores are given once: where this raises, it keeps those that it has not written for the next call, which may
        bring no new ones.

        Parameters
        ----------
        scores
            Dicts of names and values.
        """

    @abstractmethod
    def end(self, ending: Ending) -> None:
        """Write the end of the run or trial.

        Parameters
        ----------
        ending
            Its status, the reason in words, and numbers that are known at the end only.
        """

    @abstractmethod
    def keep(self, files: Sequence[Path]) -> None:
        """Keep what the run has left: the model, the ledger, the report. It may come after the end.

        Parameters
        ----------
        files
            Paths on this machine, which are removed afterwards.
        """


class ModelSink(Sink):
    """A sink of a place that has a format of its own for models."""

    @abstractmethod
    def keep_model(self, model: Any, example: Any) -> None:
        """Keep what was trained: a Keras model, a module of torch, or an estimator. It comes after the files.

        Parameters
        ----------
        model
            The model itself.
        example
            A row of zeros as it takes them; None if that is not known.
        """


class Logger(ABC):
    """A place for runs, as a user names it; passes as one of ``log=``, to any number of verbs.

    Attributes
    ----------
    place
        The place in words, for warnings.
    """

    place: str

    @abstractmethod
    def open(self, start: Start, parent: Sink | None) -> Sink:
        """Make the sink of a run, in the thread that calls the verb; nothing is sent yet.

        Parameters
        ----------
        start
            What begins.
        parent
            That of the search whose trial this is; None if it is no trial.
        """
