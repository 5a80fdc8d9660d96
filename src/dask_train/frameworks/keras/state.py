"""The numbers in a Keras model, out as arrays and in again: layers, seed generators, optimizers, assets.

Layers are asked as Keras' own ``.keras`` format asks them (``save_own_variables``, ``save_assets`` and their
counterparts), so one that decides itself what it keeps, such as ``Normalization`` or ``StringLookup``, comes out right;
only there is no file. What that format leaves behind is added: seed generators, and the optimizers of inner models.
The values of metrics stay behind, there and here.
"""

from __future__ import annotations

import contextlib
import itertools
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras.src.saving import saving_lib

Array = np.ndarray[Any, np.dtype[Any]]


class ArrayStore(saving_lib.NpzIOStore):
    """Where Keras' saving walk puts variables: a dict by layer path, in place of a file.

    A subclass since the walk takes only stores of the kinds that it knows; nothing is inherited.
    """

    def __init__(self) -> None:
        self.contents: dict[str, dict[str, Any]] = {}
        self.taken: set[str] = set()

    def make(self, path: str, metadata: Any = None) -> dict[str, Any]:  # noqa: ARG002 - Keras' signature
        """Return the dict of one layer to write to."""
        return self.contents.setdefault(path, {})

    def get(self, path: str) -> dict[str, Any]:
        """Return the dict of one layer to read from; empty for one without variables."""
        self.taken.add(path)
        return self.contents.get(path, {})

    def has_path(self, path: str) -> bool:
        """Whether something lies at or below that path."""
        return any(known == path or known.startswith(f"{path}/") for known in self.contents)


def save_layers(model: Any) -> tuple[list[list[str]], list[Array]]:
    """Weights of all layers, and the files that some keep, such as the vocabulary of a ``StringLookup``.

    Returns
    -------
    keys
        Of each array: ``[path, key]`` of weights, or ``[file]``, relative to the folder in which Keras puts files.
    arrays
        Weights, see :func:`as_array` for copies; then contents of files, uint8 of shape (bytes,), one copy.
    """
    store = ArrayStore()
    with contextlib.ExitStack() as stack:
        files = None
        if any(hasattr(layer, "save_assets") for layer in model._flatten_layers()):
            files = saving_lib.DiskIOStore("files", mode="w")
            stack.callback(files.close)
        saving_lib._save_state(model, store, files, "", _left_behind(model))
        keys = [[path, key] for path, held in store.contents.items() for key in held]
        arrays = [as_array(store.contents[path][key]) for path, key in keys]
        if files is not None:
            root = Path(files.working_dir)
            found = sorted(path for path in root.rglob("*") if path.is_file())
            keys += [[str(path.relative_to(root))] for path in found]
            arrays += [np.frombuffer(path.read_bytes(), np.uint8) for path in found]
    return keys, arrays


def load_layers(model: Any, keys: list[list[str]], arrays: list[Array]) -> None:
    """Assign weights to the layers that they came from, and give them their files; each array is copied once.

    Raises
    ------
    ValueError
        The model has other layers, or other shapes, than the one that was saved.
    """
    store = ArrayStore()
    failed: dict[int, tuple[Any, Exception]] = {}
    with tempfile.TemporaryDirectory() as folder:
        files = None
        for (path, *key), array in zip(keys, arrays, strict=True):
            if key:
                store.make(path)[key[0]] = array
            else:
                files = saving_lib.DiskIOStore(folder, mode="r")
                Path(folder, path).parent.mkdir(parents=True, exist_ok=True)
                Path(folder, path).write_bytes(array.tobytes())
        saving_lib._load_state(model, store, files, "", False, _left_behind(model), set(), failed)
    for saveable, error in failed.values():
        raise ValueError(f"{saveable}: {error}") from error
    missed = sorted(store.contents.keys() - store.taken)
    if missed:
        number = sum(len(store.contents[path]) for path in missed)
        raise ValueError(f"The rebuilt model has no layer at {missed} for {number} arrays.")


def seed_states(model: Any) -> list[Any]:
    """Variables of all seed generators of a model, in an order that its structure fixes."""
    weights = {id(weight) for weight in model.weights}
    return [variable for variable in model.variables if id(variable) not in weights]


def describe_optimizers(model: Any) -> list[dict[str, Any]]:
    """What configs do not tell of the optimizers in a model: the variables they are built on or spare weight decay.

    Returns
    -------
    list of dict
        One for each optimizer: ``places``, all that hold it; ``built``; ``on`` and ``spared``, both positions in
        ``model.variables``; ``num_variables``.

    Raises
    ------
    TypeError
        An optimizer is built on a variable that is not the model's.
    """
    positions = {id(variable): position for position, variable in enumerate(model.variables)}
    described = []
    for optimizer, places in held_optimizers(model):
        on = optimizer._trainable_variables if optimizer.built else []
        for variable in on:
            if id(variable) not in positions:
                raise TypeError(
                    f"Optimizer {optimizer.name!r} is built on {variable.path!r}, which is not the model's."
                )
        decaying = innermost(optimizer)
        spared = [v for v in on or model.trainable_variables if not decaying._use_weight_decay(v)]
        described.append(
            {
                "places": places,
                "built": bool(optimizer.built),
                "on": [positions[id(variable)] for variable in on],
                "spared": [positions[id(variable)] for variable in spared],
                "num_variables": len(optimizer.variables),
            }
        )
    return described


def held_optimizers(model: Any) -> list[tuple[Any, list[list[Any]]]]:
    """Every optimizer that a layer of the model holds, with all places: layer number, attribute, keys below it."""
    found: dict[int, tuple[Any, list[list[Any]]]] = {}
    for number, layer in enumerate(model._flatten_layers()):
        for name in sorted(vars(layer)):
            # `_compile_config` has what `compile` was given, `optimizer` what is in use; `_self_*` is TensorFlow's.
            if name != "_compile_config" and not name.startswith("_self_"):
                for place, optimizer in _optimizers_below(vars(layer)[name], [number, name]):
                    found.setdefault(id(optimizer), (optimizer, []))[1].append(place)
    return list(found.values())


def optimizer_variables(model: Any) -> list[Any]:
    """Variables of all optimizers that a model holds, each optimizer's once."""
    return [variable for optimizer, _ in held_optimizers(model) for variable in optimizer.variables]


def load_optimizers(model: Any, described: list[dict[str, Any]], arrays: list[Array]) -> None:
    """Build the optimizers of a model as they were, and assign their variables; each array is copied once.

    One in an attribute that did not travel is passed by.

    Raises
    ------
    ValueError
        An optimizer has other variables than it had.
    """
    waiting, variables, layers = iter(arrays), model.variables, list(model._flatten_layers())
    held = {tuple(place): optimizer for optimizer, places in held_optimizers(model) for place in places}
    for told in described:
        own = list(itertools.islice(waiting, told["num_variables"]))
        places = [place for place in told["places"] if tuple(place) in held]
        if not places:
            continue
        optimizer = held[tuple(places[0])]
        for number, *path in places[1:]:
            _put(layers[number], path, optimizer)
        if told["spared"]:
            innermost(optimizer).exclude_from_weight_decay(var_list=[variables[at] for at in told["spared"]])
        if told["built"] and not optimizer.built:
            optimizer.build([variables[at] for at in told["on"]])
        assign(optimizer.variables, own, f"optimizer {optimizer.name!r}")


def _optimizers_below(value: Any, place: list[Any]) -> Iterator[tuple[list[Any], Any]]:
    if isinstance(value, keras.optimizers.Optimizer):
        yield place, value
    elif isinstance(value, dict):
        for key, item in value.items():
            if isinstance(key, (str, int)):
                yield from _optimizers_below(item, [*place, key])
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from _optimizers_below(item, [*place, index])


def _put(holder: Any, path: list[Any], value: Any) -> None:
    attribute, *keys = path
    if not keys:
        setattr(holder, attribute, value)
        return
    holder = getattr(holder, attribute)
    for key in keys[:-1]:
        holder = holder[key]
    holder[keys[-1]] = value


def innermost(optimizer: Any) -> Any:
    """The optimizer that a LossScaleOptimizer wraps, which decays weights; any other itself."""
    return getattr(optimizer, "inner_optimizer", optimizer)


def assign(variables: list[Any], arrays: list[Array], what: str) -> None:
    """Assign arrays to variables in order; each array is copied once.

    Raises
    ------
    ValueError
        There are more or fewer of one than of the other.
    """
    if len(variables) != len(arrays):
        raise ValueError(f"The rebuilt model has {len(variables)} variables of {what} for {len(arrays)} arrays.")
    for variable, array in zip(variables, arrays, strict=True):
        variable.assign(array)


def as_array(value: Any) -> Array:
    """Return a snapshot of a variable, without a copy where the backend allows it.

    Parameters
    ----------
    value
        A Keras variable, a tensor, or anything that NumPy takes.

    Returns
    -------
    np.ndarray
        C-contiguous, perhaps read-only. TensorFlow and JAX on the CPU: no copy, and later training does not change
        it, since JAX arrays never change and TensorFlow updates a variable whose buffer is also held elsewhere in a
        new buffer (``PrepareToUpdateVariable`` in ``tensorflow/core/kernels/training_op_helpers.h``). Torch updates
        in place, so there one copy is made. From a GPU: the copy to the host.
    """
    if isinstance(value, keras.Variable):
        value = value.value
    if keras.backend.backend() == "torch":
        value = keras.ops.convert_to_numpy(value)
    elif hasattr(value, "read_value"):  # np.asarray of a tf.Variable copies, of the tensor that it holds it does not
        value = value.read_value()
    return np.asarray(value, order="C")


def _left_behind(model: Any) -> set[int]:
    """Ids of what the saving walk shall pass by: optimizers, which travel on their own."""
    return {id(optimizer) for optimizer, _ in held_optimizers(model)}
