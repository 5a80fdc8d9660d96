"""The training loop of workers that train one module together, which resumes with the checkpoint's optimizer."""

from __future__ import annotations

from dask_train.fitting.torch_module.checkpoints import as_begun, check_same, schedule_notice
from dask_train.fitting.torch_module.values import from_plain
from dask_train.trainers.common.fit_checkpoint import FitCheckpoint
from dask_train.trainers.common.loop import TrainingLoop

# The part of the state that module, optimizer and scheduler are.
TRAINING = "training"


class ModuleLoop(TrainingLoop):
    """The training loop of one worker."""

    def _check_begun(self, checkpoint: FitCheckpoint) -> None:
        """Check that training continues as it began; print a notice where the checkpoint has another schedule."""
        if checkpoint.run == self._task.run:
            return
        then, now = checkpoint.configuration, self._configuration
        if TRAINING in checkpoint.shared:
            now = as_begun(then, now, from_plain(checkpoint.shared[TRAINING], copies=False)["optimizer"])
        check_same(then, now)
        self._configuration = now  # so that a third call may begin as the first one did
        if notice := schedule_notice(then, now):
            self._session.notice(notice)
