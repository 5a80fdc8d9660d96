"""An error of a run in a real Jupyter kernel is drawn as a card, and its text stays short."""

from __future__ import annotations

import json
import subprocess
import sys

# Talks to a kernel in a process of its own: jupyter_client leaves its event loops to the end of the interpreter.
TALK = """
import json, sys
from jupyter_client.manager import start_new_kernel

manager, talk = start_new_kernel(kernel_name="python3")
seen = []
try:
    for code in json.load(sys.stdin):
        hear = lambda told: seen.append([told["msg_type"], told["content"]])
        talk.execute_interactive(code, timeout=60, store_history=True, output_hook=hear)
finally:
    talk.stop_channels()
    manager.shutdown_kernel(now=False)
json.dump(seen, sys.stdout, default=str)
"""
SETUP = """
from distributed import Client
import dask_train as dt
client = Client(n_workers=1, threads_per_worker=1, dashboard_address=None)

def work(session):
    raise ValueError("the loss is nan")
"""
TRAIN = "# the cell of the user\ndt.train(work, roles={'worker': 1}, recovery=None, progress=False)"
CLOSE = "client.close(); client.cluster.close()"


def test_an_error_of_a_run_is_a_card():
    ended = subprocess.run(
        [sys.executable, "-c", TALK],
        input=json.dumps([SETUP, TRAIN, CLOSE]),
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout)
    drawn = [content["data"] for kind, content in told if kind == "display_data"]
    (card,) = [each for each in drawn if "<b>RoleFailedError</b>" in each.get("text/html", "")]
    (error,) = [content for kind, content in told if kind == "error"]
    assert error["ename"] == "RoleFailedError"
    assert error["traceback"] == ["RoleFailedError: worker 0 raised ValueError: the loss is nan."]
    html = card["text/html"]
    assert "worker 0 raised ValueError: the loss is nan." in html
    for fold in ("Traceback of worker 0", "Traceback in this notebook"):
        assert f">{fold}</summary>" in html
    assert "# the cell of the user" not in html
    assert "dt.train(work, roles=" in html, "the line of the cell"
    assert "IPython/core" not in html
