"""A role process of a test: what its function is given, what it answers, and its steps."""

from __future__ import annotations

import gc
import os
import sys
import time
import traceback
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import cloudpickle  # type: ignore[import-untyped]

from dask_train.frameworks.base import Framework, RoleInfo
from dask_train.keras_models.imported_later import parts_imported_later


class RoleSession:
    """What a role's function is given here, in place of a run's session.

    Attributes
    ----------
    me, framework
        Which role this is, and its adapter.
    extras
        What the rendezvous gave; each is an attribute too, and a function among them is called once.
    """

    def __init__(self, me: RoleInfo, framework: Framework, extras: Mapping[str, Any], told: Connection) -> None:
        self.me, self.framework, self.extras, self._connection = me, framework, extras, told

    def __getattr__(self, name: str) -> Any:
        extras = self.__dict__.get("extras", {})
        if name not in extras:
            raise AttributeError(f"the rendezvous gave no {name!r}, only {', '.join(extras)}")
        value = extras[name]() if callable(extras[name]) else extras[name]
        setattr(self, name, value)
        return value

    def wait_until_stopped(self) -> None:
        """Return when the test stops this role."""
        self._connection.recv()


@dataclass(frozen=True, kw_only=True)
class RoleAnswer:
    """What became of a role process: its function's ``value``, or the exception that left ``rendezvous``.

    Attributes
    ----------
    value, error
        One of them.
    extras
        The names that the rendezvous gave.
    changed
        Environment variables that are not as they were before the rendezvous.
    took_s
        How long rendezvous and function took, in seconds.
    """

    value: Any = None
    error: BaseException | None = None
    extras: frozenset[str] = frozenset()
    changed: frozenset[str] = frozenset()
    took_s: float = 0.0


def run_role(end: Connection) -> None:
    """Run a role process; in the end it leaves without taking its framework apart, as a run's does.

    It stays until the test is through: a TensorFlow session that a peer opens later waits for every server.
    As in a run, frameworks are imported without what few programs use and without garbage collections.
    """
    work = end.recv_bytes()
    gc.disable()
    try:
        with parts_imported_later():
            answer = _meet_and_do(work, end)
    except BaseException as error:
        traceback.print_exc()
        answer = RoleAnswer(error=error)
    end.send_bytes(cloudpickle.dumps(answer))
    sys.stderr.flush()
    with suppress(EOFError):
        end.recv()
    os._exit(0)


def _meet_and_do(work: bytes, end: Connection) -> RoleAnswer:
    framework, me, function = cloudpickle.loads(work)
    end.send_bytes(cloudpickle.dumps(framework.prepare(me)))
    peers, timeout_s = end.recv()
    before, started = dict(os.environ), time.monotonic()
    value, error, extra_names = None, None, frozenset[str]()
    try:
        with framework.rendezvous(me, peers, timeout_s) as extras:
            extra_names = frozenset(extras)
            value = function(RoleSession(me, framework, extras, end))
    except Exception as failure:
        error = failure
    changed = frozenset(key for key, _ in dict(os.environ).items() ^ before.items())
    return RoleAnswer(value=value, error=error, extras=extra_names, changed=changed, took_s=time.monotonic() - started)
