"""Each module with logic has a file of unit tests in the same place; those that have none yet are listed.

The list only gets shorter: a new module has its file, and one that gets it leaves the list. Beside each stands the file
that shows what it does meanwhile: its room's, or one with the real processes that it needs.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE, UNIT = ROOT / "src" / "dask_train", ROOT / "tests" / "unit"

# By the test that shows them, below tests/.
WITHOUT_THEIR_OWN = {
    "cluster/test_main_job.py": "cli/demo demo/graph demo/main_job",
    "cluster/test_own_scheduler.py": "cluster/connect cluster/installed",
    "cluster/test_environments.py": "cluster/by_value",
    "cluster/train/test_small_clusters.py": "cluster/in_tasks",
    "cluster/test_keras_values.py": "cluster/in_transit cluster/keras_values",
    "cluster/train/test_faults.py": "cluster/interrupts",
    "docs/test_loops.py": "cluster/local",
    "cluster/train/test_shared_datasets.py": (
        "collections/shared shared_data/api shared_data/described shared_data/held shared_data/opened shared_data/parts"
        " shared_data/run_data shared_data/segments"
    ),
    "unit/collectives/test_checked.py": "collectives/announcements",
    "unit/collectives/test_process_group.py": "collectives/shared_memory",
    "cluster/test_dashboard.py": "dashboard/routes",
    "contract/test_numpy.py": "testing/frameworks testing/role_processes",
    "contract/test_rows_datasets.py": "frameworks/tensorflow/rows_dataset",
    "cluster/train/test_predict_torch.py": "predicting/server/torch_model",
    "unit/keras_models/test_serialization.py": (
        "keras_models/custom_objects keras_models/feature_spaces keras_models/remaking keras_models/text_inputs"
    ),
    "unit/test_private_names.py": "keras_models/private_parts",
    "unit/fitting/backends/test_torch.py": "keras_models/torch_state",
    "unit/linear_model/test_linear_models.py": (
        "linear_model/fitting linear_model/general linear_model/least_squares"
        " linear_model/linear linear_model/logistic linear_model/solving"
    ),
    "unit/linear_model/test_penalised.py": "linear_model/admm linear_model/composite linear_model/penalised_squares",
    "cluster/train/test_predict.py": "predicting/server/files",
    "unit/predicting/test_model_process.py": "predicting/server/process predicting/server/runners",
    "unit/predicting/server/test_keras_backends.py": ("predicting/server/keras_jax predicting/server/keras_torch"),
    "unit/report/test_progress.py": "report/notebook report/redrawn",
    "unit/training/test_in_process.py": "shared_data/in_process",
    "cluster/train/test_streaming.py": "shared_data/streaming",
}
LISTED = {module: shown_by for shown_by, modules in WITHOUT_THEIR_OWN.items() for module in modules.split()}


def has_logic(file: Path) -> bool:
    """Whether a function in it branches; what only names, holds or passes on has nothing to get wrong by itself."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
    branches = (ast.If, ast.IfExp, ast.For, ast.AsyncFor, ast.While, ast.Try, ast.Match, ast.BoolOp, ast.comprehension)
    found = [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, functions)]
    return any(isinstance(node, branches) for function in found for node in ast.walk(function))


def modules() -> dict[str, Path]:
    """Modules with logic, by name, with the place of their tests."""
    files = [file for file in SOURCE.rglob("*.py") if not file.name.startswith("__") and has_logic(file)]
    found = {file.relative_to(SOURCE).with_suffix("").as_posix(): file for file in files}
    return {name: UNIT / file.relative_to(SOURCE).with_name(f"test_{file.stem}.py") for name, file in found.items()}


def test_each_module_has_a_file_of_tests_or_is_listed() -> None:
    without = {name for name, tests in modules().items() if not tests.exists()}
    assert sorted(without - set(LISTED)) == [], "they need a file of tests in the same place below tests/unit"
    assert sorted(set(LISTED) - without) == [], "they have one, or are gone: take them off the list"


@pytest.mark.parametrize("shown_by", WITHOUT_THEIR_OWN)
def test_what_shows_the_others_is_there(shown_by: str) -> None:
    assert (ROOT / "tests" / shown_by).exists()
    assert len(set(WITHOUT_THEIR_OWN[shown_by].split())) == len(WITHOUT_THEIR_OWN[shown_by].split())


def test_no_module_is_listed_twice() -> None:
    assert sum(len(each.split()) for each in WITHOUT_THEIR_OWN.values()) == len(LISTED)
