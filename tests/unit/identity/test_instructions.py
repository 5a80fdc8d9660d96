"""The instructions of functions."""

from __future__ import annotations

from dask_train.identity.instructions import assigned_names, code_digest, global_names, imported_names


def of(source: str, name: str = "f"):
    """The code of a function in a source."""
    names = {}
    exec(compile(source, f"/some/{len(source)}.py", "exec"), names)  # noqa: S102
    return names[name].__code__


def test_places_and_comments_count_for_nothing():
    assert code_digest(of("def f(x): return x + 1")) == code_digest(of("# Why\n\n\ndef f(x):\n    return x + 1  # so"))


def test_what_a_function_does_counts():
    sources = [
        "def f(x): return x + 1",
        "def f(x): return x + 2",
        "def f(x): return x + 2.0",
        "def f(x): return x - 1",
        "def f(y): return y + 1",
        "def f(x, /): return x + 1",
        "def f(x): return abs(x)",
        "def f(x): return max(x)",
        "def f(x): return x in {'a', 'b'}",
        "def f(x): return x in {'a', 'c'}",
        "def f(x): return lambda: x + 1",
        "def f(x): return lambda: x + 2",
    ]
    assert len({code_digest(of(source)) for source in sources}) == len(sources)


def test_names_that_a_function_looks_up():
    inner = "    def g():\n        from c import d\n        return late(d)\n"
    code = of(f"def f(x):\n    import a.b\n{inner}    return x.attribute")
    assert imported_names(code) == {"a.b", "c"}
    assert global_names(code) == {"late"}


def test_names_that_a_function_assigns():
    code = of("def f():\n    global a\n    a = b = 1\n    def g():\n        nonlocal b\n        b = 2\n    return g")
    assert assigned_names(code) == {"a"}
    assert assigned_names(code.co_consts[2]) == {"b"}
