"""Which adapter serves which framework; finding one imports the adapter, not its framework."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import entry_points

from dask_train.arguments import nearest
from dask_train.frameworks.base import Framework

# A package outside adds its adapter with
# [project.entry-points."dask_train.frameworks"]
# mine = "my_package.adapter:MyFramework"
ENTRY_POINTS = "dask_train.frameworks"

_OURS = {
    "numpy": "dask_train.frameworks.base:Framework",
    "jax": "dask_train.frameworks.jax.adapter:JaxFramework",
    "jax-distributed": "dask_train.frameworks.jax.adapter:distributed",
    "lightgbm": "dask_train.frameworks.lightgbm.adapter:LightGBMFramework",
    "tensorflow": "dask_train.frameworks.tensorflow.adapter:TensorFlowFramework",
    "torch": "dask_train.frameworks.torch.adapter:TorchFramework",
    "torchrun": "dask_train.frameworks.torch.adapter:TorchrunFramework",
    "xgboost": "dask_train.frameworks.xgboost.adapter:XGBoostFramework",
}


def find_framework(framework: str | Framework | None) -> Framework:
    """Return the adapter for what a user passed as ``framework=``.

    Parameters
    ----------
    framework
        A name, an adapter, which is taken as it is, or None for no framework: batches are then NumPy arrays.

    Raises
    ------
    ValueError
        No adapter has this name.
    TypeError
        It is neither, or what an installed package registered is no adapter.
    """
    if framework is None:
        return Framework()
    if isinstance(framework, Framework):
        return framework
    if not isinstance(framework, str):
        raise TypeError(
            f"framework is a {type(framework).__name__}; pass a name such as 'tensorflow', "
            "an instance of dask_train.frameworks.base.Framework, or None."
        )
    return _by_name(framework)


def _by_name(name: str) -> Framework:
    if name in _OURS:
        module, _, made_by = _OURS[name].partition(":")
        framework = getattr(import_module(module), made_by)()
    else:
        others = {point.name: point for point in entry_points(group=ENTRY_POINTS)}
        if name not in others:
            known = sorted({*_OURS, *others})
            raise ValueError(
                f"There is no adapter for the framework {name!r}; there are {', '.join(known)}.{nearest(name, known)}"
            )
        framework = others[name].load()()
    if not isinstance(framework, Framework):
        raise TypeError(
            f"The adapter that is registered for {name!r} makes a {type(framework).__name__}; "
            "it has to make a dask_train.frameworks.base.Framework."
        )
    return framework
