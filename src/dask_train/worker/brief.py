"""What an agent gets to know of its run when it is started."""

from __future__ import annotations

from dataclasses import dataclass, field

from dask_train.checkpoint.place import CheckpointPlace
from dask_train.data.letterbox import LetterboxPlace
from dask_train.data.parcel import Parcel
from dask_train.process.launch import Preload
from dask_train.settings.process import Settings


@dataclass(frozen=True, kw_only=True)
class Brief:
    """What an agent has to know of its run from the start.

    Attributes
    ----------
    run
        The run's name.
    counts, training
        How many there are of each role, and those that train, in the order of their ranks over all.
    functions
        Pickled functions by role, with their large arrays.
    framework
        The pickled adapter.
    checkpoint
        Where checkpoints are kept, if anywhere.
    settings
        Of libraries, that role processes take over.
    preload
        What templates of the role processes import; None if there are none.
    progress_every_s
        Seconds between reports of progress if there is nothing else to report.
    data_timeout_s
        How long a wait for data may take, in seconds.
    stop_s
        How long killed processes may take to be gone, in seconds.
    needs_devices
        Whether a role that was given a device must use it.
    letterbox
        Where roles leave large results; None for a run that has none, or whose client is on another host.
    keeps_state
        Whether roles keep their state in memory of the agent, for all to continue from when they start again.
    leave_within_s
        Seconds that roles have to end by themselves when the Dask worker leaves; then the agent reports their ends to
        the driver. None: they are ended at once, without a report.
    """

    run: str
    counts: dict[str, int]
    training: tuple[str, ...]
    functions: dict[str, Parcel] = field(repr=False)
    framework: bytes = field(repr=False)
    checkpoint: CheckpointPlace | None
    settings: Settings
    preload: Preload | None
    progress_every_s: float
    data_timeout_s: float
    stop_s: float
    needs_devices: bool = False
    letterbox: LetterboxPlace | None = None
    keeps_state: bool = False
    leave_within_s: float | None = None
