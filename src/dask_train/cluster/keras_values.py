"""Keras models as Dask values: arguments, results, scattered data, from process to process, optimizer state kept.

distributed's own way (``distributed.protocol.keras``) needs a method that Keras 3 dropped. Keras' own pickles forget
seed generators and custom classes. So models pickle by our parts, with arrays as buffers that Dask sends as frames,
and distributed falls back to pickle for them. One way serves a model alone, a model within a value, and a model in a
graph; and the side that receives need not have imported dask_train before.
"""

from __future__ import annotations

import functools
import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType
from typing import Any

from dask.sizeof import sizeof
from dask.tokenize import normalize_token
from dask.utils import Dispatch
from distributed.protocol.serialize import dask_deserialize, dask_serialize

from dask_train.cluster import in_transit
from dask_train.cluster.extension import ByValue


def register() -> None:
    """Let Keras models travel between Dask processes as soon as Keras is imported; imports nothing itself.

    To be called in each process that sends models, which ``import dask_train`` does; again does no harm. A Dask worker
    that gets a model has imported dask_train by that. One that makes its own, in tasks that do not import it, can be
    told to with ``distributed.worker.preload: [dask_train]`` in Dask's configuration.

    Notes
    -----
    A task that trains its argument trains the value that its Dask worker holds. Where that is needed again as it was,
    train ``copy.deepcopy(model)``.

    From then on ``pickle.dumps`` of a model, too, makes pickles that need dask-train to be read. Keep models in files
    with ``model.save``, as Keras asks.

    A Dask worker that gets its first model imports Keras and its backend in its event loop (5 s with TensorFlow).
    """
    for dispatch in (dask_serialize, dask_deserialize):
        dispatch.register_lazy("keras", _nothing)  # takes the place of distributed's own
    if "keras" in sys.modules:
        _install()
    elif not any(isinstance(finder, _AfterImport) for finder in sys.meta_path):
        # A hook, since Dask asks nobody before it pickles a value in which a model is hidden.
        sys.meta_path.insert(0, _AfterImport("keras", _install))


def _install() -> None:
    import keras

    for dispatch in (dask_serialize, dask_deserialize, sizeof, normalize_token):
        _forget(dispatch, keras.Model)
    keras.Model.__reduce__ = _reduce
    sizeof.register(keras.Model, _size_bytes)
    normalize_token.register(keras.Model, _token)


def _reduce(model: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    from dask_train.frameworks.keras import model_to_parts

    return in_transit.reduce_parts(_code(), *model_to_parts(model))


def _size_bytes(model: Any) -> int:
    from dask_train.frameworks.keras import model_size_bytes

    return model_size_bytes(model)


def _token(model: Any) -> tuple[Any, ...]:
    # Dask's own would pickle and unpickle the model up to three times (`dask.tokenize._normalize_pickle`).
    from dask_train.frameworks.keras import model_to_parts

    return "keras.Model", normalize_token(model_to_parts(model))


@functools.cache
def _code() -> bytes:
    _, (code,) = ByValue(in_transit.open_model, in_transit).__reduce__()
    return code


def _nothing() -> None:
    """Register nothing, so that distributed's next way is tried, which is pickle."""


def _forget(dispatch: Dispatch, parent: type) -> None:
    """Drop what a dispatch has for a class and its subclasses: what others registered, and what it remembered."""
    for cls in [known for known in dispatch._lookup if isinstance(known, type) and issubclass(known, parent)]:
        del dispatch._lookup[cls]


class _AfterImport(MetaPathFinder):
    """Calls a function once a module has been imported; leaves finding and loading to those that do it anyway."""

    def __init__(self, module: str, then: Callable[[], None]) -> None:
        self._module, self._then = module, then

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Find the module as the other finders do, with a loader that calls the function at its end."""
        if fullname != self._module:
            return None
        others = [finder for finder in sys.meta_path if finder is not self and hasattr(finder, "find_spec")]
        spec = next(filter(None, (finder.find_spec(fullname, path, target) for finder in others)), None)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                load(module)
                self._then()

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
