"""Which role does what; and the client, which sends the function, does not import Keras for it."""

from __future__ import annotations

import importlib
import subprocess
import sys
from types import SimpleNamespace

import pytest

from dask_train.data.columns import Columns
from dask_train.fitting.roles.entry import FitRole
from dask_train.fitting.spec import FitTask

TASK = FitTask(header={}, arrays=[], columns=Columns(features=0))


@pytest.mark.parametrize(
    ("role", "peers", "module", "function"),
    [
        ("ps", {"ps": ["h:1"]}, "parameter_server", "serve_parameters"),
        ("scorer", {"ps": ["h:1"]}, "scorer", "score"),
        ("worker", {"ps": ["h:1"], "worker": ["h:2"]}, "asynchronous", "fit_asynchronously"),
        ("worker", {"worker": ["h:2"]}, "synchronous", "fit_synchronously"),
    ],
)
def test_each_role_does_its_part(monkeypatch, role, peers, module, function):
    session = SimpleNamespace(role=role, peers=peers)
    place = importlib.import_module(f"dask_train.fitting.roles.{module}")
    monkeypatch.setattr(place, function, lambda *given: given)
    assert FitRole(TASK)(session) == (TASK, session)


def test_it_is_sent_without_importing_keras():
    program = (
        "import pickle, sys\n"
        "from dask_train.fitting.roles.entry import FitRole\n"
        "from dask_train.fitting.spec import FitTask\n"
        "from dask_train.data.columns import Columns\n"
        "pickle.dumps(FitRole(FitTask(header={}, arrays=[], columns=Columns(features=0))))\n"
        "sys.exit(bool({'keras', 'tensorflow', 'torch', 'jax'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", program], timeout=60, check=False).returncode == 0
