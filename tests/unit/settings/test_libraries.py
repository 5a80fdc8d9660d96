"""What each library's settings are: at their default at first, and as they were taken where they are applied."""

from __future__ import annotations

import subprocess
import sys

import pytest

from dask_train.settings.process import LIBRARIES

# What a script sets, and what tells that it holds.
CASES = {
    "jax": """
jax.config.update('jax_enable_x64', True); jax.config.update('jax_default_matmul_precision', 'highest')
---
assert jax.config.jax_enable_x64 and jax.config.jax_default_matmul_precision == 'highest'
assert jax.numpy.ones(1).dtype == 'float64'
""",
    "keras": """
keras.config.set_image_data_format('channels_first'); keras.config.set_epsilon(0.5)
keras.config.set_floatx('float64'); keras.config.set_dtype_policy('mixed_bfloat16')
keras.config.disable_flash_attention()
---
assert keras.config.image_data_format() == 'channels_first' and keras.config.epsilon() == 0.5
assert keras.config.floatx() == 'float64' and keras.config.dtype_policy().name == 'mixed_bfloat16'
assert keras.config.is_flash_attention_enabled() is False
""",
    "numpy": """
numpy.seterr(over='raise', invalid='call'); numpy.seterrcall(lambda kind, flag: 3)
---
assert numpy.geterr() == {'divide': 'warn', 'over': 'raise', 'under': 'ignore', 'invalid': 'call'}
assert numpy.geterrcall()('', 0) == 3
""",
    "pandas": """
pandas.set_option('mode.string_storage', 'python'); pandas.set_option('compute.use_bottleneck', False)
---
assert pandas.get_option('mode.string_storage') == 'python' and not pandas.get_option('compute.use_bottleneck')
""",
    "sklearn": """
sklearn.set_config(transform_output='pandas', assume_finite=True, display='text')
---
assert sklearn.get_config()['transform_output'] == 'pandas' and sklearn.get_config()['assume_finite']
assert sklearn.get_config()['display'] == 'diagram'
""",
    "tensorflow": """
tensorflow.config.experimental.enable_op_determinism(); tensorflow.config.set_soft_device_placement(False)
tensorflow.config.experimental.enable_tensor_float_32_execution(False)
tensorflow.config.optimizer.set_experimental_options({'layout_optimizer': False})
---
from tensorflow.python.framework import config
assert config.is_op_determinism_enabled() and not tensorflow.config.get_soft_device_placement()
assert not tensorflow.config.experimental.tensor_float_32_execution_enabled()
assert tensorflow.config.optimizer.get_experimental_options()['layout_optimizer'] is False
""",
    "torch": """
torch.set_default_dtype(torch.float64); torch.use_deterministic_algorithms(True, warn_only=True)
torch.set_float32_matmul_precision('medium'); torch.backends.cudnn.benchmark = True
torch.backends.cuda.enable_flash_sdp(False); torch.backends.cudnn.allow_tf32 = False
torch.autograd.set_detect_anomaly(True, False)
---
assert torch.get_default_dtype() == torch.float64 and torch.is_deterministic_algorithms_warn_only_enabled()
assert torch.get_float32_matmul_precision() == 'medium' and torch.backends.cudnn.benchmark
assert torch.are_deterministic_algorithms_enabled() and not torch.backends.cuda.flash_sdp_enabled()
assert not torch.backends.cudnn.allow_tf32 and torch.backends.cuda.matmul.allow_tf32
assert torch.is_anomaly_enabled() and not torch.is_anomaly_check_nan_enabled()
""",
    "xgboost": """
xgboost.set_config(verbosity=0)
---
assert xgboost.get_config()['verbosity'] == 0
""",
}


# Without garbage collections, which would be a quarter of the time that imports take.
_TAKEN = """
import gc; gc.disable()
import importlib, pickle, {libraries}
from dask_train.settings.process import Settings
assert Settings.here().differences() == [], Settings.here()
for changed in ({{"op_determinism": True}}, {{"optimizer_options": {{"remapping": True}}}}):
    try:
        with Settings(changed={{"tensorflow": changed}}).in_task(alone=True):
            raise AssertionError(changed)
    except ValueError as error:
        assert "can't be put back" in str(error), error
assert Settings.here().differences() == [], Settings.here()
{changes}
print(pickle.dumps(Settings.here()).hex())
"""
_APPLIED = """
import gc; gc.disable()
import importlib, pickle, sys
from dask_train.settings.process import LIBRARIES, Settings
assert not set(LIBRARIES) & set(sys.modules), "what is tested is that they are imported later"
settings = pickle.loads(bytes.fromhex(sys.stdin.read()))
settings.apply()
assert not set(LIBRARIES) - {{"numpy"}} & set(sys.modules), "they were imported"
import {libraries}
{checks}
assert Settings.here() == settings, Settings.here()
Settings(changed={{library: {{}} for library in LIBRARIES if library != "tensorflow"}}).apply()
left = {{library for library, _, _ in Settings.here().differences()}}
assert left == {{"tensorflow"}}, left  # whose determinism stays on
print("right")
"""


def ran(code: str, given: str = "") -> str:
    """Return the last line that a new process prints."""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip().splitlines()[-1]


def test_settings_of_one_process_hold_in_another_once_libraries_are_imported_and_are_put_back():
    assert sorted(CASES) == sorted(LIBRARIES)
    for library in LIBRARIES:
        pytest.importorskip(library)
    parts = [case.split("---") for case in CASES.values()]
    libraries, (changes, checks) = ", ".join(CASES), map("".join, zip(*parts, strict=True))
    taken = ran(_TAKEN.format(libraries=libraries, changes=changes))
    assert ran(_APPLIED.format(libraries=libraries, checks=checks), taken) == "right"
