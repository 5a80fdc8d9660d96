"""What the doctor concludes from what a cluster told."""

from __future__ import annotations

import pytest

from dask_train.doctor.diagnosis import diagnose
from dask_train.doctor.examined import Clock, Examination, Route

GIB = 2**30
VERSIONS = {
    "python": "3.11.7",
    "dask_train": "0.1.0",
    "numpy": "2.3.0",
    "tensorflow": "2.21.0",
    "distributed": "2026.8.0",
}
WELL = {
    "asked_at": 0.0,
    "answered_at": 0.0,
    "versions": VERSIONS,
    "host": "east",
    "status": "running",
    "threads": 2,
    "has_nanny": True,
    "memory_limit": 8 * GIB,
    "memory_used": GIB,
    "cgroup": "/job_1",
    "cgroup_limit": 64 * GIB,
    "cgroup_used": 2 * GIB,
    "shm_free": 4 * GIB,
    "has_memfd": True,
    "has_pidfd": True,
    "gpus": [],
    "gpu_problem": "",
    "cuda_visible_devices": None,
    "omp_num_threads": None,
    "open_files": 65536,
    "templates": [],
}


def told(**differences):
    versions = {**VERSIONS, **differences.pop("versions", {})}
    return {**WELL, "versions": {name: one for name, one in versions.items() if one}, **differences}


def cluster(*workers, here=WELL, address="tcp://s:1", scheduler=(VERSIONS, True), **more):
    return Examination(
        address=address,
        here=here,
        scheduler=scheduler,
        workers={f"tcp://w:{i}": one for i, one in enumerate(workers)},
        **more,
    )


def worse_than_ok(examination):
    return [finding for finding in diagnose(examination) if finding.level != "ok"]


def test_a_cluster_that_is_well_has_nothing_to_change():
    clocks = {"tcp://w:0": Clock(0.1, 0.01)}
    routes = (Route(start="tcp://w:0", to="tcp://w:1", problem=""),)
    findings = diagnose(cluster(told(), told(host="west"), clocks=clocks, routes=routes))
    assert {finding.level for finding in findings} == {"ok"}
    assert not any(finding.change for finding in findings)
    text = "\n".join(finding.what for finding in findings)
    for part in (
        "tensorflow is installed on all 2",
        "No GPUs on 2 hosts",
        "Clocks agree",
        "reached between hosts (1 tried",
    ):
        assert part in text
    assert "The scheduler has dask-train's plug-in." in text


@pytest.mark.parametrize(
    ("differences", "level", "what"),
    [
        ({"status": "paused"}, "bad", "1 of 2 Dask workers (tcp://w:1) is paused and takes no tasks."),
        ({"status": "closing_gracefully"}, "bad", "1 of 2 Dask workers (tcp://w:1) is closing_gracefully"),
        ({"versions": {"dask_train": None}}, "bad", "dask_train is not installed on 1 of 2 Dask workers (tcp://w:1)."),
        (
            {"versions": {"dask_train": "0.2.0"}},
            "bad",
            "dask_train is 0.2.0 on 1 of 2 Dask workers (tcp://w:1) and 0.1.0 here",
        ),
        ({"versions": {"python": "3.12.1"}}, "bad", "python is 3.12 on 1 of 2 Dask workers (tcp://w:1) and 3.11 here."),
        (
            {"versions": {"numpy": "1.26.0"}},
            "warn",
            "numpy is 1.26.0 on 1 of 2 Dask workers (tcp://w:1) and 2.3.0 here.",
        ),
        ({"versions": {"tensorflow": "2.20.0"}}, "warn", "tensorflow is 2.20.0 on 1 of 2"),
        ({"versions": {"tensorflow": None}}, "warn", "tensorflow is missing on 1 of 2 Dask workers (tcp://w:1)."),
        ({"memory_used": 6 * GIB}, "warn", "More than 70% of its memory is used on 1 of 2 Dask workers (tcp://w:1)."),
        ({"cgroup_used": 60 * GIB}, "warn", "More than 70% of the container's memory is used on 1 of 2"),
        (
            {"cgroup_limit": 10 * GIB},
            "warn",
            "Dask workers on east may use 16.00 GiB, but their container has 10.00 GiB",
        ),
        ({"open_files": 256}, "warn", "Fewer than 1024 files may be open on 1 of 2"),
        ({"has_nanny": False}, "warn", "1 of 2 Dask workers (tcp://w:1) has no nanny: start_tensorflow needs one"),
        ({"has_memfd": False}, "warn", "memfd_create (memory that is shared without files) fails on 1 of 2"),
        ({"has_pidfd": False}, "warn", "pidfd_open (a process watched without races) fails on 1 of 2"),
        ({"gpu_problem": "it hangs"}, "warn", "The GPUs of 1 of 2 Dask workers (tcp://w:1) are not known: it hangs."),
    ],
)
def test_a_dask_worker_that_differs(differences, level, what):
    [finding] = worse_than_ok(cluster(told(), told(**differences)))
    assert finding.level == level
    assert finding.what.startswith(what)
    assert finding.change


@pytest.mark.parametrize(
    "differences",
    [
        {"versions": {"python": "3.11.2"}},
        {"memory_limit": None, "memory_used": 6 * GIB, "cgroup_limit": None},
        {"open_files": -1},  # no limit
        {"versions": {"torch": None}},  # nowhere
    ],
)
def test_what_is_no_problem(differences):
    assert worse_than_ok(cluster(told(), told(**differences))) == []


def test_versions_are_compared_with_most_where_the_client_has_none():
    here = told(versions={"tensorflow": None})
    others = [told(), told(versions={"tensorflow": "2.20.0"}), told()]
    [finding] = worse_than_ok(cluster(*others, here=here))
    assert finding.what == "tensorflow is 2.20.0 on 1 of 3 Dask workers (tcp://w:1) and 2.21.0 on the others."


@pytest.mark.parametrize(
    ("examination", "level", "what"),
    [
        (cluster(), "bad", "The cluster has no Dask worker."),
        (
            cluster(told(), silent={"tcp://x:1": "no answer within 10 s"}),
            "bad",
            "1 of 2 Dask workers (tcp://x:1) could not be asked: no answer within 10 s.",
        ),
        (cluster(told(), scheduler="no answer"), "bad", "The scheduler did not say its versions: no answer."),
        (
            cluster(told(), scheduler=({**VERSIONS, "python": "3.13.0"}, True)),
            "bad",
            "python is 3.13 on the scheduler and 3.11 here.",
        ),
        (
            cluster(told(), scheduler=({**VERSIONS, "distributed": "2025.1.0"}, True)),
            "warn",
            "distributed is 2025.1.0 on the scheduler and 2026.8.0 here.",
        ),
        (
            cluster(told(), clocks={"tcp://w:0": Clock(-3.02, 0.1)}),
            "warn",
            "The clock of 1 of 1 Dask workers (tcp://w:0) differs from the one here by up to 3.0 s.",
        ),
        (
            cluster(told(), routes=(Route(start="tcp://w:0", to="tcp://v:1", problem="refused"),)),
            "bad",
            "tcp://w:0 can't connect to a port that tcp://v:1 opened: refused.",
        ),
        (cluster(told(), address="tls://s:1"), "warn", "Dask's connections use TLS, but TensorFlow's own ports"),
        (
            cluster(told(versions={"tensorflow": None}), here=told(versions={"tensorflow": None})),
            "warn",
            "No framework is installed on all 1 Dask workers that answered",
        ),
    ],
)
def test_a_cluster_with_a_problem(examination, level, what):
    [finding] = worse_than_ok(examination)
    assert finding.level == level
    assert finding.what.startswith(what)
    assert finding.change


@pytest.mark.parametrize(("cgroup", "count"), [("/job_1", 1), ("/job_2", 0)])
def test_limits_are_summed_within_one_control_group(cgroup, count):
    assert len(worse_than_ok(cluster(told(cgroup_limit=10 * GIB), told(cgroup_limit=10 * GIB, cgroup=cgroup)))) == count


@pytest.mark.parametrize("framework", ["jax", "xgboost", "lightgbm", "sklearn"])
def test_any_framework_counts_and_its_versions_are_compared(framework):
    alone = told(versions={"tensorflow": None, framework: "3.0"})
    assert worse_than_ok(cluster(alone, here=alone)) == []
    other = told(versions={"tensorflow": None, framework: "3.1"})
    [finding] = worse_than_ok(cluster(alone, other, here=alone))
    assert finding.what == f"{framework} is 3.1 on 1 of 2 Dask workers (tcp://w:1) and 3.0 here."


def test_the_worst_comes_first():
    findings = diagnose(cluster(told(status="paused"), told(open_files=10)))
    assert [finding.level for finding in findings[:3]] == ["bad", "warn", "ok"]


def test_many_dask_workers_are_not_all_named():
    [finding] = worse_than_ok(cluster(*[told(open_files=10, cgroup_limit=None)] * 100))
    assert finding.what.endswith("on 100 of 100 Dask workers (tcp://w:0, tcp://w:1, tcp://w:2, tcp://w:3 and 96 more).")


def test_this_machine_alone():
    findings = diagnose(
        Examination(address="", here=told(versions={"tensorflow": None}, open_files=10, gpus=["a", "b"]))
    )
    whats = [finding.what for finding in findings]
    assert whats[0].startswith("No framework is installed on this machine")
    assert whats[1] == "Fewer than 1024 files may be open on this machine."
    assert "2 GPUs on 1 host." in whats
    assert "has 4.00 GiB free" in whats[-1]


def test_frameworks_that_use_no_gpu_are_told_by_host():
    sights = {"east": {"torch": "", "keras": "", "jax": "it finds none"}, "west": "no answer within 1 s"}
    findings = {finding.what: finding for finding in diagnose(cluster(told(), sights=sights)) if "GPU" in finding.what}
    assert findings["jax uses no GPU on east: it finds none."].change.startswith("Install jax for CUDA there")
    assert findings["Whether frameworks use the GPUs of west is not known: no answer within 1 s."].level == "warn"
    assert findings["GPUs of east are used by torch, keras."].level == "ok"
    (none,) = [finding for finding in diagnose(cluster(told())) if "GPU" in finding.what]
    assert none.what == "No GPUs on 1 host.", "without any, it says so in a line"


def test_templates_are_shown():
    ours, theirs = ([{"imports": name} for name in names] for names in (("tensorflow", "torch"), ("torch",)))
    findings = diagnose(cluster(told(templates=ours), told(templates=theirs), told()))
    whats = [finding.what for finding in findings if "emplate" in finding.what]
    assert whats == [
        "Templates of processes on 2 Dask workers: tensorflow, torch; each ends when unused for train.template.idle."
    ]
