"""Torch modules as a search trains them."""

from __future__ import annotations

from typing import Any

from dask_train.fitting.searched import SearchedKind, TrialRows, TrialSpec
from dask_train.fitting.settings import of_trial
from dask_train.fitting.torch_module.entry import ModuleRole
from dask_train.fitting.torch_module.settings import ModuleSettings
from dask_train.fitting.torch_module.task import ModuleTask
from dask_train.frameworks.torch.fitting import TorchFitFramework


class SearchedModules(SearchedKind):
    """Modules in a search, which ``build`` returns with a loss and an optimizer."""

    settings = ModuleSettings

    def framework(self) -> TorchFitFramework:
        """Return that of ``fit`` of modules."""
        return TorchFitFramework()

    def trial(self, model: Any, settings: ModuleSettings, rows: TrialRows) -> TrialSpec:
        """Check a module as ``fit`` does; the best model is a copy of it."""
        from dask_train.fitting.torch_module.prepared import PreparedModule

        task = PreparedModule.checked(model, settings, rows.data, rows.validation).task(rows.workers, of_trial())
        return TrialSpec(work=ModuleRole(task), model=lambda trained: _module_of(task, trained))


def _module_of(task: ModuleTask, trained: dict[str, Any]) -> Any:
    """Return a module like the one that was built, which may be changed meanwhile, with the trained tensors."""
    from dask_train.fitting.torch_module.values import opened, set_state
    from dask_train.frameworks.torch.modules import unpickle_parts

    module = unpickle_parts(task.header["training"], task.arrays).module
    set_state(module, opened(trained["training"], copies=False)["module"])
    return module
