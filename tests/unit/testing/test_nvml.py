"""The fake of NVML and the real library keep one contract."""

from __future__ import annotations

import pytest

from dask_train.process.devices import find_library, read_devices
from dask_train.testing.nvml import FakeNvml, check_nvml, fake_devices


def test_the_fake_keeps_the_contract():
    check_nvml(FakeNvml(fake_devices(3)))
    check_nvml(FakeNvml())


@pytest.mark.skipif(find_library() is None, reason="this host has no driver")
def test_the_real_library_keeps_the_contract():
    check_nvml(find_library())


def test_what_breaks_the_contract_is_found():
    with pytest.raises(AssertionError, match="each device has an id of its own"):
        check_nvml(FakeNvml(fake_devices(1) * 2))
    with pytest.raises(AssertionError, match="failed with status 9"):
        check_nvml(FakeNvml(driver=""))


def test_nvml_answers_only_while_it_is_open():
    library = FakeNvml(fake_devices(1))
    assert library.nvmlShutdown() != 0
    assert read_devices(library).devices
    assert library.num_open == 0
