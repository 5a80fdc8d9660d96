"""Dask prepares images once and puts them into Vineyard; two Keras programs, which know nothing of Dask, train on them.

Each trainer opens the object with Vineyard's own client and maps the images where they lie. Start a daemon beside it,
and pass its socket; without one the example starts one of its own::

    vineyardd --socket /tmp/vineyard.sock --size 1G --meta local &
    python examples/vineyard_keras.py /tmp/vineyard.sock
"""

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TRAINER = """
import sys

import keras
import numpy as np
import vineyard

socket, name, width = sys.argv[1], sys.argv[2], int(sys.argv[3])
frames = vineyard.connect(socket).get(name=name)        # this host's partitions, as pandas frames
x = [frame["x"].ndarray.values for frame in frames]     # views of the daemon's memory
y = [frame["y"].to_numpy() for frame in frames]
model = keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(width, "relu"), keras.layers.Dense(10)])
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile("adam", loss, metrics=["accuracy"])
for epoch in range(3):
    for rows, labels in zip(x, y):
        model.fit(rows, labels, batch_size=64, verbose=0)
correct = sum(float((model.predict(r, verbose=0).argmax(1) == t).sum()) for r, t in zip(x, y))
print(f"{width} units: accuracy {correct / sum(map(len, y)):.2f}", flush=True)
"""


@contextlib.contextmanager
def daemon():
    """Start a daemon, as a host's administrator would; the path of its socket."""
    import vineyard.bdist

    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/vineyard.sock"
        binary = Path(vineyard.bdist.__file__).with_name("vineyardd")
        command = [binary, "--socket", path, "--size", "256M", "--meta", "local", "--norpc"]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL, cwd=folder) as program:
            deadline = time.monotonic() + 30
            while not os.path.exists(path) and time.monotonic() < deadline:
                time.sleep(0.05)
            try:
                yield path
            finally:
                program.kill()


def main(socket):
    import dask.array as da
    from dask.distributed import Client, LocalCluster

    import dask_train as dt
    from dask_train.datasets import load_mnist

    mnist = load_mnist()
    x = da.from_array(mnist.train_images[:10_000], chunks=(2_500, 28, 28)).astype("float32") / 255
    y = da.from_array(mnist.train_labels[:10_000].astype("int64"), chunks=2_500)
    with LocalCluster(n_workers=2, threads_per_worker=1) as cluster, Client(cluster):
        identifier = dt.publish_dataset(x, y, name="mnist", to="vineyard", socket=socket)
        print("published", identifier)
    # Dask is gone; the images stay.
    trainers = [subprocess.Popen([sys.executable, "-c", TRAINER, socket, "mnist", str(n)]) for n in (32, 64)]
    codes = [trainer.wait(300) for trainer in trainers]
    if any(codes):
        raise SystemExit("A trainer has failed.")


if __name__ == "__main__":
    sockets = [argument for argument in sys.argv[1:] if argument != "--small"]  # it is small as it is
    if sockets:
        main(sockets[0])
    else:
        with daemon() as path:
            main(path)
