"""What a type checker sees of the public verbs; checked by test_typing.py, never run."""

from typing import Any, assert_type

import dask_train as dt


class Enough(dt.StopRule):
    def met(self, scores: Any, progress: dt.RunProgress, since: int = 0) -> str:
        return "enough" if len(scores) > since else ""


def worker(session: dt.Session) -> int:
    return session.rank


def runs(wait: bool, framework: dt.Framework) -> None:
    assert_type(dt.train(worker), dt.Result)
    assert_type(dt.train(worker, wait=True, stop=Enough(), framework=framework), dt.Result)
    assert_type(dt.train({"worker": worker}, roles={"worker": 2}, wait=False), dt.Run[dt.Result])
    assert_type(dt.train(worker, wait=wait), dt.Result | dt.Run[dt.Result])
    assert_type(dt.train(worker, wait=False).result(), dt.Result)
    assert_type(dt.train(worker, wait=False).scores(), dt.Scores)
    assert_type(dt.train(worker).results, dict[str, list[Any]])
    dt.train(worker, checkpoint=dt.Checkpoint("kept", every_steps=5), resume=True)


def fits(model: Any, x: Any, y: Any, wait: bool) -> None:
    assert_type(dt.fit(model, x, y, epochs=5), dt.FitResult)
    assert_type(dt.fit(model, x, y, wait=False), dt.Run[dt.FitResult])
    assert_type(dt.fit(model, x, y, wait=False).result(), dt.FitResult)
    assert_type(dt.fit(model, x, y, wait=wait), dt.FitResult | dt.Run[dt.FitResult])
    assert_type(dt.fit(model, x).history, dict[str, list[Any]])
    assert_type(dt.search(lambda trial: model, x, y, trials=3), dt.SearchResult)
    assert_type(dt.evaluate(model, x, y), dict[str, float])
    assert_type(dt.predict_to("folder", model, x), dt.PredictedFiles)


def fits_of_torch(module: Any, x: Any, y: Any, loss: Any, wait: bool) -> None:
    assert_type(dt.fit(module, x, y, loss=loss, optimizer=loss, epochs=5), dt.FitResult)
    assert_type(dt.fit(module, x, y, loss=loss, optimizer=loss, wait=False), dt.Run[dt.FitResult])
    assert_type(dt.fit(module, x, y, loss=loss, optimizer=loss, wait=wait), dt.FitResult | dt.Run[dt.FitResult])
    assert_type(dt.evaluate(module, x, y, loss=loss, metrics=[loss]), dict[str, float])
    dt.fit(module, x, y, loss=loss)  # type: ignore[call-overload]
    dt.fit(module, x, y, loss=loss, optimizer=loss, ps=1)  # type: ignore[call-overload]


def fits_of_trees(model: Any, x: Any, y: Any, wait: bool) -> None:
    assert_type(dt.fit(model, x, y, qid=y, eval_set=[(x, y)], base_margin=y), dt.FitResult)
    assert_type(dt.fit(model, x, y, qid=y, eval_metric="auc", wait=False), dt.Run[dt.FitResult])
    assert_type(dt.fit(model, x, y, init_score=y, wait=wait), dt.FitResult | dt.Run[dt.FitResult])
    dt.fit(model, x, y, base_margin=y, init_score=y)  # type: ignore[call-overload]
    dt.fit(model, x, y, qid=y, epochs=3)  # type: ignore[call-overload]


def others() -> None:
    assert_type(dt.start_tensorflow(ps=1, worker=2), dt.TensorFlowNetwork)
    assert_type(dt.get_dataset("mnist"), dt.PublishedDataset)
    assert_type(dt.list_datasets(), tuple[str, ...])
    assert_type(dt.board("scores"), dt.Board)


def mistakes(model: Any, x: Any) -> None:
    """Each line is an error, or mypy says that its comment is not needed."""
    dt.fit(model, x, epoch=5)  # type: ignore[call-overload]
    dt.fit(model, x, batch_size="64")  # type: ignore[call-overload]
    dt.fit(model, x).results  # type: ignore[attr-defined]  # noqa: B018
    dt.train(worker, wait="no")  # type: ignore[call-overload]
    dt.train(worker, roles=["worker"])  # type: ignore[call-overload]
    dt.train(3)  # type: ignore[call-overload]
