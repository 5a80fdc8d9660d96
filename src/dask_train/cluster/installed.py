"""What a Dask worker has installed, found without importing any of it.

The one function here travels by value (``dask_train.cluster.by_value.ByValue``), because the answer may be that
dask-train itself is missing.
"""

from __future__ import annotations


def installed_versions() -> dict[str, str]:
    """``{package: version}`` of what both sides should agree on; a package that is missing is left out.

    Quick enough for an event loop: metadata is read, nothing is imported.
    """
    import importlib.metadata
    import importlib.util
    import platform

    # The same module comes in several distributions: https://www.tensorflow.org/install/pip
    distributions = {
        "dask_train": ("dask-train",),
        "tensorflow": ("tensorflow", "tensorflow-cpu", "tensorflow-gpu", "tf-nightly", "tensorflow-intel"),
        "keras": ("keras", "keras-nightly"),
        "torch": ("torch",),
        "jax": ("jax",),
        "xgboost": ("xgboost", "xgboost-cpu"),
        "lightgbm": ("lightgbm",),
        "sklearn": ("scikit-learn",),
        "numpy": ("numpy",),
        "dask": ("dask",),
        "distributed": ("distributed",),
    }
    versions = {"python": platform.python_version()}
    for module, names in distributions.items():
        if importlib.util.find_spec(module) is None:
            continue
        versions[module] = "unknown"
        for name in names:
            try:
                versions[module] = importlib.metadata.version(name)
                break
            except importlib.metadata.PackageNotFoundError:
                continue
    return versions
