"""The private parts of other packages that the library uses: which, in which rooms, and that they are there."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import dask.array as da
import dask.dataframe as dd
import distributed
import pandas as pd
import pytest

import dask_train
from dask_train.keras_models.private_parts import ATTRIBUTES as OF_KERAS
from dask_train.keras_models.private_parts import check_private_parts

SOURCE = Path(dask_train.__file__).parent

# Which private names are used of what, and in which rooms. A new version without one of them fails below by its name.
OF_DASK = {
    "client": ("_cancel", "_gather", "_run", "_run_on_scheduler", "_scatter"),
    "worker": ("_instances",),
    "multi_lock": ("_request_locks",),
    "dispatch": ("_lookup",),
}
OF_COLLECTIONS = {"collection": ("_meta",), "frame": ("_meta_nonempty",), "expression": ("_parameters",)}
OF_SOME_KERAS = ("_fn", "_fn_kwargs", "_is_excluded_from_weight_decay", "_load_state", "_save_state")  # not of all
OF_OPTUNA = {"frozen_trial": ("_trial_id",)}  # of which a trial that a checkpoint holds is made again
OF_OTHERS = {
    "os": ("_exit",),
    "sys": ("_getframe",),
    "atexit": ("_run_exitfuncs",),
    "torch.nn.utils.parametrize": ("_inject_new_class", "_inject_property"),
    "torch": ("_get_sequence_number_for_group", "_rendezvous_handlers", "_set_pg_timeout", "_world"),
    "autograd_node": ("_input_metadata",),
    "namedtuple": ("_asdict", "_replace"),
}
PRIVATE_MODULES = {
    "keras.src": ("keras_models", "fitting", "settings"),
    "pandas._config": ("settings",),
    "tensorflow.python": ("fitting", "settings"),
    "dask.dataframe.dask_expr._expr": ("collections",),
    "torch.utils.data._utils": ("frameworks",),
}
ROOMS = {
    **dict.fromkeys(sum(OF_DASK.values(), ()), ("cluster", "scheduler")),
    **dict.fromkeys(sum(OF_COLLECTIONS.values(), ()), ("collections", "predicting")),
    **dict.fromkeys(sum(OF_KERAS.values(), OF_SOME_KERAS), ("keras_models", "fitting")),
    **dict.fromkeys(sum(OF_OPTUNA.values(), ()), ("searching",)),
    **dict.fromkeys(sum(OF_OTHERS.values(), ()), None),
}


def used() -> Iterator[tuple[str, Path]]:
    """Attributes of others whose names begin with an underscore, and the files that use them."""
    trees = {path: ast.parse(path.read_text()) for path in sorted(SOURCE.rglob("*.py"))}
    nodes = [(path, node) for path, tree in trees.items() for node in ast.walk(tree)]
    definitions = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    ours = {node.name for _, node in nodes if isinstance(node, definitions)}
    ours |= {node.attr for _, node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)}
    ours |= {node.id for _, node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    for path, node in nodes:
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
            whose = ast.unparse(node.value)
            if whose not in ("self", "cls") and (node.attr not in ours or whose.endswith("dask_end")):
                yield node.attr, path.relative_to(SOURCE)


def test_all_of_them_are_listed_here_and_used_in_their_rooms():
    found = list(used())
    assert sorted({f"{name} in {path}" for name, path in found if name not in ROOMS}) == []
    elsewhere = [(name, path) for name, path in found if ROOMS[name] and path.parts[0] not in ROOMS[name]]
    assert elsewhere == []
    assert sorted(set(ROOMS) - {name for name, _ in found} - {"_use_weight_decay"}) == []


def test_private_modules_are_imported_in_their_rooms_and_there():
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
            room = path.relative_to(SOURCE).parts[0]
            for prefix, rooms in PRIVATE_MODULES.items():
                if module.startswith(prefix):
                    assert room in rooms, f"{path.relative_to(SOURCE)} imports {module}"
                    found = pytest.importorskip(prefix.partition(".")[0]) and import_module(module)
                    gone = [each.name for each in node.names if not _has(found, each.name)]
                    assert gone == [], f"{module} has no {gone} any more"


def _has(module: Any, name: str) -> bool:
    return hasattr(module, name) or find_spec(f"{module.__name__}.{name}") is not None


def missing(owners: dict[str, Any], names: dict[str, tuple[str, ...]]) -> list[str]:
    return [f"{owner}.{name}" for owner, all_of in names.items() for name in all_of if not hasattr(owners[owner], name)]


def test_dask_and_distributed_have_them():
    from distributed.multi_lock import MultiLockExtension
    from distributed.protocol.serialize import dask_serialize

    frame = dd.from_pandas(pd.DataFrame({"x": [1]}), npartitions=1)
    owners = {
        "client": distributed.Client,
        "worker": distributed.Worker,
        "multi_lock": MultiLockExtension,
        "dispatch": dask_serialize,
        "collection": da.ones(3),
        "frame": frame,
        "expression": frame.expr,
    }
    assert missing(owners, OF_DASK | OF_COLLECTIONS) == []


def test_keras_has_them(monkeypatch):
    keras = pytest.importorskip("keras")
    from keras.src.losses import loss

    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("adam", loss="mse", metrics=["mae"])
    model.optimizer.build(model.trainable_variables)
    assert missing({"config": model.layers[0]}, {"config": OF_KERAS["config"]}) == []
    check_private_parts(model)
    monkeypatch.setattr(keras.losses.Loss, "__call__", lambda self, *args: 0.0)
    with pytest.raises(dask_train.VersionMismatchError, match=r"Loss.__call__ does not use reduce_weighted_values\."):
        check_private_parts(model)
    monkeypatch.delattr(loss, "squeeze_or_expand_to_same_rank")
    with pytest.raises(dask_train.VersionMismatchError, match=r"keras\.src\.losses\.loss has no squeeze_or_expand"):
        check_private_parts(model)


def test_optuna_has_them():
    trial = pytest.importorskip("optuna").trial
    owners = {"frozen_trial": trial.create_trial(state=trial.TrialState.FAIL)}
    assert missing(owners, OF_OPTUNA) == []
