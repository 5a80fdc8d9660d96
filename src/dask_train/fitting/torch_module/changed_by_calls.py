"""What calls of a module change besides its buffers, which a worker that takes a lost one's place has to be given."""

from __future__ import annotations

from typing import Any

import torch

from dask_train.fitting.torch_module.agreed import Named
from dask_train.fitting.torch_module.loop import ModuleLoop
from dask_train.fitting.torch_module.values import as_array, extra_states, from_plain, plain, set_all
from dask_train.trainers.common.guard import checksum
from dask_train.trainers.common.rank_state import RankState

# In the first one a teacher may still be equal to what it follows.
_NUM_STEPS_LOOKED_AT = 2


class ChangedByCalls:
    """Parameters and extra states that calls of the module change.

    A newcomer gets what all workers have alike from one that waits in its next step, where calls have changed it once
    more. So each worker mirrors it, as it is after the calls of a step. Which parameters these are is seen in the first
    two steps. Those that are trained can't be mirrored, as the optimizer changes them, too: then a lost worker is not
    replaced in place.

    Parameters
    ----------
    module
        Of this worker.
    loop
        Its training loop.
    """

    def __init__(self, module: torch.nn.Module, loop: ModuleLoop) -> None:
        self._module, self._loop = module, loop
        self._parameters = Named.different_parameters(module)
        self._untrained = {named.path for named in self._parameters if not named.tensor.requires_grad}
        self._has_extra = bool(extra_states(module))  # else no step looks through all of its parts
        self._checksums: list[int] = []
        self._num_looks = 0
        self._changed: set[str] = set()

    def keep(self, state: RankState) -> None:
        """Register it to be mirrored."""
        state.passing("changed by calls", self._take, self._restore)

    def before_calls(self) -> None:
        """Note what the parameters are before the calls of a step."""
        if not self._is_known:
            self._checksums = self._of_parameters()

    def after_calls(self) -> None:
        """Look what the calls of a step have changed, before it is mirrored."""
        if self._is_known:
            return
        pairs = zip(self._parameters, self._checksums, self._of_parameters(), strict=True)
        changed = {named.path for named, before, after in pairs if before != after}
        self._num_looks += 1
        if trained := sorted(changed - self._changed - self._untrained):
            self._loop.mirror_no_more(f"parameter {trained[0]!r} is trained, and changed where the module is called.")
        self._changed |= changed

    @property
    def _is_known(self) -> bool:
        return self._num_looks >= _NUM_STEPS_LOOKED_AT

    def _of_parameters(self) -> list[int]:
        return [checksum(as_array(named.tensor)) for named in self._parameters]

    def _mirrored(self) -> list[Named]:
        return [named for named in self._parameters if named.path in self._changed & self._untrained]

    def _take(self) -> dict[str, Any]:
        return {
            "looks": self._num_looks,
            "changed": sorted(self._changed),
            "values": [as_array(named.tensor).copy() for named in self._mirrored()],
            "extra": plain(extra_states(self._module)) if self._has_extra else plain({}),
        }

    def _restore(self, value: dict[str, Any]) -> None:
        self._num_looks, self._changed = value["looks"], set(value["changed"])
        if self._untrained and not self._is_known:
            self._loop.start_all_again(
                f"a worker was lost within the first {_NUM_STEPS_LOOKED_AT} steps, before it was known which "
                "parameters change where the module is called"
            )
        set_all([named.tensor for named in self._mirrored()], value["values"])
        for name, state in from_plain(value["extra"]).items():
            self._module.get_submodule(name).set_extra_state(state)
