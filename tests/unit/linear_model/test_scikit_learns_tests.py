"""scikit-learn's installed tests of linear models, with these models in place of its own.

Each test of scikit-learn's runs that names a model which dask-train has, too. Its module is imported anew while
``sklearn.linear_model`` has stand-ins for those: dask-train's models with scikit-learn's parameters. Tests that set a
parameter, or a solver, that dask-train does not have are skipped. ``DIFFERENT`` lists what comes out otherwise on
purpose.
"""

from __future__ import annotations

import importlib.util
import inspect
import re
from collections.abc import Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import Any
from unittest import mock

import pytest
import sklearn.linear_model as plain
from _pytest.fixtures import FixtureFunctionDefinition

from dask_train import linear_model as ours

MODULES = (
    "tests.test_base",
    "tests.test_ridge",
    "tests.test_coordinate_descent",
    "tests.test_logistic",
    "tests.test_common",
    "_glm.tests.test_glm",
)
# The solvers of scikit-learn's that are run, and what is taken for them: None for the default. Others come to the same.
SOLVERS = {"auto": None, "cholesky": None, "svd": None, "lbfgs": "lbfgs", "newton-cholesky": "newton-cholesky"}
# Parameters of scikit-learn's that do nothing to what comes out, and that dask-train has not.
FREE = {"copy_X", "n_jobs", "precompute", "random_state", "selection", "solver", "verbose"}

# What is left out, by its name, and why.
LEFT_OUT = {
    r"array_api": "Arrays of other libraries are taken as NumPy arrays.",
    r"callback": "There are no callbacks of scikit-learn's, which are experimental.",
    r"logistic__LogisticRegressionCV_GridSearchCV_elastic_net": "It takes two minutes, of scikit-learn's CV class.",
    r"base__linear_regression_sample_weight_consistency.*-csr_": "It marks itself as failing, and does not fail here.",
    r"glm__(warm_start|tweedie_link_(argument|auto))": "It asks private attributes for the loss.",
    r"logistic__logreg_predict_proba_multinomial": "It calls the private _predict_proba_lr.",
    r"newton_cholesky_fallback|linalg_warning_with_newton_solver": "Newton's steps need no other solver to help.",
    r"newton_solver_verbosity": "There is no verbose=.",
}
# What fails on purpose: it has to go on failing, or to leave this list.
DIFFERENT = {
    # Data that a model may spoil, or that it is told not to look at.
    r"base__inplace_data_preprocessing\[.*-None": "X is never overwritten, also with copy_X=False.",
    r"enet_copy_X_False_check_input_False": "X is never overwritten, also with copy_X=False.",
    r"coordinate_descent__check_input_false": "Rows are always looked at.",
    r"precompute_incorrect_gram|overridden_gram_matrix": "There is no Gram matrix to pass, so none to be wrong.",
    # More is taken, or less, and said in words.
    r"ridge_fit_intercept_sparse_error": "Sparse rows are taken, with every solver.",
    r"ridge_cv_individual_penalties|ridge__dtype_match_cholesky": "alpha is one number for all targets.",
    r"enet_nonfinite_params": "Such large values are refused before the first step, with another text.",
    r"lasso_alpha_warning": "alpha=0 converges here, so there is no warning.",
    r"l1_ratio_None_deprecated|warns_with_n_jobs": "Parameters that scikit-learn is about to drop are not there.",
    # Attributes.
    r"logistic__dtype_match|enet_float_precision": "Coefficients are float64 whatever the rows are.",
    r"lasso_dual_gap|enet_multitarget": "There is no dual_gap_.",
    r"logistic__sparsify": "Coefficients are dense: there is no sparsify().",
    # Steps.
    r"warm_start_convergence": "One step of newton-cd goes to the end, so that no start saves any.",
    r"logistic__max_iter\[(lbfgs|newton-cholesky-.*-max_iter0)": "Warnings name the solver, tol and the steps.",
    r"coordinate_descent_raises_convergence\[Lasso": "It has converged, within fewer steps than are asked for.",
    r"logistic_cv_multinomial_score\[neg_log_loss": "It compares, to 6 digits, fits that end within tol=1e-4.",
}


def standing_in(name: str) -> type:
    """One of these models with the parameters of scikit-learn's; ``fit`` skips a test that sets what it has not."""
    mine = getattr(ours, name)
    theirs = inspect.signature(getattr(plain, name).__init__)
    own = inspect.signature(mine.__init__).parameters

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        bound = theirs.bind(self, *args, **kwargs)
        bound.apply_defaults()
        vars(self).update({each: value for each, value in bound.arguments.items() if each != "self"})

    __init__.__signature__ = theirs  # type: ignore[attr-defined] # where scikit-learn looks for parameters

    def fit(self: Any, X: Any, y: Any, sample_weight: Any = None, check_input: bool = True) -> Any:  # noqa: N803
        for each in theirs.parameters.keys() - own.keys() - FREE - {"self"}:
            if (value := getattr(self, each)) != theirs.parameters[each].default:
                pytest.skip(f"{each}={value!r}: there is no such parameter")
        with solver_of(self):
            return mine.fit(self, X, y, sample_weight)

    @contextmanager
    def solver_of(self: Any) -> Iterator[None]:
        given, l1_ratio = vars(self).get("solver", "auto"), getattr(self, "l1_ratio", None)
        if given not in SOLVERS and not (given == "saga" and l1_ratio):
            pytest.skip(f"solver={given!r}: there is no such solver")
        if "solver" in own:
            self.solver = "newton-cd" if l1_ratio else SOLVERS[given] or own["solver"].default
        try:
            yield
        finally:
            vars(self).pop("solver", None)
            if given != "auto" or "solver" in theirs.parameters:
                self.solver = given

    beside = {each: own[each].default for each in own.keys() - theirs.parameters.keys()}
    beside |= {"l1_ratio": 1.0} if name == "Lasso" else {}
    # There is no dual gap here, as the end is told by the subgradient: so that tests go on to what is to be compared.
    beside |= {"dual_gap_": 0.0} if name in ("Lasso", "ElasticNet") else {}
    return type(name, (mine,), {**beside, "__init__": __init__, "fit": fit, "__module__": __name__})


STAND_INS = {name: standing_in(name) for name in ours.__all__}


def installed(path: str) -> Iterator[tuple[str, Any]]:
    """The tests of an installed module that name one of the models, and its fixtures."""
    spec = importlib.util.find_spec(f"sklearn.linear_model.{path}")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with mock.patch.multiple(plain, **STAND_INS):
        spec.loader.exec_module(module)
    named, short = re.compile(rf"\b({'|'.join(STAND_INS)})\b"), path.rpartition("test_")[2]
    for name, each in vars(module).items():
        if isinstance(each, FixtureFunctionDefinition):
            yield name, each
        elif name.startswith("test_") and isinstance(each, FunctionType) and named.search(inspect.getsource(each)):
            each.pytestmark = [plain_mark(mark) for mark in getattr(each, "pytestmark", ())]  # type: ignore[attr-defined]
            yield f"test_{short}__{name.removeprefix('test_')}", each


def plain_mark(mark: Any) -> Any:
    """A mark with lists in place of generators, and whose failures of scikit-learn's need not be those of others."""
    given = [list(each) if inspect.isgenerator(each) else each for each in mark.args]
    if mark.name == "parametrize":
        given[1] = [without_failures(each) for each in given[1]]
    return getattr(pytest.mark, mark.name)(*given, **mark.kwargs).mark


def without_failures(values: Any) -> Any:
    marks = getattr(values, "marks", ())
    if any(mark.name == "xfail" for mark in marks):
        return pytest.param(*values.values, marks=pytest.mark.xfail(strict=False), id=values.id)
    return values


for _path in MODULES:
    globals().update(installed(_path))

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]


@pytest.fixture
def global_random_seed() -> int:
    return 42  # as in scikit-learn's conftest


@pytest.fixture(autouse=True)
def _listed(request: pytest.FixtureRequest) -> None:
    name = request.node.name
    for pattern, why in LEFT_OUT.items():
        if re.search(pattern, name):
            pytest.skip(why)
    for pattern, why in DIFFERENT.items():
        if re.search(pattern, name):
            request.applymarker(pytest.mark.xfail(reason=why, strict=True))
