"""A wrong argument is an error of the line that passed it, and a warning is of the line that called.

The library's own frames are left out of the tracebacks of such errors.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Coroutine, Iterator, Mapping
from functools import wraps
from importlib import import_module
from inspect import Parameter, currentframe, iscoroutine, signature
from types import FrameType, TracebackType
from typing import Any, ParamSpec, TypeVar, cast

from dask_train.arguments import nearest_argument
from dask_train.extras import MissingPackageError
from dask_train.masking import mask_error, masked

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

# Whose checks of arguments raise: ours, and scikit-learn's, by which estimators and searches over them look at theirs.
_OURS = "dask_train"
_CHECKERS = frozenset({_OURS, "sklearn"})
# Whose frames lie between a verb and the check that raised: these, and those that carry a call to the event loop.
_CARRIERS = _CHECKERS | {"distributed", "tornado", "asyncio", "contextlib", "concurrent", "functools"}
# Whose frames lie between the line that called and a warning.
_WARNING = frozenset({_OURS, "contextlib", "functools"})


def raises_at_the_call(verb: Callable[P, R]) -> Callable[P, R]:
    """Make errors for wrong arguments and missing packages end at the user's line that calls the verb.

    Errors that come from code of the user's or of other packages keep all their frames, and so do errors of runs; what
    has caused an error of a wrong argument has the frames of such code alone. With
    ``dask.config.set({"train.tracebacks": "whole"})``, or ``DASK_TRAIN__TRACEBACKS=whole`` in the environment, all do.
    """

    @wraps(verb)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            _check_names(verb, kwargs)
            returned = verb(*args, **kwargs)
        except (TypeError, ValueError, MissingPackageError) as error:
            if _is_of_a_check(error.__traceback__) and not _is_whole():
                error.__traceback__ = None
                _shorten(error.__cause__ or error.__context__)
            mask_error(error)
            raise  # without an argument: adds no frame of this function
        except Exception as error:
            mask_error(error)
            raise
        return cast(R, _without_secrets(returned)) if iscoroutine(returned) else returned

    return called


def _check_names(verb: Callable[..., object], arguments: Mapping[str, object]) -> None:
    """Check the names of arguments, but of a verb that checks them itself, for the kind of model that it is given.

    Raises
    ------
    TypeError
        There is no such argument; the message has the nearest one.
    """
    if not arguments or getattr(verb, "checks_its_arguments", False):
        return
    parameters = signature(verb).parameters.values()
    names = [one.name for one in parameters if one.kind in (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)]
    unknown = [name for name in arguments if name not in names]
    if unknown and not any(one.kind is Parameter.VAR_KEYWORD for one in parameters):
        listed = ", ".join(f"{name}=" for name in names if name != "self")
        name = verb.__qualname__.removesuffix(".__init__") if verb.__name__ == "__init__" else verb.__name__
        raise TypeError(f"{name} takes no {unknown[0]}=.{nearest_argument(unknown[0], names)} It takes {listed}.")


def warn_at_the_call(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn as from the line of the user's, or of another package, that has called this one."""
    frame, level = currentframe(), 1
    while frame is not None and _package(frame) in _WARNING:
        frame, level = frame.f_back, level + 1
    warnings.warn(masked(message), category, stacklevel=level)


async def _without_secrets(verb: Coroutine[Any, Any, T]) -> T:
    """Return what a verb gives later, with an asynchronous client, whose errors show no secrets either."""
    try:
        return await verb
    except Exception as error:
        mask_error(error)
        raise


def made_at_the_call(kind: type[T]) -> type[T]:
    """Return a class whose constructor is a verb in this sense: :func:`raises_at_the_call`."""
    kind.__init__ = raises_at_the_call(kind.__init__)  # type: ignore[method-assign]
    return kind


def _is_whole() -> bool:
    """Return whether all frames are wanted.

    Asked when something is wrong: what imports this module may know no Dask.
    """
    return bool(import_module("dask_train.config").whole_tracebacks())


def _is_of_a_check(trace: TracebackType | None) -> bool:
    """Return whether a check raised that no code of others called."""
    packages = list(_packages(trace))
    return bool(packages) and packages[-1] in _CHECKERS and _CARRIERS.issuperset(packages)


def _shorten(error: BaseException | None) -> None:
    """Leave the frames of others to what a check has come upon, and to what was the cause of that.

    Causes may go round: what raises the cause of what it has caught is in the context of that cause, too.
    """
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        error.__traceback__ = _without_ours(error.__traceback__)
        error = error.__cause__ or error.__context__


def _without_ours(trace: TracebackType | None) -> TracebackType | None:
    if trace is None:
        return None
    rest = _without_ours(trace.tb_next)
    if _package(trace.tb_frame) == _OURS:
        return rest
    return TracebackType(rest, trace.tb_frame, trace.tb_lasti, trace.tb_lineno)


def _packages(trace: TracebackType | None) -> Iterator[str]:
    while trace is not None:
        yield _package(trace.tb_frame)
        trace = trace.tb_next


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]
