"""The settings of a script, as one value: taken where it calls, and applied wherever something is computed for it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Any, Self

from dask_train.compat.python import is_imported
from dask_train.settings.after_import import call_after_import
from dask_train.settings.setting import Setting

# Each has a module here, which is imported once the library is.
LIBRARIES = ("jax", "keras", "numpy", "pandas", "sklearn", "tensorflow", "torch", "xgboost")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of a process and thread, as far as they change numbers or whether an error is raised.

    Attributes
    ----------
    changed
        By library, the settings that are not at the library's own default. Libraries that were not imported are not
        in it: what is set for them elsewhere stays.
    """

    changed: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @classmethod
    def here(cls, *libraries: str) -> Self:
        """Return the settings of the process and thread that calls.

        Parameters
        ----------
        *libraries
            Those that matter. Default: all that are known here. None is imported.

        Raises
        ------
        ValueError
            Something is set that other processes can't take over.
        """
        changed = {}
        for library in dict.fromkeys(libraries or LIBRARIES):
            if library not in LIBRARIES or not is_imported(sys.modules.get(library)):
                continue
            if library == "torch" and (why := import_module("dask_train.settings.torch").refusal()):
                raise ValueError(why)
            values = {name: (setting.read(), setting.default) for name, setting in _settings_of(library).items()}
            changed[library] = {name: value for name, (value, default) in values.items() if value != default}
        return cls(changed=changed)

    def differences(self) -> list[tuple[str, str, str]]:
        """Return library, name and value of what is not at its default: plain, sorted, equal for equal settings."""
        return sorted(
            (library, name, repr(self.changed[library][name]))
            for library in self.changed
            for name in self.changed[library]
        )

    def apply(self) -> None:
        """Make them those of this process, and of this thread, permanently.

        A library that is imported later gets its settings then. Settings at their default are put back, so that a
        process may be used for one value after another.

        Raises
        ------
        ValueError
            The version of a library here does not know a setting.
        RuntimeError
            A setting can't be put back.
        """
        for library in LIBRARIES:
            _waiting[library] = self
            if library in self.changed:
                call_after_import(library, _AFTER_IMPORT[library])

    @contextmanager
    def in_task(self, *, alone: bool | None) -> Iterator[None]:
        """Let them hold for a task in a thread, and put back afterwards what was there.

        Parameters
        ----------
        alone
            Whether no other task runs in the process. Otherwise a setting that all threads share is not touched, and
            has to be right. None in the process of the script, whose such settings hold as they are; but what a thread
            of the script has set for itself, such as in ``with jax.enable_x64(True):``, holds for the task's thread.

        Raises
        ------
        ValueError
            Another task would see a setting change, or a later one would find it changed for good; the message tells
            which, and what to do.
        """
        with ExitStack() as put_back:
            for library, changed in self.changed.items():
                if changed:  # a function may import it when it is called
                    with suppress(ImportError):  # which it would get then
                        import_module(library)
                if is_imported(sys.modules.get(library)):
                    for name, setting, value in _wanted(library, changed):
                        before = setting.read()
                        if before == value:
                            continue
                        if alone is None and not setting.of_thread:
                            if setting.within is not None:
                                put_back.enter_context(setting.within(value))
                            continue
                        if not setting.of_thread and not alone:
                            raise ValueError(_refused(library, name, value, before, _SHARED))
                        if setting.is_final(value, before):
                            raise ValueError(_refused(library, name, value, before, _FINAL))
                        put_back.callback(setting.write, before)
                        setting.write(value)
            yield


def named_in(pickled: bytes, value: Any) -> list[str]:
    """Return libraries that a pickle names, or that the module has imported which a function or class is from."""
    home = sys.modules.get(getattr(value, "__module__", None) or "")
    modules = [each for each in vars(home).values() if isinstance(each, ModuleType)] if home is not None else []
    imported = {module.__name__.partition(".")[0] for module in modules}
    return [library for library in LIBRARIES if library in imported or library.encode() in pickled]


def _settings_of(library: str) -> dict[str, Setting]:
    settings_by_name: dict[str, Setting] = import_module(f"dask_train.settings.{library}").settings()
    return settings_by_name


def _wanted(library: str, changed: Mapping[str, Any]) -> list[tuple[str, Setting, Any]]:
    known = _settings_of(library)
    if unknown := sorted(set(changed) - set(known)):
        raise ValueError(
            f"{library}'s setting {unknown[0]!r} is {changed[unknown[0]]!r} in the client, and {library} "
            f"{getattr(sys.modules[library], '__version__', '')} in this process has none of that name. Install the "
            "client's version on the Dask workers."
        )
    return [(name, setting, changed.get(name, setting.default)) for name, setting in known.items()]


_SHARED = (
    "and the worker runs several at a time, which all share the setting, so it is not set for one of them. Set it in "
    "all Dask workers, with client.run, or use workers of one thread."
)
_FINAL = (
    "and the setting can't be put back once it is set, so it is not set for one of them. Set it in all Dask workers, "
    "with client.run."
)


def _refused(library: str, name: str, value: Any, here: Any, why: str) -> str:
    return (
        f"{library}'s setting {name!r} was {value!r} where this was called, and is {here!r} in this Dask worker. The "
        f"model is used in Dask's own tasks, {why}"
    )


_waiting: dict[str, Settings] = {}


def _apply_to(library: str) -> None:
    for _, setting, value in _wanted(library, _waiting[library].changed.get(library, {})):
        if setting.read() != value:
            setting.write(value)


# One function for each library: however often settings are applied, its import is waited for once.
_AFTER_IMPORT = {library: partial(_apply_to, library) for library in LIBRARIES}
