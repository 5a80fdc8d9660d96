"""Keras in a run of ``fit``: the backend's own adapter, and the memory in which the workers of a host agree."""

from __future__ import annotations

import os

from dask_train.errors import LaunchError
from dask_train.frameworks.base import Framework, RoleInfo
from dask_train.frameworks.fitting import FitFramework
from dask_train.frameworks.keras.environment import backend_environment, keras_imports


class KerasFramework(FitFramework):
    """The adapter of ``fit`` for Keras models.

    Parameters
    ----------
    backend
        Keras' name of the backend.
    inner
        The adapter of that backend, whose own network is not used.
    in_place
        As of :class:`FitFramework`.
    """

    name = "keras"

    def __init__(self, backend: str, inner: Framework, *, in_place: bool = False) -> None:
        super().__init__(inner, in_place=in_place)
        self._backend = backend
        self.imports = keras_imports(backend)
        self.import_environment = backend_environment(backend)

    def load(self, me: RoleInfo) -> None:
        """Import Keras on its backend, with this role's threads.

        What the environment of the Dask worker says of Keras' backend does not count: the client's does.

        Raises
        ------
        LaunchError
            Keras or its backend can't be imported, or Keras runs on another backend here by now.
        """
        os.environ.update(self.import_environment)
        self._inner.load(me)
        try:
            import keras
        except ImportError as error:
            raise LaunchError(
                f"Keras can't be imported for {me.role} {me.rank}: {error}.",
                change=f"Install it on every Dask worker: pip install keras {self._backend}.",
            ) from error
        if (current_backend := keras.backend.backend()) != self._backend:
            raise LaunchError(
                f"Keras runs on {current_backend!r} for {me.role} {me.rank}, and on {self._backend!r} for the client.",
                "Something imported Keras there before this run set its backend, such as a sitecustomize module.",
                "Set KERAS_BACKEND where that is imported, or don't import Keras there.",
            )
        from dask_train.keras_models.lazy_tensorflow import spare_tensorflow

        spare_tensorflow()
