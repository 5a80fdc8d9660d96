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

# Public name of a class of models -> its :class:`~dask_train.fitting.model_kind.ModelKind`, or "module:name" of that.
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
# Names in error messages, for classes that users don't know by their own.
_CALLED = {"dask_train.linear_model.estimating.LinearEstimator": "an estimator of dask_train.linear_model"}
# Arguments that Keras takes in ``compile``, and other libraries where they train.
_OF_COMPILE = {"loss", "metrics", "optimizer"}
_IN_ROUNDS = "The number of rounds is the estimator's n_estimators."
# Models whose training length is a parameter of their own, and a sentence that names it.
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
    """Decorate a verb so that each kind of model is passed, with the arguments, to the function for that kind.

    Parameters
    ----------
    served
        Public name of a class -> ``"module:function"`` for its instances. The function takes the model, ``x`` and
        ``y`` as the verb does, and keywords of its own. The module may import the framework of the class only where it
        is used.
    *others
        Settings classes of these kinds: the verb's signature lists their fields besides its own parameters. A field
        that is required by one kind has the default None there, since other kinds do not require it.
    registered
        The same by the class itself, for registered kinds, which go before others. Default: none.
    function_of
        Return such a function, given what ``served`` names or ``registered`` has. Default: the object itself.

    Returns
    -------
    decorator
        Decorates a function whose first argument is ``model``. Its overloads tell a type checker which arguments it
        takes.
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
    """Return the key of a model's kind in ``served``; None for Keras models and unknown classes.

    On the torch backend a Keras model is an ``nn.Module``, too; it is a Keras model here. Nothing is imported: an
    instance of a class can exist only after the module of the class was imported.
    """
    if is_keras_model(model):
        return None
    return next((kind for kind in served if isinstance(model, _class_of(kind))), None)


def registered_class(model: Any, registered: Mapping[type, Any] = REGISTERED) -> type | None:
    """Return the registered class that a model is an instance of, the most derived one; None if there is none.

    Of Keras models these are classes of Keras models alone: on the torch backend they are ``torch.nn.Module``, too.
    """
    keras_alone = is_keras_model(model)
    classes = (cls for cls in type(model).__mro__ if cls in registered)
    return next((cls for cls in classes if not keras_alone or _is_of_keras(cls)), None)


def searched_kind_of(model: Any) -> Any:
    """Return the :class:`~dask_train.fitting.model_kind.ModelKind` of a model; that of Keras for unknown classes."""
    if (own_class := registered_class(model)) is not None:
        return REGISTERED[own_class]
    kind = kind_of(model, KINDS)
    return _loaded(_KERAS_MODELS if kind is None else KINDS[kind])


def searched_kinds_here() -> list[Any]:
    """Return the kinds whose libraries this process has imported; Keras if there are none."""
    others = [*REGISTERED.values(), *(each for name, each in KINDS.items() if _library_of(name) in sys.modules)]
    return list(map(_loaded, [_KERAS_MODELS, *others] if "keras" in sys.modules or not others else others))


def is_keras_model(model: Any) -> bool:
    """Return whether the class of a model is from Keras, or extends such a class."""
    return _is_of_keras(type(model))


def _is_of_keras(cls: type) -> bool:
    return any(each.__module__.partition(".")[0] == "keras" for each in cls.__mro__)


def named(served: Mapping[str, Any], registered: Mapping[type, Any] = REGISTERED) -> str:
    """Return an error message's list of the kinds besides Keras; empty if there are none."""
    names = dict.fromkeys([*served, *map(_public_name, registered)])
    return "".join(f", or {_with_article(kind)}" for kind in names)


def _public_name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _with_article(kind: str) -> str:
    if kind in _CALLED:
        return _CALLED[kind]
    return f"{'an' if kind.startswith(('a', 'e', 'i', 'o', 'xg')) else 'a'} {kind}"


def _library_of(kind: str) -> str:
    """Return the module that users import for a class; the class itself may be in a submodule that is loaded later."""
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
    """Check that a function takes all keywords of a call, and that none of its required ones is missing.

    Raises
    ------
    TypeError
        A keyword is unknown or missing; the message names the arguments.
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
