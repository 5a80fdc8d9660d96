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
from pathlib import Path
from typing import Any

import keras
import numpy as np

from dask_train.compat.keras.compiled import build_symbolically, compile_loss, compile_metrics
from dask_train.compat.keras.internals import AutocastScope, compute_output_spec, is_default
from dask_train.compat.keras.layers import flatten_layers, inner_layers, own_non_trainable
from dask_train.compat.keras.optimizers import is_spared_weight_decay, trained_variables
from dask_train.compat.keras.saving import DiskIOStore, H5IOStore, load_state, save_state
from dask_train.keras_models import structure
from dask_train.keras_models.held import held, put, unknown_places, unknown_variables
from dask_train.keras_models.jax_calls import exact_calls

Array = np.ndarray[Any, np.dtype[Any]]


class ArrayStore(H5IOStore):
    """Where Keras' saving walk puts variables: a dict by layer path, in place of a file.

    A subclass since the walk takes only stores of the kinds that it knows; nothing is inherited.
    """

    def __init__(self) -> None:
        self.contents: dict[str, dict[str, Any]] = {}
        self.taken: set[str] = set()

    def __bool__(self) -> bool:
        return True

    def make(self, path: str, metadata: Any = None) -> dict[str, Any]:  # noqa: ARG002 - Keras' signature
        """Return the dict of one layer to write to."""
        return self.contents.setdefault(path, {})

    def get(self, path: str) -> dict[str, Any]:
        """Return the dict of one layer to read from; empty for one without variables."""
        self.taken.add(path)
        return self.contents.get(path, {})

    def has_path(self, path: str) -> bool:
        """Return whether something lies at or below that path."""
        return any(known == path or known.startswith(f"{path}/") for known in self.contents)


def compared_by(model: Any) -> tuple[bool, bool]:
    """Return whether a model was compiled with a loss, and with metrics, that compare predictions with targets."""
    return compile_loss(model) is not None, compile_metrics(model) is not None


def called_symbolically(model: Any, inputs: Any) -> Any:
    """Shapes and dtypes of what a call for prediction returns, as ``keras.KerasTensor``; nothing is computed."""
    with exact_calls():
        return compute_output_spec(model, inputs, training=False)


def stateful_layer(model: Any) -> Any:
    """Return the first layer that keeps state from batch to batch; None without one."""
    return next((layer for layer in flatten_layers(model) if getattr(layer, "stateful", False) is True), None)


def is_built(model: Any) -> bool:
    """Return whether all layers have their weights.

    A model that has no ``call``, only a ``train_step``, is never built.
    """
    can_be_called = type(model).call is not keras.Model.call
    return all(map(_has_weights, flatten_layers(model, include_self=can_be_called)))


def _has_weights(layer: Any) -> bool:
    # Without build() and inner layers Keras lets a layer have no more variables than it was made with; the lookup in a
    # TextVectorization is never called as a layer, so it is never built.
    return layer.built or (is_default(layer.build) and not inner_layers(layer))


def build_for_batch(model: Any, batch: Any) -> None:
    """Make the variables of a compiled model's loss and metrics, as Keras' own loops make them of their first batch.

    Parameters
    ----------
    batch
        Inputs, or a tuple of inputs, targets and perhaps weights.
    """
    with exact_calls():
        build_symbolically(model, keras.utils.unpack_x_y_sample_weight(batch), again=True)


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
        if any(hasattr(layer, "save_assets") for layer in flatten_layers(model)):
            files = DiskIOStore("files", mode="w")
            stack.callback(files.close)
        save_state(model, store, files, _left_behind(model))
        for path, variables in _saved_as_they_are(model).items():
            store.make(path).update({str(number): variable for number, variable in enumerate(variables)})
        keys = [[path, key] for path, entries in store.contents.items() for key in entries]
        arrays = [as_array(store.contents[path][key]) for path, key in keys]
        if files is not None:
            root = Path(files.working_dir)
            paths = sorted(path for path in root.rglob("*") if path.is_file())
            keys += [[str(path.relative_to(root))] for path in paths]
            arrays += [np.frombuffer(path.read_bytes(), np.uint8) for path in paths]
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
                files = DiskIOStore(folder, mode="r")
                Path(folder, path).parent.mkdir(parents=True, exist_ok=True)
                Path(folder, path).write_bytes(array.tobytes())
        load_state(model, store, files, _left_behind(model), failed)
    for path, variables in _saved_as_they_are(model).items():
        assign(variables, list(store.get(path).values()), f"layers of {path}")
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


def statistics(model: Any) -> list[Any]:
    """Variables that a call may change, such as moving averages; also those that Keras does not know, but no seeds."""
    own = [variable for layer in flatten_layers(model) for variable in own_non_trainable(layer)]
    return [*{id(variable): variable for variable in own}.values(), *unknown_variables(model)]


def save_unknown(model: Any) -> tuple[list[dict[str, Any]], list[Array]]:
    """Variables that a model holds and Keras does not know, such as a ``tf.Variable`` in an attribute.

    Returns
    -------
    described
        Of each its ``place`` and ``name``.
    arrays
        Their values, see :func:`as_array` for copies.
    """
    placed = unknown_places(model)
    described = [{"place": place, "name": str(getattr(one, "path", one.name))} for place, one in placed]
    return described, [as_array(variable) for _, variable in placed]


def load_unknown(model: Any, described: list[dict[str, Any]], arrays: list[Array]) -> list[str]:
    """Assign what :func:`save_unknown` has returned, one copy per array; return names without a variable here."""
    places = {tuple(place): variable for place, variable in unknown_places(model)}
    missing = []
    for entry, array in zip(described, arrays, strict=True):
        variable = places.get(tuple(entry["place"]))
        if variable is None or tuple(variable.shape) != array.shape:
            missing.append(entry["name"])
        else:
            variable.assign(array)
    return missing


def describe_optimizers(model: Any, *, checksums: bool = True) -> list[dict[str, Any]]:
    """Return what configs lack of optimizers: the variables they are built on or spare weight decay.

    Returns
    -------
    list of dict
        One for each optimizer: ``class``, its name; ``places``, all that hold it; ``built``; ``on`` and ``spared``,
        both positions in ``model.variables``; ``variables``, what its own are called, and ``checksums`` of them.

    Raises
    ------
    TypeError
        An optimizer is built on a variable that is not the model's.
    """
    positions = {id(variable): position for position, variable in enumerate(model.variables)}
    described = []
    for optimizer, places in held_optimizers(model):
        on = trained_variables(optimizer) if optimizer.built else []
        for variable in on:
            if id(variable) not in positions:
                raise TypeError(
                    f"Optimizer {optimizer.name!r} is built on {variable.path!r}, which is not the model's."
                )
        decaying = innermost(optimizer)
        spared = [v for v in on or model.trainable_variables if is_spared_weight_decay(decaying, v)]
        described.append(
            {
                "class": type(optimizer).__name__,
                "places": places,
                "built": bool(optimizer.built),
                "on": [positions[id(variable)] for variable in on],
                "spared": [positions[id(variable)] for variable in spared],
                "variables": [_described(variable) for variable in optimizer.variables],
                "checksums": structure.checksums(optimizer.variables, as_array) if checksums else None,
            }
        )
    return described


def has_lost_what_it_trained(model: Any) -> bool:
    """Return whether ``quantize`` has put other variables in the place of those that an optimizer was built on."""
    if not any(getattr(layer, "quantization_mode", None) for layer in flatten_layers(model)):
        return False
    known = {id(variable) for variable in model.variables}
    return any(
        id(variable) not in known
        for optimizer, _ in held_optimizers(model)
        if optimizer.built
        for variable in trained_variables(optimizer)
    )


def held_optimizers(model: Any) -> list[tuple[Any, list[list[Any]]]]:
    """Every optimizer that a layer of the model holds, with all places: layer number, attribute, keys below it."""
    optimizers: dict[int, tuple[Any, list[list[Any]]]] = {}
    for place, optimizer in held(model, lambda value: isinstance(value, keras.optimizers.Optimizer)):
        optimizers.setdefault(id(optimizer), (optimizer, []))[1].append(place)
    return list(optimizers.values())


def optimizer_variables(model: Any) -> list[Any]:
    """Variables of all optimizers that a model holds, each optimizer's once."""
    return [variable for optimizer, _ in held_optimizers(model) for variable in optimizer.variables]


def load_optimizers(
    model: Any, described: list[dict[str, Any]], arrays: list[Array], *, uncompiled: bool = False
) -> None:
    """Build the optimizers of a model as they were, and assign their variables; each array is copied once.

    Parameters
    ----------
    uncompiled
        Whether the model travels without its compilation, and so without optimizers that it got there.

    Raises
    ------
    ValueError
        An optimizer is missing or of another class, or has other variables than it had.
    """
    waiting, variables, layers = iter(arrays), model.variables, list(flatten_layers(model))
    by_place = {tuple(place): optimizer for optimizer, places in held_optimizers(model) for place in places}
    for description in described:
        own = list(itertools.islice(waiting, len(description["variables"])))
        places = [place for place in description["places"] if tuple(place) in by_place]
        if not places:
            if uncompiled:
                continue
            number, *keys = description["places"][0]
            holder = layers[number].name if number < len(layers) else f"layer {number}"
            raise ValueError(
                f"Optimizer {description.get('class', '')} was held in {'.'.join(map(str, keys))!r} of {holder!r}, "
                "where there is none now: its state would be lost. Set it in __init__ or compile(), or take it from "
                "what get_config() tells; or drop it before the model is sent."
            )
        optimizer = by_place[tuple(places[0])]
        if type(optimizer).__name__ != description.get("class", type(optimizer).__name__):
            raise ValueError(
                f"Optimizer {optimizer.name!r} is {type(optimizer).__name__}, and was {description['class']}."
            )
        for place in places[1:]:
            put(layers, place, optimizer)
        if description["spared"]:
            innermost(optimizer).exclude_from_weight_decay(var_list=[variables[at] for at in description["spared"]])
        if description["built"] and not optimizer.built:
            optimizer.build([variables[at] for at in description["on"]])
        what = f"optimizer {optimizer.name!r}"
        assign(optimizer.variables, own, what)
        for variable, entry in zip(optimizer.variables, description["variables"], strict=True):
            dtype = _described(variable)["dtype"]
            if dtype != entry["dtype"] and not ("int" in dtype and "int" in entry["dtype"]):  # counters, by the backend
                raise ValueError(
                    f"Variable {entry['path']!r} of {what} had dtype {entry['dtype']}, not {variable.dtype}."
                )
        structure.check_values(optimizer.variables, description["checksums"], as_array)


def _described(variable: Any) -> dict[str, Any]:
    return {"path": variable.path, "dtype": keras.backend.standardize_dtype(variable.dtype)}


def innermost(optimizer: Any) -> Any:
    """Return the optimizer that a LossScaleOptimizer wraps, which decays weights; any other itself."""
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
        with AutocastScope(None):  # within a layer's call of mixed precision it would be rounded
            value = value.value
    if keras.backend.backend() == "torch":
        value = keras.ops.convert_to_numpy(value)
    elif hasattr(value, "read_value"):  # np.asarray of a tf.Variable copies, of the tensor that it holds it does not
        value = value.read_value()
    return np.asarray(value, order="C")


def _left_behind(model: Any) -> set[int]:
    """Ids of what the saving walk shall pass by: optimizers, which travel on their own, and what is saved as it is."""
    return {id(optimizer) for optimizer, _ in held_optimizers(model)} | set(map(id, _layers_with_lora(model)))


def _layers_with_lora(model: Any) -> list[Any]:
    return [layer for layer in flatten_layers(model) if structure.has_lora(layer)]


def _saved_as_they_are(model: Any) -> dict[str, list[Any]]:
    """Variables of layers with ``enable_lora``, which would save their kernel with the adapters merged into it."""
    return {f"_lora/{number}": layer.variables for number, layer in enumerate(_layers_with_lora(model))}
