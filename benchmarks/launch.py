"""How long it takes from ``train()`` to the first line of user code in all roles, on a cluster that is up.

    make .venv-ray                                    # once: Ray Train, in an environment of its own
    .venv/bin/python benchmarks/launch.py [--repeats 5] [--ray PYTHON]

Without a framework, with PyTorch and with TensorFlow, 2 and 4 roles. The peer is as many interpreters that do nothing
but import the framework, started at the same time: until the slowest has done it, nobody can be faster. Where Ray
Train's environment is there, its torch loop that does nothing on 2 workers runs in turn with ours, each on a cluster
of its own that is up and has done such a run before, while the other one's is down.

And what templates of processes change, on a cluster that has done each once: a second ``fit`` and a second ``search``
from the call to their first step, ``evaluate`` after ``predict``, a synchronous worker's SIGKILL to the second end of a
step after it (the first may have been agreed on before), and the memory (PSS) of 4 roles together with their templates.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import psutil
from distributed import Client, LocalCluster
from recording import save, summary

import dask_train as dt

HERE = Path(__file__).parent
# framework, what its peer does
IMPORTS = {"none": "pass", "torch": "import torch", "tensorflow": "import tensorflow"}
NUM_ROLES = (2, 4)
RAY_WORKERS = 2
AIM_S, AIM_RATIO = 1.0, 0.05
RAY_PATIENCE_S, STEP_PATIENCE_S = 300.0, 60.0


def first_line(session: dt.Session) -> float:  # noqa: ARG001 - what a role is given
    """A role: it only says when it began."""
    return time.time()


def roles_of(framework: str, num_roles: int) -> dict[str, int]:
    """``num_roles`` roles, as one has them with the framework."""
    return {"ps": 1, "worker": num_roles - 1} if framework == "tensorflow" else {"worker": num_roles}


def launch(framework: str, num_roles: int) -> dict[str, float]:
    """Seconds from the call to the first line in all roles, and until ``train`` has returned."""
    roles = roles_of(framework, num_roles)
    begun = time.time()
    result = dt.train(
        dict.fromkeys(roles, first_line), roles=roles, framework=None if framework == "none" else framework
    )
    returned = time.time()
    stamps = [stamp for ranks in result.results.values() for stamp in ranks]
    assert len(stamps) == num_roles
    return {"first_line_s": max(stamps) - begun, "returned_s": returned - begun}


def with_keras(client: Client, idle: str) -> dict[str, float]:
    """Seconds of second calls with Keras, with templates or without (``idle="0"``)."""
    os.environ["KERAS_BACKEND"] = "tensorflow"
    import dask.array as da
    import keras

    class Stamps(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):  # noqa: ARG002 - as Keras calls it
            with open(self.path, "a") as file:
                file.write(f"{time.time()}\n")

    def model() -> Any:
        made = keras.Sequential([keras.layers.Input((20,)), keras.layers.Dense(32, "relu"), keras.layers.Dense(1)])
        made.compile("adam", "mse")
        return made

    def stamps() -> list[float]:
        return [float(line) for line in path.read_text().splitlines()] if path.exists() else []

    def wait_until(condition: Callable[[], Any]) -> None:
        deadline = time.monotonic() + STEP_PATIENCE_S
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError("A run has taken no step.")
            time.sleep(0.002)

    def first_step(call: Callable[[], Any]) -> float:
        path.unlink(missing_ok=True)
        begun = time.time()
        call()
        return stamps()[0] - begun

    def replaced() -> float:
        path.unlink(missing_ok=True)
        run = dt.fit(model(), x, y, workers=2, epochs=10_000, verbose=0, callbacks=[stamp], wait=False)
        wait_until(lambda: len(stamps()) > 50)
        (pid,) = (role["pid"] for role in run.status()["roles"] if role["rank"] == 1)
        killed = time.time()
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: sum(at > killed for at in stamps()) > 1)
        run.stop()
        run.result()
        return [at for at in stamps() if at > killed][1] - killed

    def build(trial: Any) -> Any:  # noqa: ARG001 - as a search calls it
        return model(), {"callbacks": [stamp]}

    def evaluated() -> float:
        trained = model()
        dt.predict(trained, x).compute()
        begun = time.time()
        dt.evaluate(trained, x, y)
        return time.time() - begun

    x = da.random.random((2000, 20), chunks=(500, 20)).astype("float32")
    y = da.random.random(2000, chunks=500).astype("float32")
    found = {}
    with tempfile.TemporaryDirectory() as folder, dask.config.set({"train.template.idle": idle}):
        path = Path(folder) / "stamps"
        stamp = Stamps()
        stamp.path = str(path)
        for _ in range(2):  # the second one counts
            found["fit_first_step_s"] = first_step(
                lambda: dt.fit(model(), x, y, workers=2, verbose=0, callbacks=[stamp], client=client)
            )
            found["search_first_step_s"] = first_step(
                lambda: dt.search(
                    build, x, y, metric="loss", direction="minimize", trials=1, epochs=1, progress=False, client=client
                )
            )
            found["evaluate_after_predict_s"] = evaluated()
            found["replaced_next_step_s"] = replaced()
    return found


def wait(session: dt.Session) -> None:
    """A role that has its framework, and nothing to do."""
    session.report(pid=os.getpid())
    session.wait_until_stopped()


def memory(client: Client, framework: str, idle: str) -> float:
    """Bytes (PSS) of 4 roles and the templates of their Dask workers."""

    def templates(dask_worker: Any) -> list[int]:
        found = dask_worker.plugins.get("dask-train-templates")
        return [pid for pid, name in found.pids().items() if name == framework] if found else []

    with dask.config.set({"train.template.idle": idle}):
        run = dt.train(wait, roles={"worker": 4}, framework=framework, wait=False)
    pids = [score["pid"] for _, score in zip(range(4), run.scores(), strict=False)]  # not a fifth
    if idle != "0":
        pids += [pid for found in client.run(templates).values() for pid in found]
    total = sum(psutil.Process(pid).memory_full_info().pss for pid in pids)
    run.stop()
    run.result()
    return float(total)


def second_calls() -> dict[str, dict[str, float]]:
    """What templates change: everything with them and without, on one cluster each."""
    found = {}
    for name, idle in (("with templates", "10 minutes"), ("without", "0")):
        with (
            LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0") as cluster,
            Client(cluster) as client,
        ):
            found[name] = with_keras(client, idle)
            for framework in ("torch", "tensorflow"):
                found[name][f"{framework}_4_roles_mib"] = memory(client, framework, idle) / 2**20
    return found


def slowest_import_s(framework: str, num_roles: int) -> float:
    """Seconds until the slowest of ``num_roles`` bare interpreters has imported the framework."""
    code = f"{IMPORTS[framework]}; import time; print(time.time())"
    begun = time.time()
    processes = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        for _ in range(num_roles)
    ]
    return max(float(process.communicate(timeout=120)[0]) for process in processes) - begun


def ours() -> dict[str, dict[str, float]]:
    """Every case once, each right after its peer, on a cluster that is up and has done a run of each before."""
    found = {}
    with (
        LocalCluster(n_workers=2, threads_per_worker=2, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster),
    ):
        for framework in IMPORTS:
            launch(framework, max(NUM_ROLES))
        for framework in IMPORTS:
            for num_roles in NUM_ROLES:
                import_s = slowest_import_s(framework, num_roles)
                found[f"{framework}, {num_roles} roles"] = {"import_s": import_s, **launch(framework, num_roles)}
    return found


def with_ray(python: Path) -> dict[str, Any]:
    """What ``ray_first_line.py`` prints."""
    command = [str(python), str(HERE / "ray_first_line.py"), str(RAY_WORKERS)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=RAY_PATIENCE_S, check=False)
    if ended.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with code {ended.returncode}: {ended.stderr[-2000:]}")
    answer: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return answer


def show(figures: dict[str, Any]) -> None:
    """The medians of our cases."""
    print(f"{'':24}{'first line':>12}{'import':>10}{'over':>8}{'returned':>10}   medians, seconds")
    for case, found in figures.items():
        columns = [found[name]["median"] for name in ("first_line_s", "import_s", "over_s", "returned_s")]
        print(f"{case:24}{columns[0]:12.2f}{columns[1]:10.2f}{columns[2]:+8.2f}{columns[3]:10.2f}")


def summarise(runs: list[dict[str, dict[str, float]]]) -> dict[str, Any]:
    """By case; ``over_s`` is the first line minus the import of the same repeat."""
    figures = {}
    for case in runs[0]:
        each = [run[case] for run in runs]
        figures[case] = {name: summary([one[name] for one in each]) for name in each[0]}
        figures[case]["over_s"] = summary([one["first_line_s"] - one["import_s"] for one in each])
    return figures


def summarise_ray(runs: list[dict[str, dict[str, float]]], rays: list[dict[str, Any]]) -> dict[str, Any]:
    """Ray's seconds, and ours over Ray's, repeat by repeat; Ray's second run, as ours has had one before, too."""
    mine = [run[f"torch, {RAY_WORKERS} roles"] for run in runs]
    figures: dict[str, Any] = {"version": rays[0]["ray"], "workers": RAY_WORKERS}
    for name in ("cold", "warm"):
        figures[name] = {key: summary([ray[name][key] for ray in rays]) for key in rays[0][name]}
    figures["ours_over_ray"] = summary(
        [a["first_line_s"] / b["warm"]["first_line_s"] for a, b in zip(mine, rays, strict=True)]
    )
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--ray", type=Path, default=HERE.parent / ".venv-ray" / "bin" / "python")
    options = parser.parse_args()
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    logging.getLogger("distributed").setLevel(logging.ERROR)
    runs, rays = [], []
    for repeat in range(options.repeats):
        runs.append(ours())
        line = ", ".join(f"{case} {found['first_line_s']:.2f} s" for case, found in runs[-1].items())
        if options.ray.exists():
            rays.append(with_ray(options.ray))
            line += f", Ray Train {rays[-1]['warm']['first_line_s']:.2f} s"
        print(f"repeat {repeat + 1}: {line}", flush=True)
    figures: dict[str, Any] = {"ours": summarise(runs)}
    show(figures["ours"])
    seconds = [second_calls() for _ in range(options.repeats)]
    figures["second_calls"] = {
        how: {name: summary([one[how][name] for one in seconds]) for name in seconds[0][how]} for how in seconds[0]
    }
    for how, measured in figures["second_calls"].items():
        print(f"{how}: " + ", ".join(f"{name} {one['median']:.2f}" for name, one in measured.items()))
    worst = max(found["over_s"]["median"] for found in figures["ours"].values())
    print(f"first line - slowest import, the worst case: {worst:+.2f} s (aim: at most {AIM_S:g})")
    if rays:
        figures["ray"] = summarise_ray(runs, rays)
        ray_s = figures["ray"]["warm"]["first_line_s"]["median"]
        ratio = figures["ray"]["ours_over_ray"]["median"]
        print(f"Ray Train {figures['ray']['version']}, {RAY_WORKERS} workers: first line after {ray_s:.2f} s, ", end="")
        print(f"ours / Ray {ratio:.2f} (aim: at most {AIM_RATIO:g})")
    else:
        print(f"No Ray Train at {options.ray}: make .venv-ray")
    save("launch", figures)


if __name__ == "__main__":
    main()
