"""At which moments workers agree, and on what: the first one, which has callbacks, and the others, which have none."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace

import keras
import numpy as np
import pytest
from keras import layers

from dask_train.fitting.roles.agreement import CallbackAgreement
from dask_train.fitting.roles.callbacks import Follower, Leader
from dask_train.fitting.roles.control import Flags
from dask_train.trainers.common import loop as loop_module
from dask_train.trainers.common.loop import TrainingLoop
from dask_train.trainers.common.score_names import score_name
from dask_train.trainers.common.sync_point import Position
from dask_train.trainers.common.task import LoopTask

X = np.zeros((6, 2), "f4")


class Control(Flags):
    """Notes each agreement; ``told`` is what the first worker has told the others, in place of what is set here."""

    def __init__(self, told=()):
        super().__init__()
        self.agreed, self.told = [], iter(told)

    def agree(self, *, new_rates=True):
        self.agreed.append(new_rates)
        for name, value in next(self.told, {}).items():
            setattr(self, name, value)


class Weights:
    """Weights that callbacks have changed where ``is_new``."""

    is_new = new_optimizers = False

    def __init__(self):
        self.did = []

    def note(self):
        self.did.append("note")

    def changed(self):
        self.did.append("look")
        return self.is_new

    def send(self, *, optimizers):
        self.did.append(("send", optimizers))


class Loop(TrainingLoop):
    """A loop whose checkpoints and history are noted in what all workers ``did``, and in ``told``."""

    def __init__(self, did, moment, *, should_stop, keep_due, steps):
        self.did, self.told = did, []
        session = SimpleNamespace(
            num_rows=2 * steps, peers={}, should_stop=should_stop, report=lambda **scores: self.told.append(scores)
        )
        super().__init__(LoopTask(epochs=9, batch_size=2), session, moment)
        self._checkpointer.due = lambda steps, epoch_ends: keep_due(epoch_ends)

    def epoch_ends(self):
        self.told.append("epoch ends")

    def note_validated(self):
        self.told.append("validated")

    def _note(self, epoch, scores):
        self.told.append(sorted(scores))

    def _save(self):
        self.did.append("keep")


@pytest.fixture
def model():
    made = keras.Sequential([layers.Input((2,)), layers.Dense(1)])
    made.compile("sgd", "mse", jit_compile=False)
    return made


def synced(model, told=(), *, should_stop=lambda: False, keep_due=lambda ends: False, steps=3, rank=0):
    """What all workers do at each moment, and what was cut short, or kept."""
    did, replicas = [], SimpleNamespace(rank=rank, size=2)
    made = CallbackAgreement(model, replicas, Control(told), Weights(), should_stop, lambda: did.append("cut"))
    made.loop = Loop(did, made, should_stop=should_stop, keep_due=keep_due, steps=steps)
    made.did, made.told = did, made.loop.told
    return made


def leading(moment, callbacks=(), steps=3):
    return Leader(list(callbacks), moment, aside=nullcontext, epochs=2, steps=steps, verbose=0)


def step(moment):
    """Take a step, as it is taken before callbacks see its end."""
    moment.loop.count_step()
    moment.control.epoch_ends = moment.loop.ends_epoch


def moments(model, callbacks):
    """After how many agreements each call of Keras' ``fit`` ends."""
    seen = []

    def noted(name, hook, *args, **kwargs):
        if name == "on_train_batch_end":
            step(callbacks._moment)
        hook(*args, **kwargs)
        seen.append((name, len(callbacks._moment.control.agreed)))

    for name in [name for name in dir(callbacks) if name.startswith("on_")]:
        setattr(callbacks, name, partial(noted, name, getattr(callbacks, name)))
    model.fit(X, X[:, :1], batch_size=2, epochs=2, validation_data=(X, X[:, :1]), callbacks=callbacks, verbose=0)
    return seen


def overriding(*names):
    return type("Own", (keras.callbacks.Callback,), {name: lambda *_, **__: None for name in names})()


@pytest.mark.parametrize("stops", [True, False])
def test_a_callback_of_the_first_worker_ends_a_validation_on_all(model, stops):
    first, other = synced(model), synced(made := keras.models.clone_model(model), [{"stop_evaluating": stops}], rank=1)
    model.stop_evaluating, made.stop_evaluating = stops, False
    first.pass_on()
    assert first.control.stop_evaluating == stops
    other.pass_on()
    assert made.stop_evaluating == stops


@pytest.mark.parametrize(
    ("callbacks", "at"),
    [
        ([], set()),
        ([keras.callbacks.EarlyStopping("loss"), overriding("on_epoch_begin")], set()),
        ([overriding("on_train_batch_begin")], {"on_train_batch_begin"}),
        ([overriding("on_batch_begin")], {"on_train_batch_begin"}),
        ([overriding("on_train_batch_end")], set()),
        ([overriding("on_test_batch_end")], {"on_test_batch_begin", "on_test_batch_end"}),
    ],
)
def test_all_workers_agree_at_the_same_moments(model, callbacks, at):
    first, other = synced(model), synced(model, rank=1)
    seen = moments(model, leading(first, callbacks))
    for name in ("batch_begins", "test_batches"):  # which the first one has told when training began
        setattr(other.control, name, getattr(first.control, name))
    assert moments(model, Follower(other)) == seen
    always = {"on_train_begin", "on_epoch_begin", "on_train_batch_end", "on_test_begin", "on_test_end", "on_epoch_end"}
    before, agreeing = 0, set()
    for name, count in seen:
        agreeing |= {name} if count > before else set()
        before = count
    assert agreeing - {"on_train_end"} == always | at


def test_learning_rates_are_looked_at_where_callbacks_may_have_set_them(model):
    quiet, busy = synced(model), synced(model)
    for moment, callbacks in ((quiet, []), (busy, [overriding("on_train_batch_end")])):
        leader = leading(moment, callbacks)
        for batch in range(3):  # the last one of an epoch, too
            step(moment)
            leader.on_train_batch_end(batch, {})
    assert (quiet.control.agreed, busy.control.agreed) == ([False] * 3, [True] * 3)


def test_weights_are_looked_at_where_callbacks_may_set_them(model):
    quiet, busy = synced(model), synced(model)
    leading(quiet, [keras.callbacks.ReduceLROnPlateau()]).on_epoch_begin(0)
    assert quiet.weights.did == []
    its = leading(busy, [overriding("on_epoch_begin")])
    its.on_epoch_begin(0)
    assert busy.weights.did == ["note", "look"]
    busy.weights.is_new = busy.weights.new_optimizers = True
    its.on_epoch_begin(1)
    assert busy.weights.did[2:] == ["note", "look", ("send", True)]


def test_scores_are_told_now_and_then_within_an_epoch_and_at_its_end(model, monkeypatch):
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(loop_module, "time", SimpleNamespace(monotonic=lambda: clock.now))
    moment = synced(model, steps=10)
    leader = leading(moment, steps=10)
    leader.on_train_begin()
    leader.on_epoch_begin(0)
    for batch in range(10):
        clock.now += 0.2
        step(moment)
        leader.on_train_batch_end(batch, {"loss": float(batch), "text": "no number"})
    assert moment.told == [{"epoch": 0, "step": step, "num_steps": 10, "loss": step - 1.0} for step in (4, 8)], (
        "half a second has passed by the step before, after which metrics are added up"
    )
    leader.on_epoch_end(0, {"loss": 1.0, "time": 2.0})
    of_epoch = {"epoch": 0, "num_steps": 10, "loss": 1.0, "time_metric": 2.0}
    assert moment.told[2:] == ["epoch ends", ["loss", "time"], of_epoch]


def test_checkpoints_are_asked_for_after_each_step_but_an_epochs_last(model):
    asked = []

    def keep_due(epoch_ends):
        asked.append(epoch_ends)
        return True

    moment = synced(model, keep_due=keep_due, steps=2)
    leader = leading(moment)
    leader.on_train_begin()
    for batch in range(2):
        step(moment)
        leader.on_train_batch_end(batch, {})
    leader.on_epoch_end(0, {})
    assert (asked, moment.did) == ([False, True], ["keep", "keep"])


@pytest.mark.parametrize(("steps", "did"), [(3, ["keep", "cut"]), (1, [])])
def test_a_run_that_is_to_end_takes_no_further_step_and_validates_no_more(model, steps, did):
    moment = synced(model, should_stop=lambda: True, keep_due=lambda _: True, steps=steps)
    step(moment)
    leading(moment).on_train_batch_end(0, {})
    assert (model.stop_training, moment.did) == (True, did), "what is kept is as it was before the epoch was cut short"
    assert model._should_eval(0, 1) is False


def test_an_epoch_that_is_cut_short_is_in_the_history_and_no_more(model):
    moment = synced(model, should_stop=lambda: True, keep_due=lambda _: True)
    leader = leading(moment)
    leader.on_train_begin()
    step(moment)
    leader.on_train_batch_end(0, {})
    leader.on_epoch_end(0, {"loss": 1.0})
    assert moment.told == ["epoch ends", ["loss"]], "nothing is reported"
    assert moment.did.count("keep") == 1
    assert len(moment.control.agreed) == 3, "callbacks have had their say"


def test_what_the_first_worker_has_told_acts_on_others(model):
    told = [
        {"new_weights": True, "new_optimizers": True, "keep": True},
        {"new_weights": False, "stop_training": True, "halt": True},
    ]
    moment = synced(model, told, rank=1)
    follower = Follower(moment)
    step(moment)
    follower.on_train_batch_end(0)
    assert (moment.weights.did, moment.did) == ([("send", True)], ["keep"])
    step(moment)
    follower.on_train_batch_end(1)
    assert (model.stop_training, moment.did, model._should_eval(0, 1)) == (True, ["keep", "cut"], False)


def test_one_that_goes_on_numbers_batches_as_if_it_had_begun(model):
    seen = []
    own = overriding("on_epoch_begin")
    own.on_train_batch_begin = lambda batch, logs=None: seen.append(("begins", batch))
    own.on_train_batch_end = lambda batch, logs=None: seen.append(("ends", batch))
    moment, followed = synced(model, steps=9), []
    leader = leading(moment, [own])
    leader.resume(5, followed.append, lambda: seen.append("holds what those before held"))
    leader.on_train_begin()
    assert seen.pop() == "holds what those before held"
    assert followed == [leader._history]
    for batch in range(2):
        leader.on_train_batch_begin(batch)
        step(moment)
        leader.on_train_batch_end(batch, {})
    leader.on_epoch_end(1, {})
    step(moment)
    leader.on_train_batch_end(0, {})
    assert seen == [("begins", 5), ("ends", 5), ("begins", 6), ("ends", 6), ("ends", 0)]


def test_calls_of_fit_within_what_the_user_sees_as_one_begin_and_end_nothing(model):
    seen = []
    own = overriding("on_epoch_begin")
    own.on_train_begin = lambda logs=None: seen.append("begins")
    own.on_train_end = lambda logs=None: seen.append("ends")
    moment = synced(model)
    leader, follower = leading(moment, [own]), Follower(synced(model))
    for opens, closes in ((True, False), (False, True)):
        for one in (leader, follower):
            one.opens, one.closes = opens, closes
            one.on_train_begin()
            one.on_train_end()
    assert seen == ["begins", "ends"]
    assert len(moment.control.agreed) == len(follower._moment.control.agreed) == 2


def test_a_callback_that_sets_where_training_begins_is_refused(model):
    own = overriding("on_epoch_begin")
    own.on_train_begin = lambda logs=None: setattr(model, "_initial_epoch", 3)
    with pytest.raises(ValueError, match=r"A callback has set model\._initial_epoch to 3"):
        leading(synced(model), [own]).on_train_begin()


@pytest.mark.parametrize(
    ("callback", "epochs", "batches"),
    [
        (keras.callbacks.CSVLogger("f"), False, False),
        (keras.callbacks.ModelCheckpoint("f.keras"), True, False),
        (keras.callbacks.ModelCheckpoint("f.keras", save_freq=3), True, True),
        (keras.callbacks.TensorBoard("f"), True, False),
        (keras.callbacks.LambdaCallback(on_train_batch_end=print), True, True),
        (overriding("on_epoch_end"), True, False),
    ],
)
def test_who_may_look_at_optimizers(model, callback, epochs, batches, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # TensorBoard writes at once
    control = synced(model).control
    leading(SimpleNamespace(model=model, control=control, report_due=False), [callback])
    assert (control.looks_at_epochs, control.looks_at_batches) == (epochs, batches)


def test_scores_whose_names_mean_something_else_are_told_under_others():
    assert [score_name(name) for name in ("loss", "epoch", "rank", "trial")] == [
        "loss",
        "epoch_metric",
        "rank_metric",
        "trial_metric",
    ]


def behind(model, **settings):
    """The moments of a worker that takes the place of a lost one, which had taken the step in hand."""
    moment, ended = synced(model, steps=9, **settings), []
    moment.control.restore = lambda state: moment.did.append(("restored", state))
    moment.loop._behind_step = True
    moment.loop.start_all_again = ended.append
    moment.restore({"control": "flags and rates", "since": {"weights_sent": False, "numbers": {}}})
    return moment, ended


def test_a_successor_calls_callbacks_for_what_comes_after_the_step_alone(model):
    called, own = [], overriding("on_epoch_begin")
    own.on_train_begin = lambda logs=None: called.append("begin")
    own.on_epoch_begin = lambda epoch, logs=None: called.append("epoch")
    own.on_train_batch_begin = lambda batch, logs=None: called.append("batch begins")
    own.on_train_batch_end = lambda batch, logs=None: called.append(batch)
    moment, _ = behind(model)
    leader = leading(moment, [own], steps=9)
    leader.resume(4, lambda _: None, lambda: called.append("holds"))
    leader.on_train_begin()
    leader.on_epoch_begin(1)
    leader.on_train_batch_begin(0)
    assert (called, moment.control.agreed, leader.epoch) == (["begin", "holds"], [], 1), "nobody is waited for"
    assert moment.did == [("restored", "flags and rates")]
    moment.loop._behind_step = False
    step(moment)
    leader.on_train_batch_end(0, {})
    leader.on_train_batch_begin(1)
    assert (called[2:], len(moment.control.agreed)) == ([4, "batch begins"], 2)


def test_a_successor_that_has_no_callbacks_agrees_on_what_comes_after_the_step_alone(model):
    moment, _ = behind(model, rank=1)
    moment.control.batch_begins = True
    follower = Follower(moment)
    follower.on_train_begin()
    follower.on_epoch_begin(1)
    follower.on_train_batch_begin(0)
    assert (moment.control.agreed, moment.did) == ([], [("restored", "flags and rates")])
    moment.loop._behind_step = False
    step(moment)
    follower.on_train_batch_end(0)
    follower.on_epoch_begin(2)
    assert len(moment.control.agreed) == 2


def joining(model, batch, **settings):
    """The moments of a worker that joins before this batch of the second epoch."""
    moment = synced(model, steps=9, **settings)
    moment.control.restore = lambda state: moment.did.append(("restored", state))
    moment.control.batch_begins = True
    moment.loop._is_joining, moment.loop.position = True, Position(1, batch, 9 + batch)
    moment.restore({"control": "flags and rates", "since": {"weights_sent": False, "numbers": {}}})
    return moment


@pytest.mark.parametrize("batch", [0, 4])
@pytest.mark.parametrize("leads", [True, False])
def test_one_that_joins_begins_an_epoch_with_the_others_or_continues_it(model, leads, batch):
    called, own = [], overriding("on_train_batch_begin")
    own.on_epoch_begin = lambda epoch, logs=None: called.append(epoch)
    moment = joining(model, batch, rank=0 if leads else 1)
    callbacks = leading(moment, [own], steps=9) if leads else Follower(moment)
    callbacks.on_train_begin()
    assert (moment.control.agreed, moment.did) == ([], [("restored", "flags and rates")]), "nobody is waited for"
    callbacks.on_epoch_begin(1)
    begun = batch == 0
    assert (called, len(moment.control.agreed)) == ([1] if begun and leads else [], begun)
    callbacks.on_train_batch_begin(0)
    step(moment)
    callbacks.on_train_batch_end(0, {})
    callbacks.on_epoch_begin(2)
    assert (called[begun and leads :], len(moment.control.agreed)) == ([2] if leads else [], begun + 3)


def test_the_first_worker_tells_of_another_number_at_sync_points_alone(model):
    first, other = synced(model), synced(model, [{"resizes": True}, {"resizes": False}], rank=1)
    first.resizes = True
    for moment in (first, other):
        moment.flags(False, False)
        assert (moment.resizes, moment.control.resizes) == (True, False)
    other.flags(False, False)
    assert not other.resizes


def test_all_start_again_where_weights_are_set_as_training_begins_in_a_successor_alone(model):
    moment, ended = behind(model)
    moment.weights.is_new = True
    own = overriding("on_train_begin")
    leading(moment, [own]).on_train_begin()
    assert ended == ["a callback sets weights as training begins, which it has elsewhere"]


def test_all_start_again_where_callbacks_of_a_lost_first_worker_had_set_weights(model):
    sent = {"control": None, "since": {"weights_sent": True, "numbers": {}}}
    for rank, num in ((0, 1), (1, 0)):
        moment, ended = behind(model, rank=rank)
        moment.restore(sent)
        assert len(ended) == num


def test_what_a_successor_is_told_says_whether_weights_were_sent_since(model):
    moment = synced(model)
    moment.control.state = lambda: "flags"
    told = moment.state()
    assert told == {"control": "flags", "since": {"weights_sent": False, "numbers": {}}}
    moment.pass_on(new_weights=True)
    assert told["since"]["weights_sent"]
    assert not moment.state()["since"]["weights_sent"], "this is another border"
