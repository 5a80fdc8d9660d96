"""torch in a run of ``fit`` of a module: no process group, but the memory in which the workers of a host agree."""

from __future__ import annotations

from dask_train.frameworks.fitting import FitFramework
from dask_train.frameworks.torch.adapter import TorchFramework
from dask_train.frameworks.torch.imports import TORCH_IMPORTS


class TorchFitFramework(FitFramework):
    """The adapter of ``fit`` for torch modules; ``in_place`` as of :class:`FitFramework`."""

    name = "torch"
    imports = TORCH_IMPORTS

    def __init__(self, *, in_place: bool = False) -> None:
        super().__init__(TorchFramework(), in_place=in_place)
