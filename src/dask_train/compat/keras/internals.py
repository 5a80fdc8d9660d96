"""Names that Keras keeps in private modules, each with what breaks without it.

========================================  =============================================================================
name                                      without it
========================================  =============================================================================
``AutocastScope``                         weights that are read within a layer of mixed precision are rounded
``compute_output_spec``                   shapes of predictions are known only after a batch was computed
``get_keras_mask``, ``set_keras_mask``    rows that are masked count in losses of a global batch
``masking``                               on JAX a mask is taken for that of another tensor
``get_stateless_scope``                   on torch, losses that layers add are not looked at before a run
``global_state``                          to read the dtype policy would fix it permanently
``loss_module``                           losses of workers with unequal rows are averaged with the wrong weights
``LossFunctionWrapper``,                  each loss and metric counts as one that compares rows, and is given those of
``MeanMetricWrapper``                     all workers
``MetricsList``                           metrics that compare rows count those of one worker
``Functional``,                           subclasses of functional models can't be made again
``functional_like_constructor``
``is_default``                            layers without a ``build`` of their own are taken as not built
``ObjectSharingScope``                    a layer that is used twice becomes two
``serialization_lib``                     processes on torch and JAX import TensorFlow when they serialize a model
``pythonify_logs``                        a history has arrays in place of numbers
========================================  =============================================================================
"""

from __future__ import annotations

from keras.src.backend import compute_output_spec, get_keras_mask, set_keras_mask
from keras.src.backend.common import global_state, masking
from keras.src.backend.common.stateless_scope import get_stateless_scope
from keras.src.backend.common.variables import AutocastScope
from keras.src.losses import loss as loss_module
from keras.src.losses.losses import LossFunctionWrapper
from keras.src.metrics.reduction_metrics import MeanMetricWrapper
from keras.src.models.functional import Functional, functional_like_constructor
from keras.src.saving import serialization_lib
from keras.src.saving.serialization_lib import ObjectSharingScope
from keras.src.trainers.compile_utils import MetricsList
from keras.src.utils.python_utils import is_default, pythonify_logs

__all__ = [
    "AutocastScope",
    "Functional",
    "LossFunctionWrapper",
    "MeanMetricWrapper",
    "MetricsList",
    "ObjectSharingScope",
    "compute_output_spec",
    "functional_like_constructor",
    "get_keras_mask",
    "get_stateless_scope",
    "global_state",
    "is_default",
    "loss_module",
    "masking",
    "pythonify_logs",
    "serialization_lib",
    "set_keras_mask",
]
