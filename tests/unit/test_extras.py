"""What needs an extra that is missing says which, before anything else happens."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dask_train as dt
from dask_train import linear_model, sklearn
from dask_train.data.ledger import Ledger
from dask_train.demo.live import LiveLine
from dask_train.demo.main_job import run_main_job
from dask_train.demo.pictures import save_pictures
from dask_train.demo.pipeline import DemoSettings
from dask_train.driver.result import Attempt
from dask_train.extras import warn_elsewhere

ROOT = Path(__file__).parents[2]
X = np.ones((4, 2))


class Net:
    """A model that can be kept."""

    __module__ = "keras.models"  # as those of Keras
    name = "net"

    def save(self, path: Path) -> None:
        path.write_text("weights")


def fitted() -> dt.FitResult:
    return dt.FitResult(
        scores=[],
        ledger=Ledger(lines=(), read=4, trained=4, repeated=0, dropped=0),
        attempts=[Attempt(number=0, started=1.0, ended=2.0, places={"worker/0": "tcp://a:1"})],
        stop_reason="",
        run_id="fit-1",
        model=Net(),
        history={"loss": [0.5]},
        epoch=[0],
        all_reduce_s=0.0,
        waiting_s=0.0,
    )


@pytest.mark.parametrize(
    ("missing", "use", "install"),
    [
        ("matplotlib", lambda path: fitted().plot(), "'.[plots]'"),
        ("matplotlib", lambda path: fitted().report(path / "run.html"), "'.[plots]'"),
        ("matplotlib", lambda path: save_pictures({"one": X}, path / "one.png"), "'.[plots]'"),
        (
            "matplotlib",
            lambda path: run_main_job(DemoSettings(), scheduler=None, report=path / "run.html", line=LiveLine()),
            "'.[plots]'",
        ),
        (
            "optuna",
            lambda path: dt.search(lambda trial: None, X, X, metric="loss"),
            "'.[search]'",
        ),
        ("sklearn", lambda path: dt.search(object(), X, X, params={"a": [1]}), "'.[linear]'"),
        ("sklearn", lambda path: linear_model.Ridge, "'.[linear]'"),
        ("sklearn", lambda path: sklearn.Incremental, "'.[linear]'"),
        ("keras", lambda path: sklearn.KerasClassifier, "'.[tensorflow]'"),
        ("keras", lambda path: dt.predict("net.keras", X), "'.[tensorflow]'"),
        ("mlflow", lambda path: dt.logging.MLflow(), "mlflow-skinny"),
        ("wandb", lambda path: dt.logging.WandB(), "wandb"),
    ],
)
def test_what_is_missing_is_named_with_what_brings_it(
    missing: str, use: Callable[[Path], Any], install: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    told = rf"needs {missing}, which is not installed: pip install {re.escape(install)}( in a clone of dask-train)?\.$"
    with pytest.raises(ImportError, match=told):
        use(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_what_nobody_asked_for_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert sorted(path.name for path in fitted()._save(tmp_path)) == ["ledger.json", "model.keras"]
    assert "net" in fitted()._repr_html_()


def test_every_extra_that_is_named_is_there() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    source = "".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    named = {*re.findall(r"""install_command\(["'](\w+)""", source)}
    assert {"plots", "search", "linear", "tensorflow", "torch"} <= named <= set(extras)


@pytest.mark.parametrize(("platform", "named"), [("darwin", "macOS"), ("win32", "Windows"), ("aix", "aix")])
def test_other_systems_than_linux_are_warned_of(platform: str, named: str) -> None:
    with pytest.warns(UserWarning, match=f"runs on Linux, and was not tried on {named}: "):
        warn_elsewhere(platform)
    warn_elsewhere("linux")


def test_pages_install_from_a_clone() -> None:
    extras = {*tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]}
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "docs").glob("*.ipynb")]
    text = "".join(page.read_text() for page in pages)
    assert "dask-train[" not in text
    named = {extra for listed in re.findall(r"'\.\[([^\]]+)\]'", text) for extra in listed.split(",")}
    table = re.findall(r"^\| (`.*`) \|", (ROOT / "docs" / "start.md").read_text(), re.MULTILINE)
    told = {extra for row in table for extra in re.findall(r"`(\w+)`", row)}
    assert {"tensorflow", "linear"} <= named <= extras
    assert {"tensorflow", "torch", "jax", "xgboost", "search"} <= told <= extras
