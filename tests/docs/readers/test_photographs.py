"""The photographs are fetched whole or not at all, and those of one's own are read as well."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from dask_train.errors import DataError
from readers import fetch_photographs, load_photographs, photographs, read_photograph


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "dask-train"


needs_dpkg = pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="Debian's packages need dpkg-deb")


def packed(folder: Path, num_more: int = 0) -> Path:
    """A Debian package that looks like the real one, with as few pictures in each class as are taken, and drawings."""
    control = folder / "root" / "DEBIAN" / "control"
    control.parent.mkdir(parents=True)
    control.write_text("Package: stamps\nVersion: 1\nArchitecture: all\nMaintainer: a <a@b.c>\nDescription: stamps\n")
    picture = Image.new("RGBA", (4, 2), (255, 0, 0, 255))
    for name, place in photographs._CLASSES.items():
        stamps = folder / "root" / photographs._STAMPS / place
        (stamps / "cartoon").mkdir(parents=True)
        (stamps / "below").mkdir()
        picture.save(stamps / "cartoon" / "drawn.png")
        picture.save(stamps / "0_mirror.png")
        (stamps / "0.txt").write_text("sound")
        for number in range(photographs._NUM_AT_LEAST[name] - 1 + num_more):
            picture.save(stamps / f"{number}.png")
        picture.save(stamps / "below" / "0.png")
    package = folder / "stamps.deb"
    subprocess.run(["dpkg-deb", "-b", str(folder / "root"), str(package)], check=True, capture_output=True)
    return package


@needs_dpkg
def test_what_is_taken_of_a_package(tmp_path: Path, cache: Path) -> None:
    folder = fetch_photographs(packed(tmp_path))
    assert folder == cache / "photographs"
    assert [path.name for path in cache.iterdir()] == ["photographs"], "nothing else is left"
    found = load_photographs()
    assert found.classes == tuple(photographs._NUM_AT_LEAST)
    assert np.bincount(found.labels).tolist() == list(photographs._NUM_AT_LEAST.values())
    names = {file.name for file in found.files}
    assert "below-0.png" in names
    assert not [name for name in names if "mirror" in name or "drawn" in name]
    assert {found.classes[label] for label in found.labels} == {file.parent.name for file in found.files}
    assert fetch_photographs(tmp_path / "there is none") == folder, "it is there, so nothing is fetched"


@needs_dpkg
def test_a_package_with_fewer_pictures(tmp_path: Path, cache: Path) -> None:
    with pytest.raises(DataError, match="has 29 pictures in animals/birds, not 30 or more"):
        fetch_photographs(packed(tmp_path, num_more=-1))
    assert list(cache.iterdir()) == []


def test_where_there_is_no_apt(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DataError, match=r"apt-get.*Download tuxpaint-stamps-default .*call fetch_photographs\("):
        load_photographs()
    assert list(cache.iterdir()) == []


def test_a_picture_keeps_its_proportion_on_white(tmp_path: Path) -> None:
    picture = Image.new("RGBA", (40, 20), (255, 0, 0, 255))
    picture.paste((0, 0, 255, 0), (0, 0, 20, 20))  # the left half is transparent
    picture.save(tmp_path / "one.png")
    found = read_photograph(tmp_path / "one.png", 40)
    assert (found.shape, found.dtype) == ((40, 40, 3), np.uint8)
    assert found[20, 30].tolist() == [255, 0, 0]
    for white in (found[20, 5], found[2, 30], found[38, 30]):
        assert white.tolist() == [255, 255, 255]


def test_folders_of_ones_own(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has no folders with PNG files"):
        load_photographs(tmp_path)
    for name in ("b", "a", "empty"):
        (tmp_path / name).mkdir()
    Image.new("L", (3, 3)).save(tmp_path / "b" / "one.png")
    Image.new("L", (3, 3)).save(tmp_path / "a" / "two.png")
    found = load_photographs(tmp_path)
    assert (found.classes, found.labels.tolist()) == (("a", "b"), [0, 1])
    assert [file.name for file in found.files] == ["two.png", "one.png"]
