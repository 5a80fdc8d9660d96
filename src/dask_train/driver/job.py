"""What was asked for: all that a driver has to know of its run from the start."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dask_train.checkpoint.place import CheckpointPlace
from dask_train.data.parcel import Parcel
from dask_train.driver.settings import RunSettings
from dask_train.frameworks.base import Framework
from dask_train.logging.base import Start
from dask_train.process.launch import Preload
from dask_train.run.state import RunPlan
from dask_train.settings.process import Settings


@dataclass(frozen=True, kw_only=True)
class Job:
    """What a driver is given.

    Attributes
    ----------
    id
        The name of the run.
    plan
        What the course of the run depends on.
    functions, names
        Pickled functions by role, with their large arrays, and what the user called them.
    framework
        The adapter.
    run
        The settings of the run.
    needs
        Resources that each process of a role needs, by role.
    checkpoint
        Where checkpoints are kept, if anywhere.
    settings
        Of libraries, as they were where the run was asked for.
    preload
        What templates of its role processes import; None if there are none.
    client_s
        How long the client may be silent until the scheduler ends the run.
    params
        What the run was asked to do, by name: for places of scores, and to compare runs.
    refuses
        Tells errors of its roles that are raised as they are; None: none are.
    """

    id: str
    plan: RunPlan
    functions: dict[str, Parcel]
    names: dict[str, str]
    framework: Framework
    run: RunSettings
    checkpoint: CheckpointPlace | None
    needs: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    settings: Settings = field(default_factory=Settings)
    preload: Preload | None = None
    client_s: float = 300.0
    params: Mapping[str, Any] = field(default_factory=dict)
    refuses: Callable[[BaseException], bool] | None = None

    def started(self) -> Start:
        """Return the description of the run for places of ``log=``; it begins now."""
        place, params = self.checkpoint, self.params
        if place is None:
            return Start(run=self.id, params=params, time=time.time())
        return Start(run=self.id, params=params, time=time.time(), checkpoint=place.url, resumes=place.resume)
