"""torch's settings, as far as they change numbers or whether an error is raised; not devices, threads and seeds."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial, reduce
from typing import Any

import torch

from dask_train.settings.setting import Setting

# Of torch.backends, with their defaults. Older ones first: they set newer ones, too.
_BACKENDS: dict[str, Any] = {
    "cudnn.allow_tf32": True,
    "cuda.matmul.allow_tf32": False,
    "cuda.matmul.fp32_precision": "none",
    "cudnn.conv.fp32_precision": "tf32",
    "cudnn.rnn.fp32_precision": "tf32",
    "mkldnn.matmul.fp32_precision": "none",
    "mkldnn.conv.fp32_precision": "none",
    "mkldnn.rnn.fp32_precision": "none",
    "cuda.matmul.allow_fp16_reduced_precision_reduction": True,
    "cuda.matmul.allow_bf16_reduced_precision_reduction": True,
    "cuda.matmul.allow_fp16_accumulation": False,
    "cudnn.enabled": True,
    "cudnn.benchmark": False,
    "cudnn.deterministic": False,
    "mkldnn.enabled": True,
    "mkldnn.deterministic": False,
    "opt_einsum.enabled": True,
}
# Ways to compute attention, as torch.backends.cuda has them.
_ATTENTION = ("flash_sdp", "mem_efficient_sdp", "math_sdp", "cudnn_sdp")


def settings() -> dict[str, Setting]:
    """Return those that this version of torch has."""
    settings_by_name = {
        "default_dtype": Setting(read=_default_dtype, write=_set_default_dtype, default="float32"),
        "float32_matmul_precision": Setting(
            read=partial(_if_told, torch.get_float32_matmul_precision),
            write=partial(_unless_none, torch.set_float32_matmul_precision),
            default="highest",
        ),
        "deterministic_algorithms": Setting(
            read=_determinism,
            write=lambda value: torch.use_deterministic_algorithms(value[0], warn_only=value[1]),
            default=(False, False),
        ),
        "detect_anomaly": Setting(
            read=lambda: (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
            write=lambda value: torch.autograd.set_detect_anomaly(*value),
            default=(False, True),
        ),
        "fill_uninitialized_memory": _attribute(torch.utils.deterministic, "fill_uninitialized_memory", True),
        "mha_fastpath": Setting(
            read=torch.backends.mha.get_fastpath_enabled, write=torch.backends.mha.set_fastpath_enabled, default=True
        ),
    }
    for name in _ATTENTION:
        read, write = (getattr(torch.backends.cuda, each, None) for each in (f"{name}_enabled", f"enable_{name}"))
        if read is not None and write is not None:
            settings_by_name[name] = Setting(read=read, write=write, default=True)
    for path, default in _BACKENDS.items():
        *parents, name = path.split(".")
        with suppress(AttributeError):  # of another version of torch
            owner = reduce(getattr, parents, torch.backends)
            setting = _attribute(owner, name, default)
            setting.read()
            settings_by_name[f"backends.{path}"] = setting
    return settings_by_name


def refusal() -> str | None:
    """Return why the settings of this thread can't be those of other processes, if so."""
    for device in ("cpu", "cuda"):
        if torch.is_autocast_enabled(device):
            return (
                f"torch.autocast({device!r}) is on in this thread, and holds for a block of code in one thread: other "
                "processes can't take it over. Put it into the module: with torch.autocast(...) in forward()."
            )
    return None


def _attribute(owner: Any, name: str, default: Any) -> Setting:
    return Setting(
        read=partial(_if_told, partial(getattr, owner, name)),
        write=partial(_unless_none, partial(setattr, owner, name)),
        default=default,
    )


def _default_dtype() -> str:
    """Return it by name: a process that is sent torch's own object would import torch to read it."""
    return str(torch.get_default_dtype()).removeprefix("torch.")


def _set_default_dtype(name: str) -> None:
    torch.set_default_dtype(getattr(torch, name))


def _determinism() -> tuple[bool, bool]:
    is_enabled = torch.are_deterministic_algorithms_enabled()
    return is_enabled, is_enabled and torch.is_deterministic_algorithms_warn_only_enabled()


def _if_told(read: Callable[[], Any]) -> Any:
    """Return a value; None if torch refuses to read by an older name what newer ones have set."""
    try:
        return read()
    except RuntimeError:
        return None


def _unless_none(write: Callable[[Any], None], value: Any) -> None:
    if value is not None:
        write(value)
