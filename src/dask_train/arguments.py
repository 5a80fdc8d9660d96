"""Arguments of public verbs: named checks, settings classes whose fields name theirs, and signatures made of these."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import MISSING, Field, field, fields
from difflib import get_close_matches
from numbers import Integral
from typing import Any, Self, TypeVar

from dask_train.spelling import named

T = TypeVar("T", bound=Callable[..., Any])
# Called with an argument's name and value; raises if the value is invalid.
Check = Callable[[str, Any], object]


def nearest(name: object, known: Iterable[str]) -> str:
    """Return " Did you mean ...?" to end an error about an unknown name; empty if no known name is similar."""
    near = get_close_matches(str(name), list(known), n=1, cutoff=0.7)  # with less, `ps` would be near `gpus`
    return f" Did you mean {near[0]!r}?" if near else ""


_WORKERS = {"n_jobs", "num_workers", "n_workers", "nproc", "world_size"}
_EPOCHS = {"max_epochs", "num_epochs", "n_epochs", "num_train_epochs"}
_DEVICES = {"device", "devices", "accelerator", "use_gpu", "num_gpus"}
_VALIDATION = {"eval_set", "val_data", "validation_set", "eval_dataset"}
_RATES = {"lr", "learning_rate"}
_GRIDS = {"param_grid", "param_distributions", "param_space"}
_TRIALS = {"n_trials", "num_samples", "n_iter", "max_trials"}
# (Names of an argument in Keras, scikit-learn, Ray, Optuna and others; our argument for it; the hint for an error.)
_ELSEWHERE = (
    (_WORKERS, "workers", "workers="),
    (_WORKERS | {"workers"}, "roles", "roles={'worker': 4}"),
    (_WORKERS, "concurrency", "concurrency="),
    (_WORKERS | {"workers"}, "client", "client=Client(n_workers=4)"),
    (_EPOCHS, "epochs", "epochs="),
    (_EPOCHS | {"epochs", "batch_size"}, "roles", "session.batches(epochs=..., batch_size=...) in the function"),
    (_TRIALS, "trials", "trials="),
    (_TRIALS, "stop", "dt.search(build, ..., trials=20)"),
    (_DEVICES, "gpus", "gpus=1"),
    (_DEVICES, "resources", "resources={'GPU': 1}"),
    (_DEVICES, "client", "Dask workers that have a GPU"),
    ({"train_batch_size"}, "batch_size", "batch_size="),
    (_VALIDATION, "validation_data", "validation_data="),
    (_VALIDATION | {"validation_data"}, "datasets", "datasets={'valid': (Xv, yv)}"),
    ({"val_split", "validation_fraction"}, "validation_split", "validation_split="),
    (_RATES, "trials", "trial.suggest_float('lr', 1e-4, 1e-1, log=True) in build"),
    (_RATES, "optimizer", "optimizer=partial(torch.optim.Adam, lr=1e-3)"),
    (_RATES, "eval_set", "the estimator's own parameter, learning_rate"),
    (_RATES | {"config", "train_loop_config"}, "roles", "functools.partial(function, lr=1e-3)"),
    (_RATES, "callbacks", "model.compile(keras.optimizers.Adam(1e-3))"),
    (_GRIDS, "params", "params="),
    (_GRIDS, "stop", "dt.search(estimator, ..., params=...)"),
    ({"penalty"}, "C", "C=, and l1_ratio=1.0 for L1"),
    ({"proba", "predict_proba"}, "method", "method='predict_proba'"),
    ({"n_splits", "n_folds"}, "cv", "cv="),
    ({"random_state"}, "seed", "seed="),
    ({"early_stopping_rounds", "patience"}, "stop", "stop=dt.Patience('val_loss', 3)"),
    ({"logger"}, "log", "log="),
    ({"checkpoint_dir", "storage_path"}, "checkpoint", "checkpoint="),
    ({"target", "label_column"}, "label", "label="),
    ({"verbose"}, "progress", "progress="),
    ({"progress"}, "verbose", "verbose="),
)


def nearest_argument(name: str, known: Collection[str]) -> str:
    """Return a sentence, after a space, with the replacement of an unknown argument; empty if there is none."""
    use = next((use for names, argument, use in _ELSEWHERE if name in names and argument in known), None)
    return nearest(name, known) if use is None else f" Use {use}."


def is_default(value: Any, default: Any) -> bool:
    """Return whether an argument has the value and the type of its default."""
    return value is default or (type(value) is type(default) and bool(value == default))


def check_counts(**counts: Any) -> None:
    """Check that arguments are Python ints of at least 1, or None.

    Raises
    ------
    ValueError
        One is something else.
    """
    for name, value in counts.items():
        if value is not None:
            check_whole_number(name, value, 1)


def check_flags(**flags: Any) -> None:
    """Check that arguments are True or False.

    Raises
    ------
    TypeError
        One is something else.
    """
    for name, value in flags.items():
        _check_flag(name, value)


class CheckedSettings:
    """Base of frozen dataclasses that check their fields, in order, when an instance is made.

    A field without a check keeps what the user passed. A checked field may be None if None is its default.
    """

    def __post_init__(self) -> None:
        for each in fields(self):  # type: ignore[arg-type] # subclasses are dataclasses
            value = getattr(self, each.name)
            if each.metadata.get("convert"):
                object.__setattr__(self, each.name, each.metadata["convert"](value))
            elif each.metadata.get("check") and not (value is None and each.default is None):
                each.metadata["check"](each.name, value)

    @classmethod
    def of(cls, arguments: Mapping[str, Any], **more: Any) -> Self:
        """Make settings of those ``arguments`` that are fields, and of ``more``."""
        names = {each.name for each in fields(cls)}  # type: ignore[arg-type] # as before
        return cls(**{**{name: value for name, value in arguments.items() if name in names}, **more})


def positive_int(default: Any = MISSING) -> Any:
    """Declare a field that is a whole number of at least 1."""
    return whole_number(default, least=1)


def whole_number(default: Any = MISSING, *, least: int | None = None) -> Any:
    """Declare a field that is a whole number, of at least ``least``."""
    return _field(lambda name, value: check_whole_number(name, value, least), default)


def fraction(default: Any = MISSING) -> Any:
    """Declare a field that is a number from 0 and below 1."""
    return _field(_check_fraction, default)


def flag(default: Any = MISSING) -> Any:
    """Declare a field that is True or False."""
    return _field(_check_flag, default)


def one_of(*values: Any, default: Any) -> Any:
    """Declare a field that equals one of these values and has its type: 1 is not True."""

    def check(name: str, value: Any) -> None:
        if not any(type(value) is type(each) and value == each for each in values):
            *others, last = map(repr, values)
            raise ValueError(f"{named(name)} is {value!r}; it is {', '.join(others)} or {last}.")

    return _field(check, default)


def checked_by(check: Callable[[Any], object], default: Any = MISSING) -> Any:
    """Declare a field whose value is kept as it is after ``check(value)``, which raises errors that name the field."""
    return _field(lambda _, value: check(value), default)


def converted_by(convert: Callable[[Any], Any], default: Any = MISSING) -> Any:
    """Declare a field that stores ``convert(argument)``.

    ``convert`` must return its own results unchanged: ``dataclasses.replace`` calls it again.
    """
    return field(default=default, metadata={"convert": convert})


def unlisted(default: Any) -> Any:
    """Declare a field that the library sets, and that no signature lists."""
    return field(default=default, metadata={"unlisted": True})


def takes(*settings: type[CheckedSettings], without: Collection[str] = ()) -> Callable[[T], T]:
    """Decorate a function whose ``**given`` are fields of these classes: its signature lists them.

    Parameters
    ----------
    *settings
        Settings classes. The first one that has a field gives the default of that name.
    without
        Names of fields that the function does not take.
    """

    def decorated(function: T) -> T:
        own = inspect.signature(function)
        fixed = [one for one in own.parameters.values() if one.kind is not inspect.Parameter.VAR_KEYWORD]
        listed = [one for one in keywords_of(*settings) if one.name not in without]
        function.__signature__ = own.replace(parameters=[*fixed, *listed])  # type: ignore[attr-defined]
        return function

    return decorated


def keywords_of(*settings: type[CheckedSettings]) -> list[inspect.Parameter]:
    """Return the fields of settings classes as keyword-only parameters of a signature, each name once."""
    listed: dict[str, Field[Any]] = {}
    for each in settings:
        for one in fields(each):  # type: ignore[arg-type] # subclasses are dataclasses
            if not one.metadata.get("unlisted"):
                listed.setdefault(one.name, one)
    return [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if one.default is MISSING else one.default,
            annotation=one.type,
        )
        for name, one in listed.items()
    ]


def _field(check: Check, default: Any) -> Any:
    return field(default=default, metadata={"check": check})


def check_whole_number(name: str, value: Any, least: int | None) -> None:
    """Check that an argument is a Python int of at least ``least``.

    Raises
    ------
    ValueError
        It is something else.
    """
    if isinstance(value, bool) or not isinstance(value, int) or (least is not None and value < least):
        is_of_numpy = isinstance(value, Integral) and not isinstance(value, int)
        plain = f" Pass int({name})." if is_of_numpy and (least is None or int(value) >= least) else ""
        limit = "" if least is None else f" of at least {least}"
        raise ValueError(f"{named(name)} is {value!r}; it is a whole number{limit}.{plain}")


def _check_fraction(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
        raise ValueError(f"{named(name)} is {value!r}; it is a fraction between 0 and 1.")


def _check_flag(name: str, value: Any) -> None:
    is_of_numpy = str(getattr(value, "dtype", "")) == "bool" and getattr(value, "shape", None) == ()
    if not (isinstance(value, bool) or is_of_numpy):
        raise TypeError(f"{name} is {value!r}; it is True or False.")
