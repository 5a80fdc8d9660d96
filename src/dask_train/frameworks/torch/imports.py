"""What processes with torch import: roles and models alike, so that they share it."""

from __future__ import annotations

TORCH_IMPORTS = (
    "torch",
    "dask_train.frameworks.torch.first_optimizer",
    "dask_train.frameworks.torch.group",
    "dask_train.predicting.server.process",
    "dask_train.predicting.server.torch_model",
    "dask_train.fitting.torch_module.worker",
)
