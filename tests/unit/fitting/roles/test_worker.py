"""What a worker does around Keras' own ``fit``."""

from __future__ import annotations

from types import SimpleNamespace

import keras
import numpy as np
from keras import layers

from dask_train.fitting.roles.worker import Worker
from dask_train.trainers.common.sync_point import Position


def test_moving_averages_end_as_weights_also_where_training_stops_within_an_epoch_that_others_began():
    model = keras.Sequential([layers.Input((1,)), layers.Dense(1, use_bias=False)])
    model.compile(keras.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.5), "mse")
    model.fit(np.ones((2, 1)), np.ones((2, 1)), verbose=0)
    (weight,), (average,) = model.trainable_weights, model.optimizer._model_variables_moving_average
    weight.assign([[3.0]])
    average.assign([[7.0]])
    ended = []

    def stops(*_, **__):
        model.optimizer.finalize_variable_values(model.trainable_weights)  # as Keras' fit does, which is not the end
        assert float(weight.numpy()[0, 0]) == 3.0
        model.stop_training = True

    worker = SimpleNamespace(
        model=model,
        position=Position(epoch=0, batch=2),
        loop=SimpleNamespace(first_of_call=2),
        epochs=SimpleNamespace(size=lambda _: 4),
        _begins_within_data=lambda: not model.stop_training,
        _fit=stops,
    )
    model.stop_training = False
    callbacks = SimpleNamespace(opens=True, closes=True, on_train_end=lambda: ended.append(float(weight.numpy()[0, 0])))
    Worker._fit_to_the_end(worker, callbacks, None)
    assert ended == [7.0]
