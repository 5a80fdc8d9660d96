"""In a real Jupyter kernel: interrupts, and cells that are run again."""

from __future__ import annotations

import json
import subprocess
import sys

# Talks to a kernel in a process of its own: jupyter_client leaves its event loops to the end of the interpreter.
TALK = '''
import json, sys, threading
from jupyter_client.manager import start_new_kernel

def run_cell(code):
    """What a cell prints, and the name of its error or ''."""
    seen = []
    def hook(message):
        if message["msg_type"] == "stream":
            seen.append(message["content"]["text"])
    reply = talk.execute_interactive(code, timeout=60, output_hook=hook, store_history=True)
    return ["".join(seen).strip(), reply["content"].get("ename", "")]

manager, talk = start_new_kernel(kernel_name="python3")
answers = []
try:
    for cell in json.load(sys.stdin):
        if cell["interrupted"]:
            threading.Timer(2.0, manager.interrupt_kernel).start()
        answers.append(run_cell(cell["code"]))
finally:
    talk.stop_channels()
    manager.shutdown_kernel(now=False)
json.dump(answers, sys.stdout)
'''

SETUP = """
from distributed import Client
import dask_train as dt
client = Client(n_workers=1, threads_per_worker=2, dashboard_address=None)

def worker(session):
    session.report(up=1)
    session.wait_until_stopped()
"""
START = "run = dt.train(worker, roles={'worker': 2}, wait=False)\nnext(iter(run.scores()))\nprint('up')"
TWICE = (
    "runs = [dt.train(worker, roles={'worker': 1}, wait=False) for _ in range(2)]\n"
    "[next(iter(run.scores())) for run in runs]"  # both are known to the scheduler
)
RECORDS = (
    "print([r['summary'].get('outcome') or 'goes on' for r in client.sync(client.scheduler.train_runs)['runs']][-3:])"
)


def in_a_kernel(*cells: str, interrupted: str = "") -> list[list[str]]:
    told = json.dumps([{"code": code, "interrupted": code == interrupted} for code in cells])
    ended = subprocess.run(
        [sys.executable, "-c", TALK], input=told, capture_output=True, text=True, timeout=300, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def test_a_cell_run_twice_leaves_no_old_run_and_an_interrupt_ends_one():
    # Each run needs all threads, so it can only start where the one before has ended.
    whole = "dt.train(worker, roles={'worker': 2})"
    cells = [SETUP, START, START, RECORDS, "run.stop('done')", whole, RECORDS, TWICE, RECORDS]
    close = "[run.stop() for run in runs]; client.close(); client.cluster.close()"
    answers = in_a_kernel(*cells, close, interrupted=whole)
    assert [error for _, error in answers] == ["", "", "", "", "", "KeyboardInterrupt", "", "", "", ""]
    printed = [text for text, _ in answers]
    assert printed[1:4] == ["up", "up", "['its cell was run again', 'goes on']"]
    assert printed[6] == "['its cell was run again', 'done', 'it was interrupted']"
    assert printed[8] == "['it was interrupted', 'goes on', 'goes on']"
