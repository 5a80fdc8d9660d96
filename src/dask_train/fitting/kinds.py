"""Which function of a verb serves which kind of model, found without importing any framework.

Keras models, and all that no other kind claims, are served by the verb itself. For ``fit`` and ``search`` each kind is
one :class:`~dask_train.fitting.model_kind.ModelKind`. The smallest example is the k-means of ``docs/extending.md``,
whose :class:`~dask_train.trainers.Trainer` is adapted to it; the smallest of those here are linear models
(:mod:`dask_train.fitting.linear`).
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from functools import reduce, wraps
from importlib import import_module
from types import MappingProxyType
from typing import Any, TypeVar

from dask_train.arguments import CheckedSettings, keywords_of, nearest_argument
from dask_train.spelling import by_caller, is_known, passed

R = TypeVar("R")

# The class of a kind of models, by its public name, and its :class:`~dask_train.fitting.model_kind.ModelKind`, or where
# that is.
KINDS: dict[str, Any] = {
    "dask_train.linear_model.estimating.LinearEstimator": "dask_train.fitting.linear:LINEAR_MODELS",
    "lightgbm.LGBMModel": "dask_train.fitting.trees.lightgbm_api:LIGHTGBM",
    "torch.nn.Module": "dask_train.fitting.torch_module.api:MODULES",
    "xgboost.XGBModel": "dask_train.fitting.trees.xgboost_api:XGBOOST",
}
_KERAS_MODELS = "dask_train.fitting.keras_models:KERAS_MODELS"
# Kinds of :func:`dask_train.register_trainer`, by the class itself: one that a function has made can't be found by its
# name. They go before all others, whose subclasses they may be.
REGISTERED: dict[type, Any] = {}
# What errors call a class that users don't know by its name.
_CALLED = {"dask_train.linear_model.estimating.LinearEstimator": "an estimator of dask_train.linear_model"}
# What Keras models are compiled with.
_OF_COMPILE = {"loss", "metrics", "optimizer"}
# Kinds of model whose training length is a parameter of their own, and its name.
_IN_ROUNDS = "The number of rounds is the estimator's n_estimators."
_HOW_LONG = {
    "dask_train.linear_model.estimating.LinearEstimator": "The number of steps is at most the estimator's max_iter.",
    "lightgbm.LGBMModel": _IN_ROUNDS,
    "xgboost.XGBModel": _IN_ROUNDS,
}


def by_kind_of_model(
    served: Mapping[str, Any],
    *others: type[CheckedSettings],
    registered: Mapping[type, Any] = MappingProxyType({}),
    function_of: Callable[[Any], Any] = lambda served: served,
) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """Decorate a verb so that it hands models of other kinds, with their arguments, to the functions for these.

    Parameters
    ----------
    served
        By the public name of a class, ``"module:function"`` of what serves its instances: it takes the model, ``x`` and
        ``y`` as the verb does, and keywords of its own. The module may import the framework of the class only where it
        is used.
    *others
        Settings of these kinds: the verb's signature lists their fields besides its own parameters. A field that a
        kind can't do without has the default None there, since other kinds can.
    registered
        What serves instances of a class, by the class. These go before others. Default: none.
    function_of
        Makes such a function of what ``served`` names, or ``registered`` has. Default: that is one.

    Returns
    -------
    decorator
        Of a function whose first argument is ``model``; a type checker learns from overloads what it takes.
    """

    def decorated(verb: Callable[..., R]) -> Callable[..., R]:
        @wraps(verb)
        def called(*args: Any, **kwargs: Any) -> R:
            model = args[0] if args else kwargs.get("model")
            own_class = registered_class(model, registered)
            kind = kind_of(model, served) if own_class is None else _public_name(own_class)
            function: Callable[..., R] = verb
            if own_class is not None:
                function = function_of(registered[own_class])
            elif kind is not None:
                function = function_of(_loaded(served[kind]))
            _check_arguments(
                by_caller(f"dask_train.{verb.__name__}", f"dask train {verb.__name__}"), function, kind, model, kwargs
            )
            return function(*args, **kwargs)

        own = inspect.signature(verb)
        more = [one for one in keywords_of(*others) if one.name not in own.parameters]
        optional = [one.replace(default=None) if one.default is one.empty else one for one in more]
        called.__signature__ = own.replace(  # type: ignore[attr-defined]
            parameters=[*own.parameters.values(), *optional]
        )
        called.checks_its_arguments = True  # type: ignore[attr-defined]
        return called

    return decorated


def kind_of(model: Any, served: Mapping[str, Any]) -> str | None:
    """Return which of these kinds a model is; None for Keras models, and for other objects.

    A Keras model on the torch backend is a ``torch.nn.Module``, too. An instance of a class can exist only where the
    module that has it was imported.
    """
    if is_keras_model(model):
        return None
    return next((kind for kind in served if isinstance(model, _class_of(kind))), None)


def registered_class(model: Any, registered: Mapping[type, Any] = REGISTERED) -> type | None:
    """Return the registered class that a model is an instance of, the most derived one; None if there is none."""
    return next((cls for cls in type(model).__mro__ if cls in registered), None)


def searched_kind_of(model: Any) -> Any:
    """Return what describes a model's kind for a search; that of Keras where no other kind claims it."""
    if (own_class := registered_class(model)) is not None:
        return REGISTERED[own_class]
    kind = kind_of(model, KINDS)
    return _loaded(_KERAS_MODELS if kind is None else KINDS[kind])


def searched_kinds_here() -> list[Any]:
    """Return those kinds that models may be of with the libraries that this process has imported; Keras if none."""
    others = [*REGISTERED.values(), *(each for name, each in KINDS.items() if _library_of(name) in sys.modules)]
    return list(map(_loaded, [_KERAS_MODELS, *others] if "keras" in sys.modules or not others else others))


def is_keras_model(model: Any) -> bool:
    """Return whether its class is one of Keras', or extends one."""
    return any(each.__module__.partition(".")[0] == "keras" for each in type(model).__mro__)


def named(served: Mapping[str, Any], registered: Mapping[type, Any] = REGISTERED) -> str:
    """Return the kinds besides Keras' own, as errors name them; empty if there are none."""
    names = dict.fromkeys([*served, *map(_public_name, registered)])
    return "".join(f", or {_with_article(kind)}" for kind in names)


def _public_name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _with_article(kind: str) -> str:
    if kind in _CALLED:
        return _CALLED[kind]
    return f"{'an' if kind.startswith(('a', 'e', 'i', 'o', 'xg')) else 'a'} {kind}"


def _library_of(kind: str) -> str:
    """Return the module that users import for a class, which may be in one that is loaded when it is used."""
    first, second, *_ = kind.split(".")
    return f"{first}.{second}" if first == "dask_train" else first


def _class_of(kind: str) -> Any:
    module, *names = kind.split(".")
    cls = reduce(lambda value, name: getattr(value, name, None), names, sys.modules.get(module))
    return () if cls is None else cls


def _loaded(place: Any) -> Any:
    if not isinstance(place, str):
        return place
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


def _check_arguments(
    verb: str, function: Callable[..., Any], kind: str | None, model: Any, kwargs: Mapping[str, Any]
) -> None:
    """Check that all that is given by name is taken, and all that is needed is given.

    Raises
    ------
    TypeError
        It is not; the message names the arguments.
    """
    parameters = {
        name: parameter
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD
    }
    what = f"a model of type {type(model).__name__}" + ("" if kind is None else f", {_with_article(kind)}")
    keywords = [name for name, one in parameters.items() if one.kind is inspect.Parameter.KEYWORD_ONLY]
    if unknown := [name for name in kwargs if name not in parameters]:
        hint = nearest_argument(unknown[0], keywords)
        if "epochs" in unknown and kind in _HOW_LONG:
            hint = f" {_HOW_LONG[kind]}"
        if kind is None and is_keras_model(model) and (compiled := sorted(_OF_COMPILE & set(unknown))):
            hint = f" Pass {_listed(compiled)} to the model's compile."
        raise TypeError(
            f"{verb} takes no {_listed(unknown)} for {what}.{hint} Besides the model and data "
            f"it takes {_listed([name for name in keywords if is_known(name)])}."
        )
    needed = [name for name in keywords if parameters[name].default is inspect.Parameter.empty and name not in kwargs]
    if needed:
        raise TypeError(f"{verb} needs {_listed(needed)} as well for {what}.")


def _listed(names: list[str]) -> str:
    return ", ".join(passed(name) for name in names)
