"""Searches over torch modules on real clusters: models are those of ``fit``; trials are pruned, fail, die, resume."""

from __future__ import annotations

import os
import signal
import time
from functools import partial
from pathlib import Path

import numpy as np
import optuna
import pytest
import torch

import dask_train as dt

pytestmark = pytest.mark.slow

ROWS, BATCH, EPOCHS = 600, 50, 4
STEPS = ROWS // BATCH


def rows(seed=0):
    random = np.random.default_rng(seed)
    x = random.normal(size=(ROWS, 6)).astype("f4")
    return x, (x.sum(1) > 0).astype("i8")


def accuracy(outputs, targets):
    return (outputs.argmax(1) == targets).float().mean()


def made(units, seed):
    torch.manual_seed(seed)
    layers = [torch.nn.Linear(6, units), torch.nn.BatchNorm1d(units), torch.nn.Dropout(0.1), torch.nn.Linear(units, 2)]
    return torch.nn.Sequential(*layers)


def with_what(module, rate, **more):
    given = {"loss": torch.nn.CrossEntropyLoss(), "optimizer": partial(torch.optim.Adam, lr=rate), **more}
    return module, {"scheduler": partial(torch.optim.lr_scheduler.StepLR, step_size=2), "batch_size": BATCH, **given}


def search(build, client, **settings):
    given = {"validation_data": rows(1), "metric": "val_loss", "direction": "minimize", "epochs": EPOCHS, "seed": 3}
    return dt.search(build, *rows(), client=client, **{**given, "trials": 3, **settings})


def same(module, other):
    return all(
        torch.equal(*pair) for pair in zip(module.state_dict().values(), other.state_dict().values(), strict=True)
    )


@pytest.mark.parametrize("workers", [2, pytest.param(1, marks=pytest.mark.nightly)])
def test_the_best_module_is_that_of_fit_and_predicts(client, workers):
    def build(trial):
        return with_what(made(trial.suggest_int("units", 4, 16), trial.number), trial.suggest_float("rate", 0.003, 0.1))

    found = search(build, client, workers_per_trial=workers, concurrency=1)  # as many threads as fit has
    assert [trial.state.name for trial in found.trials] == ["COMPLETE"] * 3
    best = found.best_trial
    fitted, given = with_what(made(best.params["units"], best.number), best.params["rate"])
    given |= {"epochs": best.user_attrs["epoch"] + 1, "seed": 3, "workers": workers, "client": client}
    result = dt.fit(fitted, *rows(), validation_data=rows(1), **given)
    assert same(found.best_model, fitted)
    assert result.history["val_loss"][-1] == pytest.approx(found.best_value, rel=1e-6)
    assert type(found.best_model) is torch.nn.Sequential
    x, y = rows(1)
    scores = dt.evaluate(found.best_model, x, y, loss=given["loss"], client=client)
    assert scores["loss"] == pytest.approx(found.best_value, rel=1e-5)


def test_each_trial_ends_in_its_own_way(client):
    class PrunesOne(optuna.pruners.BasePruner):
        def prune(self, study, trial):
            return trial.params["kind"] == "pruned" and trial.last_step >= 1

    def build(trial):
        kind = trial.suggest_categorical("kind", ["learns", "pruned", "nan", "lacks"])
        rate = float("inf") if kind == "nan" else 0.05
        epochs = 1_000_000 if kind == "pruned" else 2  # for hours
        given = {"metrics": {"accuracy": accuracy}, "epochs": epochs}
        module, beside = with_what(made(4, 0), rate, **given)
        return module if kind == "lacks" else (module, beside)

    found = search(
        build,
        client,
        metric="val_accuracy",
        direction=None,
        trials=50,
        concurrency=2,
        sampler=optuna.samplers.GridSampler({"kind": ["learns", "pruned", "nan", "lacks"]}, seed=0),
        pruner=PrunesOne(),
    )
    trials = {trial.params["kind"]: trial for trial in found.trials}
    states = {kind: trial.state.name for kind, trial in trials.items()}
    assert states == {"learns": "COMPLETE", "pruned": "PRUNED", "nan": "FAIL", "lacks": "FAIL"}
    assert trials["nan"].user_attrs["error"].startswith("FloatingPointError: The loss is")
    assert "dt.fit needs loss=, optimizer= as well for a Sequential" in trials["lacks"].user_attrs["error"]
    x, y = rows(1)
    module = found.best_model.eval()
    with torch.no_grad():
        right = accuracy(module(torch.from_numpy(x)), torch.from_numpy(y))
    assert float(right) == pytest.approx(found.best_value, abs=1e-6)


class Dying(torch.nn.Module):
    """Notes its calls in training, and dies once, in the third epoch, when the checkpoint of the second is there."""

    def __init__(self, inner, folder, mark):
        super().__init__()
        self.inner, self.folder, self.mark, self.calls = inner, folder, mark, 0

    def forward(self, x):
        if self.training and self.mark:
            self.calls += 1
            with open(self.mark, "a") as file:
                file.write(".")
            if self.calls == 2 * STEPS + 5 and not os.path.exists(f"{self.mark}-died"):
                kept = "trial-00000001-*/checkpoint-00000001-*.json"
                until = time.monotonic() + 60
                # A file is there, and empty, before it is written.
                while (
                    not any(path.stat().st_size for path in Path(self.folder).glob(kept)) and time.monotonic() < until
                ):
                    time.sleep(0.05)
                open(f"{self.mark}-died", "w").close()
                os.kill(os.getpid(), signal.SIGKILL)
        return self.inner(x)


def test_a_trial_whose_process_dies_and_a_search_that_is_resumed_find_what_they_would_have_found(client, tmp_path):
    def searched(folder, **settings):
        mark = str(tmp_path / "calls") if folder.name == "kept" else ""

        def build(trial):
            units, rate = trial.suggest_int("units", 4, 64), trial.suggest_float("rate", 0.003, 0.1)
            inner = made(units, units)  # the same again where it is begun once more
            return with_what(Dying(inner, str(folder), mark if trial.number in (1, 2) else ""), rate)

        sampler = optuna.samplers.RandomSampler(1)
        found = search(build, client, checkpoint=folder, concurrency=1, sampler=sampler, **settings)
        return found, {trial.params["rate"]: trial.value for trial in found.trials if trial.value is not None}

    whole, expected = searched(tmp_path / "whole", trials=4)
    first, _ = searched(tmp_path / "kept", trials=2)
    assert [trial.user_attrs.get("retry_of") for trial in first.trials] == [None, None, 1]
    assert [trial.state.name for trial in first.trials] == ["COMPLETE", "FAIL", "COMPLETE"]
    assert len(Path(tmp_path / "calls").read_text()) == (2 * STEPS + 5) + 2 * STEPS, "it went on with its third epoch"
    found, told = searched(tmp_path / "kept", trials=4, resume=True)
    assert (len(found.trials), told) == (5, expected)
    assert found.best_params == whole.best_params
    assert same(found.best_model, whole.best_model)
    assert not list((tmp_path / "kept").glob("trial-*"))
    with pytest.raises(dt.CheckpointError, match="seed was 3, and is 4"):
        searched(tmp_path / "kept", trials=4, resume=True, seed=4)
