"""The settings of dask-train: deadlines and a memory limit, read from ``dask.config`` under ``train`` and checked.

A setting is a value that is passed on; nothing deeper in the package reads ``dask.config`` or the environment. Where
``dask.config`` has lost the defaults of this package, as it does when something sets all of it anew, they count all the
same.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from numbers import Real
from pathlib import Path
from typing import Any

import dask.config
import yaml
from dask.utils import parse_bytes, parse_timedelta

from dask_train.arguments import check_whole_number

_DEFAULTS: dict[str, Any] = yaml.safe_load((Path(__file__).parent / "dask_train.yaml").read_text())
dask.config.update_defaults(_DEFAULTS)


@dataclass(frozen=True, kw_only=True)
class Deadlines:
    """How long each kind of wait may take; all in seconds, finite and above 0.

    Attributes
    ----------
    placement_s
        Room for roles: how long a run waits for others to end (``train.placement.timeout``).
    launch_s
        From the placement of roles until all of them are up (``train.launch.timeout``).
    rendezvous_s
        From there until the roles of a framework have met (``train.rendezvous.timeout``).
    progress_s
        A wait for something that others produce: a batch, a score (``train.progress.timeout``).
    stop_s
        From the decision to stop a run until its roles are killed (``train.stop.timeout``).
    close_s
        The end of a network: data moved, Dask workers restarted and back (``train.close.timeout``).
    client_s
        How long nothing may be heard of a run's client until the scheduler ends the run (``train.client.timeout``).
    """

    placement_s: float
    launch_s: float
    rendezvous_s: float
    progress_s: float
    stop_s: float
    close_s: float
    client_s: float = 300.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not _is_above_0(value):
                key = f"train.{field.name.removesuffix('_s')}.timeout"
                raise ValueError(
                    f"{key} is {value!r}, but a deadline is a finite number of seconds above 0. "
                    f"Set it with dask.config.set({{{key!r}: '60s'}})."
                )

    @classmethod
    def from_dask_config(cls) -> Deadlines:
        """Return the deadlines that ``dask.config`` holds now.

        Raises
        ------
        ValueError
            A setting is no duration, or not above 0.
        """
        names = (field.name.removesuffix("_s") for field in fields(cls))
        return cls(**{f"{name}_s": _seconds(f"train.{name}.timeout") for name in names})


def is_duration(seconds: Any) -> bool:
    """Return whether this is a finite number of seconds, or 0."""
    return not isinstance(seconds, bool) and isinstance(seconds, Real) and 0 <= float(seconds) < math.inf


def _is_above_0(seconds: Any) -> bool:
    return is_duration(seconds) and seconds > 0


def seconds_or(default_s: float, timeout_s: float | None) -> float:
    """``timeout_s``, checked, or the default where it is None.

    Raises
    ------
    ValueError
        It is not a finite number above 0.
    """
    if timeout_s is None:
        return default_s
    if not _is_above_0(timeout_s):
        raise ValueError(f"timeout_s is {timeout_s!r}; a deadline is a finite number of seconds above 0.")
    return float(timeout_s)


def _setting(key: str) -> Any:
    """Return what ``dask.config`` holds now, else this package's own default."""
    return dask.config.get(key, default=dask.config.get(key, config=_DEFAULTS))


def _seconds(key: str) -> float:
    value = _setting(key)
    if isinstance(value, int | float):
        return value
    try:
        return float(parse_timedelta(value))
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:  # all seen with what is no duration
        raise ValueError(f"{key} is {value!r}, which is no duration. Write it like '60s' or '2 minutes'.") from error


@dataclass(frozen=True, kw_only=True)
class TemplateSettings:
    """Templates: the processes that have imported a framework, and of which others are forked.

    Attributes
    ----------
    idle_s
        Seconds after which an unused template is ended; 0 for no templates (``train.template.idle``).
    imports
        Names of modules that templates import after those of the framework (``train.template.imports``).
    """

    idle_s: float
    imports: tuple[str, ...] = ()

    @classmethod
    def from_dask_config(cls) -> TemplateSettings:
        """Return what ``dask.config`` holds now under ``train.template``.

        Raises
        ------
        ValueError
            ``idle`` is no duration, or ``imports`` are no names of modules.
        """
        idle_s = _seconds("train.template.idle")
        if not is_duration(idle_s):
            raise ValueError(
                f"train.template.idle is {idle_s!r}; it is a finite number of seconds, or 0 for no templates."
            )
        imports = _setting("train.template.imports")
        names = imports.replace(",", " ").split() if isinstance(imports, str) else imports
        if not isinstance(names, list | tuple) or not all(map(_is_module_name, names)):
            raise ValueError(
                f"train.template.imports is {imports!r}; it is a list of names of modules, such as ['torchmetrics']."
            )
        return cls(idle_s=idle_s, imports=tuple(names))

    def imported(self, modules: tuple[str, ...]) -> tuple[str, ...]:
        """Return what a template imports, with these modules of a framework first."""
        return tuple(dict.fromkeys((*modules, *self.imports)))


def _is_module_name(name: Any) -> bool:
    return isinstance(name, str) and all(part.isidentifier() for part in name.split("."))


@dataclass(frozen=True, kw_only=True)
class PredictLimits:
    """What model processes may take.

    Attributes
    ----------
    idle_s
        Seconds after which an unused process is ended.
    timeout_s
        Seconds without a finished batch after which a process has stalled.
    launch_s
        How long a process may take until its model is ready.
    attempts
        How often a block is tried when processes die with it.
    processes
        How many of them a Dask worker has at once, at most.
    threads
        Of each process; None for as many as its Dask worker has.
    template
        What templates of the processes import, and how long they are kept.
    in_dask_limit
        Whether processes have to fit into their Dask worker's memory limit, too, besides a container's: where
        ``train.memory.limit`` does not say what data may take.
    """

    idle_s: float
    timeout_s: float
    launch_s: float
    attempts: int
    processes: int
    threads: int | None
    template: TemplateSettings
    in_dask_limit: bool = True

    @classmethod
    def from_dask_config(cls) -> PredictLimits:
        """Return what ``dask.config`` holds now under ``train.predict``.

        Raises
        ------
        ValueError
            A setting is no duration above 0, or no whole number of at least 1.
        """
        return cls(
            idle_s=_duration("train.predict.idle"),
            timeout_s=_duration("train.predict.timeout"),
            launch_s=_duration("train.launch.timeout"),
            attempts=_count("train.predict.attempts"),
            processes=_count("train.predict.processes"),
            threads=None if _setting("train.predict.threads") is None else _count("train.predict.threads"),
            template=TemplateSettings.from_dask_config(),
            in_dask_limit=memory_limit() is None,
        )


def _duration(key: str) -> float:
    value = _seconds(key)
    if not _is_above_0(value):
        raise ValueError(f"{key} is {value!r}; it is a finite number of seconds above 0, such as '60s'.")
    return value


def _count(key: str) -> int:
    value = _setting(key)
    check_whole_number(key, value, 1)
    return int(value)


def logging_timeout_s() -> float:
    """``train.logging.timeout`` in seconds: how long places of a log are tried at the end of a run.

    Raises
    ------
    ValueError
        It is no duration above 0.
    """
    return _duration("train.logging.timeout")


def whole_tracebacks() -> bool:
    """Return whether ``train.tracebacks`` is "whole": errors of wrong arguments keep the library's own frames.

    Whatever else it is, it means "short": a setting that is only read when something is wrong already raises nothing.
    """
    return bool(_setting("train.tracebacks") == "whole")


def memory_limit() -> int | None:
    """``train.memory.limit`` in bytes; None if Dask's limit and the container's count.

    Raises
    ------
    ValueError
        It is no number of bytes.
    """
    setting = _setting("train.memory.limit")
    if setting is None:
        return None
    try:
        return int(parse_bytes(setting))
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"train.memory.limit is {setting!r}, which is no size. Write it like '8 GiB'.") from error
