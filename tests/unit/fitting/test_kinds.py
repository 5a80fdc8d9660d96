"""Which function of a verb gets which model, and what it says of arguments."""

from __future__ import annotations

import subprocess
import sys

import pytest

from dask_train.fitting.kinds import by_kind_of_model, kind_of, named

# The models of this test are fractions; there are none of the others, whose modules or classes are not there.
SERVED = {"not_imported.Model": "nowhere:fit", "fractions.Fraction": f"{__name__}:fit_fraction", "zipfile.gone.No": ""}


def fit_fraction(model, x=None, y=None, *, loss, optimizer="adam", wait=True):
    return "fraction", model, x, y, loss, optimizer, wait


@by_kind_of_model(SERVED)
def fit(model, x=None, y=None, *, epochs=1, wait=True):
    """Train."""
    return "keras", model, x, y, epochs, wait


@pytest.fixture(autouse=True)
def _importable(monkeypatch):
    monkeypatch.setitem(sys.modules, __name__, sys.modules.get(__name__) or sys.modules[fit_fraction.__module__])


def a_fraction():
    from fractions import Fraction

    return Fraction(1, 2)


def test_a_model_goes_to_the_function_of_its_kind_with_what_was_given():
    half = a_fraction()
    assert fit(half, 1, 2, loss="mse", wait=False) == ("fraction", half, 1, 2, "mse", "adam", False)
    assert fit(model=half, y=2, loss="mse") == ("fraction", half, None, 2, "mse", "adam", True)
    assert fit("a model", 1, epochs=3) == ("keras", "a model", 1, None, 3, True)
    assert fit.__doc__ == "Train."


def test_arguments_that_a_kind_does_not_take_are_named_with_those_that_it_takes():
    with pytest.raises(TypeError, match=r"takes no epochs=, ps= for a model of type Fraction, a fractions\."):
        fit(a_fraction(), loss="mse", epochs=2, ps=1)
    with pytest.raises(TypeError, match=r"it takes loss=, optimizer=, wait=\."):
        fit(a_fraction(), loss="mse", epochs=2)
    with pytest.raises(TypeError, match=r"fit takes no loss= for a model of type str\. .* it takes epochs=, wait=\."):
        fit("a model", loss="mse")
    with pytest.raises(TypeError, match=r"takes no epoch= for a model of type str\. Did you mean 'epochs'\? Besides"):
        fit("a model", epoch=2)
    with pytest.raises(TypeError, match="fit needs loss= as well for a model of type Fraction, a fractions"):
        fit(a_fraction())


def test_a_class_of_keras_is_of_keras_whatever_its_backend_makes_of_it():
    class Layer(type(a_fraction())):
        __module__ = "keras.src.layers"

    assert kind_of(a_fraction(), SERVED) == "fractions.Fraction"
    assert kind_of(Layer(1, 2), SERVED) is None
    with pytest.raises(TypeError, match=r"takes no epoch=, loss= for .* Pass loss= to the model's compile\."):
        fit(Layer(1, 2), epoch=2, loss="mse")
    served = {"torch.nn.Module": "a:b", "xgboost.XGBModel": "a:b", "onnx.Model": "a:b"}
    assert named(served) == ", or a torch.nn.Module, or an xgboost.XGBModel, or an onnx.Model"


def test_no_framework_is_imported_to_look_at_a_model():
    program = (
        "import sys, dask_train as dt\n"
        "try: dt.fit(object(), 1, nonsense=2)\n"
        "except TypeError as error: print(error)\n"
        "print({'torch', 'tensorflow', 'keras', 'jax'} & set(sys.modules))"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert told.stdout.startswith("dask_train.fit takes no nonsense= for a model of type object.")
    assert told.stdout.endswith("set()\n")
