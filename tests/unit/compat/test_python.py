"""Private parts of Python's standard library."""

from __future__ import annotations

import json
import subprocess
import sys
import types

from dask_train.compat.python import is_imported

PROGRAM = """
import atexit, os, sys
from dask_train.compat.python import run_exit_functions
atexit.register(print, "written", flush=True)
run_exit_functions()
os._exit(3)
"""

# Nothing in it is kept from a process that imports it.
SCRIPT = """
from multiprocessing import spawn
from dask_train.cluster.local import local_client
print("runs", flush=True)
class Multiple:
    def __init__(self, factor): self.factor = factor
    def __call__(self, x): return self.factor * x
with local_client(1) as client:
    print(client.submit(Multiple(2), 2).result())
    client.restart()
    print(client.submit(Multiple(3), 2).result())
print("init_main_from_path" in spawn.get_preparation_data("another process"))
"""


def test_what_is_to_be_done_at_the_end_is_done_before_a_process_ends_at_once():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.returncode) == ("written\n", 3)


def test_modules_that_are_there():
    assert is_imported(json)
    assert not is_imported(None)
    assert not is_imported(types.ModuleType("made"))


def test_a_module_is_not_there_while_it_is_being_imported(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "half_made.py").write_text(
        "import sys\nfrom dask_train.compat.python import is_imported\nseen = is_imported(sys.modules[__name__])\n"
    )
    import half_made

    assert not half_made.seen
    assert is_imported(half_made)


def test_dask_workers_of_our_clusters_do_not_run_the_program_again_and_other_processes_do(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, tmp_path / "script.py"], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout.split()) == (0, ["runs", "4", "6", "True"]), done.stderr
