"""What is drawn of each program of the gallery, from what its functions had when they returned."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from figures import BLUE, COLOURS, GREEN, GREY, RED, alike, bars, charts
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter
from recording import Look

Calls = list[Any]


class Drawing(NamedTuple):
    """How a program's picture is drawn.

    Attributes
    ----------
    looks
        What is kept of the variables of which functions.
    draw
        Makes a figure of the calls of each of these, and of what was printed where it ``reads`` that.
    """

    looks: Mapping[str, Look]
    draw: Callable[..., Figure]
    reads: bool


DRAWINGS: dict[str, Drawing] = {}


def kept(variables: Mapping[str, Any]) -> SimpleNamespace:
    """All variables, as attributes."""
    return SimpleNamespace(**variables)


def of(*programs: str, reads: bool = False, **looks: Look) -> Callable[[Callable[..., Figure]], Callable[..., Figure]]:
    """Draw these programs with the function below."""

    def registered(draw: Callable[..., Figure]) -> Callable[..., Figure]:
        DRAWINGS.update(dict.fromkeys(programs, Drawing(looks, draw, reads)))
        return draw

    return registered


@of("admm", main=kept)
def lasso(main: Calls) -> Figure:
    found, plain = main[-1].found["coef"], main[-1].plain.coef_
    apart = [score["apart"] for score in main[-1].result.scores]
    figure, (left, right) = charts(2)
    left.semilogy(range(1, len(apart) + 1), apart, color=BLUE, marker=".")
    left.set(title="how far ranks are apart", xlabel="iteration")
    right.plot(plain, "o", color=GREY, mfc="none", ms=6, label="scikit-learn")
    right.plot(found, ".", color=BLUE, ms=5, label="two ranks")
    right.set(title="coefficients", xlabel="column")
    right.legend()
    return figure


def reported_losses(variables: Mapping[str, Any]) -> list[tuple[int, float]]:
    """Worker and loss of each block so far; the board is deleted later."""
    return [(report["worker"], report["loss"]) for report in variables["self"].reports if "loss" in report]


@of("between_graph_softmax", rows_by_worker=reported_losses)
def killed_and_resumed(boards: Calls) -> Figure:
    _, until_kill, resumed = boards
    figure, (axes,) = charts()
    for begin, losses in ((0, until_kill), (len(until_kill), resumed)):
        for worker in sorted({worker for worker, _ in losses}):
            points = [(begin + at + 1, loss) for at, (of, loss) in enumerate(losses) if of == worker]
            axes.plot(*zip(*points, strict=True), ".-", color=COLOURS[worker], lw=1, ms=4, label=f"worker {worker}")
    axes.axvline(len(until_kill) + 0.5, color=RED, ls="--", lw=1)
    axes.annotate(
        "a parameter server is killed;\nall go on from the checkpoint",
        (len(until_kill), axes.get_ylim()[1]),
        ha="right",
        va="top",
        fontsize=8,
        color=RED,
    )
    axes.set(title="loss", xlabel="blocks of 500 rows")
    names = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    axes.legend(handles=names.values(), labels=names.keys(), loc="upper right")
    return figure


@of("ensemble", main=kept)
def together(main: Calls) -> Figure:
    each = {f"model {number}": accuracy for number, accuracy in enumerate(main[-1].accuracies)}
    values = {**each, "mean of weights": main[-1].averaged, "mean of predictions": main[-1].voted}
    figure = bars(values, "{:.1%}", low=0.5, marked="mean of predictions")
    figure.axes[0].set_title("test accuracy")
    figure.axes[0].xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    return figure


@of("flights", main=kept)
def roc_of_delays(main: Calls) -> Figure:
    from sklearn.metrics import roc_curve

    inputs, late = main[-1].held_out
    figure, (axes,) = charts()
    chances = {"two workers": main[-1].model, "one process": main[-1].alone}
    told = {name: model.predict(inputs, batch_size=4096, verbose=0).ravel() for name, model in chances.items()}
    told["delay at departure alone"] = inputs["numbers"][:, 0]
    areas = (main[-1].area_together, main[-1].area_alone, main[-1].area_of_delay)
    looks = ({"color": BLUE, "lw": 3, "alpha": 0.5}, {"color": RED, "lw": 1}, {"color": GREY, "lw": 1})
    for (name, values), area, look in zip(told.items(), areas, looks, strict=True):
        wrong, right, _ = roc_curve(late, values)
        axes.plot(wrong, right, label=f"{name}: AUC {area:.3f}", **look)
    axes.set(xlabel="flights on time that are told late", ylabel="late flights that are told")
    axes.legend()
    return figure


@of("functional", show=kept)
def both_questions(shown: Calls) -> Figure:
    figure, axes = charts(2)
    titles = {"val_larger_accuracy": "which is larger: accuracy", "val_sum_mae": "their sum: mean error"}
    looks = ({"color": BLUE, "lw": 4, "alpha": 0.4}, {"color": RED, "lw": 1, "marker": "."})
    for chart, (name, title) in zip(axes, titles.items(), strict=True):
        for label, call, look in zip(("two workers", "one process"), shown, looks, strict=True):
            chart.plot(range(1, 1 + len(call.history[name])), call.history[name], label=label, **look)
        chart.set(title=title, xlabel="epoch")
        chart.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes[0].legend()
    return figure


@of("in_graph", training=kept)
def towers(training: Calls) -> Figure:
    figure, (axes,) = charts()
    losses = training[-1].losses
    axes.plot(range(1, len(losses) + 1), losses, color=BLUE, marker=".")
    axes.set(title="loss of a tower on each of two tasks", xlabel="step")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.annotate(
        f"furthest weight from those\nof one process: {training[-1].worst:.0e}",
        (0.97, 0.95),
        xycoords="axes fraction",
        ha="right",
        va="top",
        fontsize=9,
    )
    return figure


@of("keras_mnist", synchronous=kept)
def confusion(synchronous: Calls) -> Figure:
    images, labels = synchronous[-1].arrays
    told = synchronous[-1].model.predict(images, batch_size=1000, verbose=0).argmax(axis=1)
    counts = np.zeros((10, 10), int)
    np.add.at(counts, (labels, told), 1)
    figure, (axes,) = charts()
    axes.imshow(np.log1p(counts), cmap="Blues")
    for row, column in np.argwhere(counts > 0):
        colour = "white" if row == column else "black"
        axes.text(column, row, counts[row, column], ha="center", va="center", fontsize=6, color=colour)
    axes.set(xticks=range(10), yticks=range(10), xlabel="told", ylabel="digit")
    axes.set_title(f"10,000 test digits, {np.trace(counts) / counts.sum():.1%} right")
    return figure


@of("kmeans", main=kept)
def clusters(main: Calls) -> Figure:
    x, centres, theirs = main[-1].x, main[-1].found["centres"], main[-1].plain.cluster_centers_
    middle = centres.mean(axis=0)
    plane = np.linalg.svd(centres - middle)[2][:2].T
    rows = x[np.random.default_rng(0).permutation(len(x))[:2500]]
    nearest = ((centres**2).sum(axis=1) - 2 * rows @ centres.T).argmin(axis=1)
    figure, (axes,) = charts()
    for number, colour in enumerate(COLOURS[: len(centres)]):
        axes.plot(*((rows[nearest == number] - middle) @ plane).T, ".", ms=3, alpha=0.4, color=colour, mew=0)
    axes.plot(*((theirs - middle) @ plane).T, "o", ms=11, mfc="none", mec="black", label="scikit-learn's centres")
    axes.plot(*((centres - middle) @ plane).T, "+", ms=8, mew=1.5, color="black", label="centres of two ranks")
    axes.set(title="ten columns, seen along two axes of their centres", aspect="equal", adjustable="datalim")
    axes.legend()
    return figure


@of("models_compared", main=kept)
def areas(main: Calls) -> Figure:
    found = dict(sorted(main[-1].areas.items(), key=lambda pair: -pair[1]))
    figure = bars(found, "{:.4f}", low=0.5, marked=next(iter(found)))
    figure.axes[0].set_title("area under the ROC curve, on days that were held out")
    return figure


@of("moving_models", main=kept)
def moved(main: Calls) -> Figure:
    numbers = [
        np.concatenate([np.ravel(variable) for variable in (*model.variables, *model.optimizer.variables[1:])])
        for model in (main[-1].stayed_model, main[-1].moved_model)
    ]
    return alike(*numbers, "trained in one place", "moved after two epochs", "weights and moments of Adam")


@of("pca", main=kept)
def components(main: Calls) -> Figure:
    found, plain = main[-1].found, main[-1].plain
    figure, (left, right) = charts(2, width_ratios=(1, 2))
    numbers = np.arange(1, 1 + len(found["variance"]))
    left.bar(numbers, found["variance"], color=BLUE)
    left.plot(numbers, plain.explained_variance_, "o", color=RED, mfc="none")
    left.set(title="variance", xlabel="component", xticks=numbers)
    for number, colour in ((0, BLUE), (1, GREEN)):
        right.plot(found["components"][number][:20], color=colour, label=f"component {number + 1}")
        theirs = "scikit-learn's" if number else None
        right.plot(plain.components_[number][:20], "o", color=RED, mfc="none", ms=5, label=theirs)
    right.set(title="of the first 20 columns", xlabel="column")
    right.xaxis.set_major_locator(MaxNLocator(integer=True))
    right.legend()
    return figure


@of("plain_search", reads=True)
def searched(said: str) -> Figure:
    told = re.findall(r"units +(\d+), rate +([\d.e-]+): test accuracy ([\d.]+)", said)
    figure, (axes,) = charts()
    for at, units in enumerate(sorted({int(units) for units, _, _ in told})):
        points = sorted((float(rate), float(accuracy)) for of, rate, accuracy in told if int(of) == units)
        axes.semilogx(*zip(*points, strict=True), marker="o", color=COLOURS[at], label=f"{units} units")
    rate, best = max(((float(rate), float(accuracy)) for _, rate, accuracy in told), key=lambda point: point[1])
    axes.plot(rate, best, "o", ms=13, mfc="none", mec=RED, label=f"the best: {best:.1%}")
    axes.set(title="test accuracy", xlabel="learning rate")
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.legend()
    return figure


@of("publish_and_train", reads=True)
def one_copy(said: str) -> Figure:
    rows, published, after = (
        float(re.search(pattern, said).group(1).replace(",", ""))  # type: ignore[union-attr]
        for pattern in (r"for ([\d,]+) MB of rows", r"shared memory: ([\d,]+) MB", r"both have trained: ([\d,]+) MB")
    )
    done = sorted(re.findall(r"worker (\d) is done; it takes [\d,]+ MB \(PSS\), ([\d,]+) MB", said))
    values = {"the rows": rows, "shared memory with them": published, "after two have trained": after}
    values |= {f"of it read by process {rank}": float(size.replace(",", "")) for rank, size in done}
    figure = bars(values, "{:,.0f} MB")
    figure.axes[0].set_title("nothing is copied")
    return figure


@of("torch_ddp", main=kept)
def same_losses(main: Calls) -> Figure:
    alone, together = main[-1].alone["losses"], main[-1].together["losses"]
    figure, (left, right) = charts(2)
    left.plot(alone, color=BLUE, lw=3, alpha=0.4, label="one worker")
    left.plot(together, color=RED, lw=0.8, label="two workers")
    left.set(title="loss", xlabel="step")
    left.legend()
    apart = np.abs(together - alone) / np.abs(alone).max()
    right.semilogy(np.where(apart, apart, np.nan), ".", ms=3, color=RED)
    right.set(title=f"how far apart; equal in {np.mean(apart == 0):.0%} of the steps", xlabel="step")
    return figure


@of("transfer_learning", main=kept, trained=kept)
def heads(main: Calls, trained: Calls) -> Figure:
    figure, (axes,) = charts()
    for label, call, colour in zip(("features of the network", "pixels"), trained, (BLUE, RED), strict=True):
        accuracy = call.result.history["val_accuracy"]
        axes.plot(range(1, 1 + len(accuracy)), accuracy, color=colour, label=f"a head on {label}")
    axes.axhline(main[-1].guessed, color=GREY, ls="--", lw=1, label="always the commonest kind")
    axes.set(title="accuracy on photographs that were held out", xlabel="epoch", ylim=(0, 1.02))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.legend()
    return figure


@of("loops-ddp", "loops-with_accelerate", "loops-with_lightning", "loops-with_transformers", main=kept)
def of_two_ranks(main: Calls) -> Figure:
    one, two = main[-1].alone[0]["weights"], main[-1].together[0]["weights"]
    return alike(np.ravel(one), np.ravel(two), "one rank", "two ranks", "weights")


@of("loops-fsdp2", main=kept)
def resharded(main: Calls) -> Figure:
    return alike(main[-1].expected, main[-1].found, "one rank", "two ranks, then one from their checkpoint", "weights")


@of("vineyard_keras", reads=True)
def of_one_object(said: str) -> Figure:
    told = sorted(
        (int(units), float(accuracy)) for units, accuracy in re.findall(r"(\d+) units: accuracy ([\d.]+)", said)
    )
    figure = bars({f"{units} units": accuracy for units, accuracy in told}, "{:.0%}")
    figure.axes[0].set_title("accuracy of two trainers on one object in Vineyard")
    return figure
