"""Files as rows: the same batches as of decoded arrays, on any number of workers, and each file read once."""

from __future__ import annotations

import os
import shutil
import signal
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import dask_train as dt
from dask_train.errors import DataError, RoleFailedError

FILES, BATCH_SIZE, EPOCHS = 61, 10, 2
SHADES = np.random.default_rng(0).integers(0, 256, (FILES, 6, 5), np.uint8)
OPTIMIZER = partial(torch.optim.Adam, lr=0.01)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Pictures of three classes, with which SHADES begins in the order of their paths."""
    for number, shades in enumerate(SHADES):
        path = tmp_path / f"class {number // 21}" / f"{number:03}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(shades).save(path)
    return tmp_path


def pictures(folder: Path, **settings) -> dt.FileRows:
    return dt.files(folder / "*" / "*.png", label="folder", **settings)


def gathered(session) -> list[list[tuple[list[int], list[int], list[int]]]]:
    """The first pixels, checksums and labels of each batch."""
    found = []
    for x, y in session.batches(epochs=EPOCHS, batch_size=BATCH_SIZE, seed=3):
        assert x.dtype == np.uint8 or x.dtype == np.int64
        found.append((x[:, 0, 0, 0].tolist(), x.sum((1, 2, 3), dtype=np.int64).tolist(), y.tolist()))
    return found


def global_batches(result) -> list[list[tuple[int, ...]]]:
    """The rows of each global batch, in no order."""
    by_step = zip(*result.results["worker"], strict=True)
    return [sorted(row for share in shares for row in zip(*share, strict=True)) for shares in by_step]


def add_random(row, generator):
    return row.astype(np.int64) + generator.integers(0, 1 << 30)


@pytest.mark.parametrize("streaming", [False, 3])
def test_batches_are_those_of_decoded_arrays(client, folder, streaming):
    files = pictures(folder)
    arrays = SHADES[:, :, :, None], np.arange(FILES) // 21
    assert [array.compute().tolist() for array in files.to_dask()] == [array.tolist() for array in arrays]
    run = partial(dt.train, gathered, client=client, progress=False, streaming=streaming)
    one, three = [run(roles={"worker": count}, data=files) for count in (1, 3)]
    assert global_batches(one) == global_batches(three)
    steps = -(-FILES // BATCH_SIZE)
    wanted = sorted((int(x[0, 0, 0]), int(x.sum()), int(y)) for x, y in zip(*arrays, strict=True))
    for epoch in range(EPOCHS):
        of_epoch = global_batches(three)[epoch * steps : (epoch + 1) * steps]
        assert [len(batch) for batch in of_epoch] == [BATCH_SIZE] * (steps - 1) + [FILES % BATCH_SIZE]
        assert sorted(row for batch in of_epoch for row in batch) == wanted
    assert three.ledger.trained == EPOCHS * FILES


def test_augmented_rows_are_the_same_for_any_number_of_workers(client, folder):
    files = pictures(folder, augment=add_random)
    one, three = [dt.train(gathered, roles={"worker": n}, data=files, client=client, progress=False) for n in (1, 3)]
    assert global_batches(one) == global_batches(three)
    first = sorted(row for batch in global_batches(one)[: -(-FILES // BATCH_SIZE)] for row in batch)
    wanted = [add_random(SHADES[number], np.random.default_rng([3, 0, number])) for number in range(FILES)]
    assert first == sorted((int(x[0, 0]), int(x.sum()), number // 21) for number, x in enumerate(wanted))


def test_files_are_read_once(client, folder):
    def worker(session):
        rows = 0
        for x, _ in session.batches(epochs=3, batch_size=BATCH_SIZE):
            rows += len(x)
            shutil.rmtree(folder, ignore_errors=True)
        return rows

    result = dt.train(worker, roles={"worker": 1}, data=pictures(folder), client=client, progress=False)
    assert result.results["worker"] == [3 * FILES]


def test_partitions_are_decoded(client, folder):
    def worker(session):
        return [(x.shape[1:], int(x.sum(dtype=np.int64)), len(y)) for x, y in session.partitions()]

    result = dt.train(worker, roles={"worker": 2}, data=pictures(folder), client=client, progress=False)
    found = [part for rank in result.results["worker"] for part in rank]
    assert {shape for shape, _, _ in found} == {(6, 5, 1)}
    assert (sum(total for _, total, _ in found), sum(count for _, _, count in found)) == (SHADES.sum(), FILES)


def network():
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(30, 3)).double()


def as_numbers(content: bytes) -> np.ndarray:
    import io

    with Image.open(io.BytesIO(content)) as picture:
        return np.asarray(picture, float)[:, :, None] / 255


def add_noise(row, generator):
    return row + generator.normal(size=row.shape)


def fit(module, *data, workers, **settings):
    return dt.fit(
        module,
        *data,
        loss=torch.nn.CrossEntropyLoss(),
        optimizer=OPTIMIZER,
        epochs=EPOCHS,
        batch_size=BATCH_SIZE,
        workers=workers,
        verbose=0,
        **settings,
    )


def check_same(module, other, tolerance=0.0):
    for one, wanted in zip(module.state_dict().values(), other.state_dict().values(), strict=True):
        torch.testing.assert_close(one, wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("workers", "tolerance"), [(0, 0.0), (1, 0.0), (3, 1e-9)])
def test_a_module_is_that_of_decoded_arrays(client, folder, workers, tolerance):
    files = pictures(folder, decode=as_numbers)
    wanted, module = network(), network()
    arrays = SHADES[:, :, :, None] / 255, np.arange(FILES) // 21
    first = fit(wanted, *arrays, workers=1, client=client, shuffle=False, validation_data=arrays)
    result = fit(module, files, workers=workers, client=client, shuffle=False, validation_data=files)
    check_same(module, wanted, tolerance)
    for name, values in first.history.items():
        assert result.history[name] == pytest.approx(values, rel=1e-6)
    assert result.ledger.trained == EPOCHS * FILES
    scores = dt.evaluate(module, files, loss=torch.nn.CrossEntropyLoss(), workers=2, client=client, verbose=0)
    assert scores["loss"] == pytest.approx(result.history["val_loss"][-1], rel=1e-6)


def test_rows_that_are_validated_are_not_augmented(client, folder):
    files, augmented = pictures(folder, decode=as_numbers), pictures(folder, decode=as_numbers, augment=add_noise)
    module = network()
    result = fit(module, augmented, workers=2, client=client, validation_data=augmented)
    settings = {"loss": torch.nn.CrossEntropyLoss(), "client": client, "verbose": 0}
    assert dt.evaluate(module, augmented, **settings) == dt.evaluate(module, files, **settings)
    assert dt.evaluate(module, files, **settings)["loss"] == pytest.approx(result.history["val_loss"][-1], rel=1e-6)


def test_a_killed_worker_resumes_with_the_same_random_numbers(client, folder, tmp_path_factory):
    place = tmp_path_factory.mktemp("checkpoints")
    killed = place / "killed"

    def kill_once(row, generator):
        drawn = generator.normal(size=row.shape)
        if not killed.exists() and any(place.glob("run*/*")):
            with suppress(FileExistsError):  # the other worker has come first
                killed.touch(exist_ok=False)
                os.kill(os.getpid(), signal.SIGKILL)
        return row + drawn

    wanted, module = network(), network()
    fit(wanted, pictures(folder, decode=as_numbers, augment=add_noise), workers=2, client=client)
    files = pictures(folder, decode=as_numbers, augment=kill_once)
    checkpoint = dt.Checkpoint(place / "run", every_steps=3)
    result = fit(module, files, workers=2, client=client, checkpoint=checkpoint)
    assert killed.exists()
    assert len(result.attempts) == 2
    check_same(module, wanted)
    assert result.ledger.trained == EPOCHS * FILES


@pytest.fixture
def broken(folder: Path) -> Path:
    """One of the pictures ends too early, which is none of those that are looked at first."""
    path = folder / "class 1" / "030.png"
    path.write_bytes(path.read_bytes()[:-30])
    return path


def test_a_broken_file_is_named(client, broken):
    with pytest.raises(RoleFailedError, match=r"File '.*class 1/030\.png' can't be decoded: decode raised OSError"):
        dt.train(gathered, roles={"worker": 2}, data=pictures(broken.parents[1]), client=client, progress=False)


def test_broken_files_are_left_out_where_that_is_asked_for(client, broken):
    files = pictures(broken.parents[1], on_error="skip")
    run = partial(dt.train, gathered, data=files, client=client, progress=False)
    one, three = [run(roles={"worker": count}) for count in (1, 3)]
    assert global_batches(one) == global_batches(three)
    assert one.ledger.trained == three.ledger.trained == EPOCHS * (FILES - 1)
    assert three.ledger.skipped == 1
    assert three.notices == ["Files left out of data['worker'], since they can't be decoded: 1."]
    assert [len(batch) for batch in global_batches(one)] == [BATCH_SIZE] * (6 * EPOCHS), "all of them are full"


@pytest.mark.parametrize("workers", [0, 2])
def test_files_that_were_left_out_of_a_fit_are_counted(client, broken, workers):
    files = pictures(broken.parents[1], decode=as_numbers, on_error="skip")
    result = fit(network(), files, workers=workers, client=client, validation_data=files, streaming=False)
    assert result.ledger.trained == EPOCHS * (FILES - 1)
    assert result.ledger.skipped == 2, "those to validate on besides"
    assert "skipped 2" in repr(result.ledger)


def test_a_file_that_goes_before_it_is_read_is_named(client, folder):
    files = pictures(folder)
    (folder / "class 2" / "050.png").unlink()
    with pytest.raises(DataError, match=r"File '.*050\.png' can't be read: FileNotFoundError"):
        dt.train(gathered, roles={"worker": 1}, data=files, client=client, progress=False)


def test_a_row_of_another_shape_is_named(client, folder):
    Image.new("L", (4, 6)).save(folder / "class 1" / "030.png")
    with pytest.raises(RoleFailedError, match=r"030\.png' becomes uint8 \(6, 4, 1\), and the first file became uint8"):
        dt.train(gathered, roles={"worker": 1}, data=pictures(folder), client=client, progress=False)


def test_rows_by_number_are_decoded_and_refuse_what_depends_on_an_epoch(client, folder):
    def worker(session):
        dataset = session.torch_dataset()
        return len(dataset), int(dataset[7][0].sum()), int(dataset[[60, 0]][1][0])

    run = partial(dt.train, worker, roles={"worker": 1}, framework="torch", client=client, progress=False)
    assert run(data=pictures(folder)).results["worker"] == [(FILES, int(SHADES[7].sum()), 2)]
    with pytest.raises(RoleFailedError, match="out of files with augment=: random numbers of a row depend"):
        run(data=pictures(folder, augment=add_noise))


def test_published_files_are_decoded_once(client, folder):
    dt.publish_dataset(pictures(folder), name="pictures", client=client)
    try:
        shutil.rmtree(folder)
        data = dt.get_dataset("pictures", client=client)
        assert data.to_numpy()[0].tolist() == SHADES[:, :, :, None].tolist()
    finally:
        dt.unpublish_dataset("pictures", client=client)
