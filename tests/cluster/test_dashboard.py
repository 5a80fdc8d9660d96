"""The page of runs and their metrics, from a scheduler in which dask-train can't be imported, behind a prefix."""

from __future__ import annotations

import asyncio
import json
import os
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import numpy as np
import pytest
from distributed import Client

import dask_train as dt

pytest.importorskip("bokeh")
pytest.importorskip("prometheus_client")

from bokeh.client import pull_session
from bokeh.models import ColumnDataSource
from tornado.ioloop import IOLoop

LOSSES = [3.0, 2.0, 1.0]


@pytest.fixture(scope="module")
def apart(tmp_path_factory, dask_process, hide_module):
    """A client of two Dask workers, and where the scheduler's dashboard is."""
    tmp_path = tmp_path_factory.mktemp("apart")
    (tmp_path / "hidden").mkdir()
    hide_module("dask_train", tmp_path / "hidden")
    file = str(tmp_path / "scheduler.json")
    page = ["--dashboard-address", "127.0.0.1:0", "--dashboard-prefix", "/a/proxy"]
    # Not checked for what it leaves: the test reads pages with bokeh's client, which leaves an event loop.
    with ExitStack() as stack:
        stack.enter_context(
            dask_process("scheduler", "--port", "0", "--scheduler-file", file, *page, path=tmp_path / "hidden")
        )
        options = ["--scheduler-file", file, "--nworkers", "2", "--nthreads", "1", "--death-timeout", "60"]
        stack.enter_context(dask_process("worker", *options, "--local-directory", str(tmp_path), path=tmp_path))
        with Client(scheduler_file=file) as client:
            client.wait_for_workers(2, timeout=60)
            yield client, f"http://127.0.0.1:{client.scheduler_info()['services']['dashboard']}/a/proxy"


def get(url):
    with urllib.request.urlopen(url, timeout=30) as answer:  # noqa: S310 - of the cluster above
        return answer.read().decode()


def trains(session):
    for step, loss in enumerate(LOSSES):
        session.report(step=step, loss=loss)
    session.receive(60)


def sources(url):
    """The data behind the tables and charts of a page, as a browser gets it."""
    with ThreadPoolExecutor(1) as pool:  # whose thread has an event loop of its own, whatever this one's is
        return pool.submit(sources_here, url).result(60)


def sources_here(url):
    loop = IOLoop(make_current=False)
    asyncio.set_event_loop(loop.asyncio_loop)
    session = pull_session(url=url, io_loop=loop)
    try:
        return [dict(model.data) for model in session.document.select({"type": ColumnDataSource})]
    finally:
        session.close()
        loop.run_sync(loop.asyncio_loop.shutdown_default_executor)  # its threads
        loop.close()


def test_a_run_is_seen_while_it_goes_on_and_afterwards(apart):
    client, url = apart
    run = dt.train(trains, roles={"worker": 2}, client=client, wait=False)
    scores = iter(run.scores())
    for _ in range(2 * len(LOSSES)):
        next(scores)
    assert 'href="train"' in get(f"{url}/status"), "in the navigation bar of Dask's own pages"
    assert json.loads(get(f"{url}/individual-plots.json"))["Individual Train"] == "/individual-train"
    for path in ("train", "individual-train"):
        seen = sources(f"{url}/{path}")
        assert [data["run"] for data in seen if "scores" in data] == [[run.id]]
        (curves,) = [data for data in seen if {"dash", "alpha"} <= data.keys()]
        assert list(map(list, curves["ys"])) == [LOSSES, LOSSES]
    metrics = get(f"{url}/metrics")
    assert "\ndask_train_runs_started_total 1.0\n" in metrics
    assert "\ndask_train_scores_total 6.0\n" in metrics
    run.send("go on")
    run.result(60)
    assert '\ndask_train_runs_ended_total{ending="ok"} 1.0\n' in get(f"{url}/metrics")
    (table,) = [data for data in sources(f"{url}/train") if "scores" in data]
    assert list(table["phase"]) == ["its training roles have returned"]
    assert '\ndask_train_role_seconds_total{activity="client",rank="0",role="worker"} ' in get(f"{url}/metrics")
    for port in client.run(http_port).values():
        assert "\ndask_train_template_processes " in get(f"http://127.0.0.1:{port}/metrics")


def http_port(dask_worker):
    return dask_worker.http_server.port


def goes_on_unevenly(session):
    """Steps in which the ranks meet, until the run stops; the second one is slow."""
    print("it begins", flush=True)
    for step, _ in enumerate(session.batches(epochs=100_000, batch_size=64)):
        if session.all_reduce(float(session.should_stop()), "max"):
            return
        time.sleep(0.1 if session.rank == 1 else 0.01)
        session.report(step=step, loss=1 / (1 + step + session.rank), accuracy=step / (1 + step))


RUNS = "deep('.slick-cell').filter(cell => cell.textContent === {run!r}).length"
MODELS = "[...Bokeh.documents[0]._all_models.values()]"
POINTS = f"Math.max(0, ...{MODELS}.map(model => (model.data?.ys?.[0] ?? []).length))"
TAKEN = "[...model.data['rows/s'], ...model.data.rows, ...model.data.memory, ...model.data.CPU]"


def others_before(client):
    """Runs that are over, and a search."""
    optuna = pytest.importorskip("optuna")
    optuna.logging.disable_default_handler()
    from sklearn.linear_model import SGDClassifier

    x = np.random.default_rng(0).normal(size=(400, 5))

    def build(trial):
        rate, loss = trial.suggest_float("alpha", 1e-5, 1e-1, log=True), trial.suggest_categorical("loss", LOSS_NAMES)
        return SGDClassifier(alpha=rate, loss=loss, eta0=trial.suggest_float("eta0", 1e-3, 1.0), max_iter=10_000)

    def fails(session):
        session.report(step=4, loss=0.2)
        raise ValueError("no such column")

    dt.train(lambda session: session.report(step=9, loss=0.05), roles={"worker": 2}, client=client, name="short")
    with pytest.raises(dt.RoleFailedError):
        dt.train(fails, roles={"worker": 1}, client=client)
    dt.search(build, x, (x[:, 0] + x[:, 1] > 0).astype(int), cv=3, trials=14, client=client)


LOSS_NAMES = ("hinge", "log_loss", "modified_huber")


def behind(proxy, url):
    """The same page behind a proxy of the path."""
    host, _, path = url.removeprefix("http://").partition("/")
    return f"{proxy}/{host.rpartition(':')[2]}/{path}"


def sees_it_move(page, run):
    page.until(RUNS.format(run=run.id))
    seen = page.until(POINTS)
    page.until(f"{POINTS} > {seen}")


def test_a_reader_sees_a_run_live_looks_into_it_and_stops_it(apart, browser, path_proxy):
    (client, url), page = apart, browser
    folder = os.environ.get("DASK_TRAIN_PICTURES")  # of the documentation
    if folder:
        others_before(client)
    run = dt.train(goes_on_unevenly, roles={"worker": 2}, data=np.zeros((640, 2)), client=client, wait=False)
    next(iter(run.scores()))
    proxied = behind(path_proxy, url)
    plots = json.loads(get(f"{proxied}/individual-plots.json"))  # what JupyterLab's extension asks for, and opens
    page.open(proxied + plots["Individual Train"])
    sees_it_move(page, run)
    page.open(f"{proxied}/train")
    sees_it_move(page, run)
    links = page.tell("[...document.querySelectorAll('.navbar a')].map(link => link.href)")
    links = [link for link in links if link.startswith("http://127.0.0.1")]
    assert len(links) > 10
    assert [link for link in links if not link.startswith(f"{proxied}/")] == []
    page.until("deep('b').some(text => text.textContent.startsWith('worker 1 holds the others up'))")
    page.until(f"{MODELS}.some(model => model.data?.CPU?.length === 2 && {TAKEN}.every(Boolean))")
    if folder:
        waits = dt.train(trains, roles={"worker": 1}, client=client, wait=False, name="waits")
        page.until(RUNS.format(run=waits.id))
        page.picture(Path(folder) / "dashboard.png", height=1700)
        waits.stop()
    page.press("Show its stacks")
    page.until("deep('pre').some(text => text.textContent.includes('goes_on_unevenly'))")
    assert page.tell("deep('pre').some(text => text.textContent.match(/It printed last:[^]*it begins/))")
    page.press(f"Stop {run.id}")
    page.press("Press again")
    assert run.result(60).stop_reason == "it was stopped on the dashboard"
    client.run_on_scheduler(forget_runs)
    page.until(f"!{RUNS.format(run=run.id)}")
    assert page.errors == []


CHOICE = f"{MODELS}.find(model => model.type === 'MultiChoice')"
TABLE = "deep('table').find(table => table.textContent.includes('Settings that differ'))?.textContent ?? ''"

CELL = "getComputedStyle(deep('.slick-row')[0]).backgroundColor.match(/[0-9]+/g).slice(0, 3)"


def learns(session, rate):
    for epoch in range(5):
        for _ in session.batches(batch_size=64):
            pass
        loss = (1 - rate) ** epoch
        session.report(epoch=epoch, loss=loss, val_loss=0.05 + loss, accuracy=rate * epoch)


def test_a_reader_compares_runs_that_are_over(apart, browser):
    (client, url), page = apart, browser
    for workers, rate in ((1, 0.1), (2, 0.2)):
        roles = {"worker": workers}
        told = {"data": np.zeros((6400, 2)), "name": f"rate-{workers}", "client": client, "progress": False}
        dt.train(partial(learns, rate=rate), roles=roles, **told)
    page.open(f"{url}/train")
    names = page.until(f"{CHOICE}?.options.filter(name => name.startsWith('rate-')).sort()")
    page.tell(f"void ({CHOICE}.value = {json.dumps(names)})")
    table = page.until(TABLE)
    assert "loss, lowest0.6561 at epoch 40.4096 at epoch 4" in table
    assert "worker12" in table
    assert "rows trained32,00032,000" in table
    page.until(f"{MODELS}.some(model => model.data?.run?.length === 4 && model.data.dash?.includes('dashed'))")
    if folder := os.environ.get("DASK_TRAIN_PICTURES"):
        page.picture(Path(folder) / "dashboard_compare.png", width=1280, height=1010)
    assert page.tell(f"{CELL}.every(shade => shade > 200)")
    page.make_dark()
    page.until(f"{CELL}.every(shade => shade < 80)")
    assert page.errors == []


# A page of another origin asks for ours in a way that bokeh knows, looks for buttons, and presses each twice.
STRANGER = """
const claims = {session_id: name, session_expiry: 4e9, headers: {}, cookies: {}, arguments: {}};
const token = btoa(JSON.stringify(claims)).replaceAll('+', '-').replaceAll('/', '_').replace(/=+$/, '');
const models = part => part === null || typeof part !== 'object' ? [] : [
    ...(part.name === 'Button' ? [part] : []), ...Object.values(part).flatMap(models)];
const loaded = fetch(`${page}?${query.replace('TOKEN', token)}`, {mode: 'no-cors'});
return loaded.then(() => new Promise((resolve, reject) => {
    const socket = new WebSocket(`${page.replace('http', 'ws')}/ws`, ['bokeh', token]);
    const send = (kind, content) => [{msgid: kind, msgtype: kind}, {}, content].forEach(
        part => socket.send(JSON.stringify(part)));
    const press = ({id}) => send('PATCH-DOC', {events: [{kind: 'MessageSent', msg_type: 'bokeh_event', msg_data: {
        type: 'event', name: 'button_click', values: {type: 'map', entries: [['model', {id}]]}}}]});
    socket.onerror = socket.onclose = () => reject('closed');
    socket.onmessage = ({data}) => {
        const told = JSON.parse(data);
        if (told.msgtype === 'ACK') send('PULL-DOC-REQ', {});
        if (told.doc === undefined) return;
        const stop = models(told.doc).filter(({attributes}) => attributes.label.match(/^(Stop|Press)/));
        stop.forEach(press); stop.forEach(press);
        setTimeout(() => resolve({stop: stop.length, reads: data.includes(run)}), 1000);
    };
}));
"""
WAYS = {"named": "bokeh-session-id=named", "token": "bokeh-token=TOKEN", "socket": "theme=plain"}


def test_a_page_of_another_origin_stops_no_run(apart, browser, blank_page):
    (client, url), page = apart, browser
    run = dt.train(trains, roles={"worker": 1}, client=client, wait=False)
    next(iter(run.scores()))
    page.load(blank_page)
    for name, query in WAYS.items():
        told = json.dumps([name, query, f"{url}/train", run.id])
        page.tell(
            f"void (((name, query, page, run) => {{ {STRANGER} }})(...{told})"
            f".then(told => window[{name!r}] = told, error => window[{name!r}] = {{error: `${{error}}`}}))"
        )
        answer = page.until(f"window[{name!r}]")
        assert answer == {"stop": 0, "reads": True}, "it may read, as of all of Dask's pages"
    assert run.status()["phase"] == "running"
    run.send("go on")
    assert run.result(60).stop_reason != "it was stopped on the dashboard"


@pytest.fixture
def blank_page():
    """The address of a page without anything, of an origin of its own."""
    handler = type("Blank", (BaseHTTPRequestHandler,), {"do_GET": blank, "log_message": lambda *_: None})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()
        thread.join()


def blank(handler):
    handler.send_response(200)
    handler.send_header("Content-Type", "text/html")
    handler.end_headers()


def forget_runs(dask_scheduler):
    """As the scheduler does with the oldest of many."""
    dask_scheduler.plugins["dask-train"].run_requests.runs.records.clear()
