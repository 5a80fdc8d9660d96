"""The documentation site is whole: each page, public name and example is found; releases say the same everywhere."""

from __future__ import annotations

import importlib
import importlib.util
import re
import tomllib
import warnings
from pathlib import Path
from types import ModuleType

import pytest

import dask_train
from dask_train import linear_model

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
MADE = ("_build", "gallery", "generated", "jupyter_execute")  # by `make docs`
PAGES = sorted(
    page for page in (*DOCS.rglob("*.md"), *DOCS.rglob("*.ipynb")) if page.relative_to(DOCS).parts[0] not in MADE
)
PUBLIC_MODULES = ["dask_train", *(f"dask_train.{name}" for name in ("linear_model", "sklearn", "logging", "testing"))]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]


def extension(name: str) -> ModuleType:
    """An extension of Sphinx in `docs/_extensions`, as a module."""
    spec = importlib.util.spec_from_file_location(name, DOCS / "_extensions" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Sphinx's own imports
        spec.loader.exec_module(module)
    return module


def pages_below(page: Path) -> set[Path]:
    """The pages in the toctrees of a page, and in theirs; an entry without a page is an error."""
    found: set[Path] = set()
    for block in re.findall(r"```\{toctree\}\n(.*?)```", page.read_text(), flags=re.DOTALL):
        entries = [line for line in block.splitlines() if line and not line.startswith(":")]
        for entry in entries:
            name = re.sub(r".*<(.*)>$", r"\1", entry)
            if name.partition("/")[0] in MADE:
                continue
            pages = {below for suffix in ("md", "ipynb") for below in page.parent.glob(f"{name}.{suffix}")}
            assert pages, f"{page.name} has {name} in a toctree, which is not there"
            found |= pages.union(*(pages_below(below) for below in pages))
    return found


def test_each_page_is_in_a_toctree() -> None:
    index = DOCS / "index.md"
    assert sorted({index} | pages_below(index)) == PAGES


def test_no_page_has_the_name_of_one_that_sphinx_makes() -> None:
    assert {page.stem for page in DOCS.glob("*.md")}.isdisjoint({"search", "genindex", "py-modindex"})


@pytest.mark.parametrize("page", [*PAGES, *sorted(ROOT.glob("*.md"))], ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files(page: Path) -> None:
    text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(), flags=re.DOTALL)
    links = [link for link in re.findall(r"\]\(([^)#\s]+)", text) if "://" not in link]
    made = [link for link in links if link.split("/")[0] in MADE]
    assert [link for link in links if link not in made and not (page.parent / link).exists()] == []


@pytest.mark.parametrize("module", PUBLIC_MODULES)
def test_each_public_name_is_in_the_reference(module: str) -> None:
    listed: list[str] = []
    for block in re.findall(r"```\{eval-rst\}\n(.*?)```", (DOCS / "api.md").read_text(), flags=re.DOTALL):
        if f".. currentmodule:: {module}\n" in block:
            listed += re.findall(r"^   (\w+)$", block, flags=re.MULTILINE)
    names = {name for name in importlib.import_module(module).__all__ if name != "__version__"}
    assert sorted(listed) == sorted(names)


def test_each_example_has_a_page_of_its_own() -> None:
    gallery = extension("gallery")
    shown = [example for _, folder, _ in gallery.SECTIONS for example in gallery.examples_in(folder)]
    assert {example.path for example in shown} == {
        path for path in (ROOT / "examples").rglob("*.py") if path.parent.name != "readers"
    }
    assert len({example.page for example in shown}) == len({example.title for example in shown}) == len(shown)
    index = gallery.index()
    pictures = {path.stem: path.stat().st_size for path in gallery.PICTURES.glob("*.png")}
    assert pictures.keys() == {example.page for example in shown}
    assert [name for name, size in pictures.items() if size > 60_000] == []
    for example in shown:
        assert not example.picture or f".. image:: {example.picture}" in index
        assert f"<{example.page}>`" in index
        assert "literalinclude" in gallery.page_of(example)
        assert not example.summary.endswith(":"), example.path.name


def test_an_example_without_a_docstring_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "bare.py").write_text("print(1)\n")
    with pytest.raises(ValueError, match=r"bare\.py has no docstring"):
        extension("gallery").read_example(tmp_path / "bare.py")


def test_links_to_the_repository_lead_to_pages_of_the_site() -> None:
    relink = extension("repository_links").relink
    assert relink("keras", "[a](../examples/flights.py), [b](data.md#x)") == "[a](gallery/flights.rst), [b](data.md#x)"
    assert relink("bring-your-own-loop", "[all](../examples/loops)") == "[all](gallery/index.rst)"
    assert relink("x", "[ddp](../examples/loops/ddp.py)") == "[ddp](gallery/loops-ddp.rst)"
    assert relink("design/x", "[a](../faults.md) [b](../../CHANGELOG.md)") == "[a](../faults.md) [b](../changes.md)"
    with pytest.raises(KeyError, match="Makefile"):
        relink("x", "[make](../Makefile)")
    for page in PAGES:
        relink(str(page.relative_to(DOCS).with_suffix("")), page.read_text())


def test_releases_say_the_same_everywhere() -> None:
    recipe, citation = (ROOT / "conda.recipe" / "meta.yaml").read_text(), (ROOT / "CITATION.cff").read_text()
    (version,) = re.findall(r"^version: ([\d.]+)$", citation, re.M)
    assert f'set version = "{version}"' in recipe
    assert (ROOT / "CHANGELOG.md").read_text().startswith(f"# Changes\n\n## {version} (")
    assert PYPROJECT["tool"]["hatch"]["version"]["fallback-version"] == f"{version}.dev0"
    host = {
        line.lstrip(" -").replace(" ", "")
        for line in recipe.partition("  host:\n")[2].partition("  run:\n")[0].splitlines()
    }
    assert host == {*PYPROJECT["build-system"]["requires"], "pip", f"python{PROJECT['requires-python']}"}
    run = recipe.partition("  run:\n")[2].partition("\n  run_constrained:")[0]
    theirs = dict(re.findall(r"- ([\w-]+) >=([\d.]+)", run))
    ours = dict(re.fullmatch(r"([\w-]+)(?:\[.*\])?>=([\d.]+)", line).groups() for line in PROJECT["dependencies"])  # type: ignore[union-attr]
    expected = {"dask-core" if name == "dask" else name: floor for name, floor in ours.items()}
    assert theirs == expected | {"distributed": ours["dask"], "python": PROJECT["requires-python"].removeprefix(">=")}


def test_the_versions_of_make_minimum_are_the_lowest_that_are_allowed() -> None:
    extras = [
        line
        for name, its in PROJECT["optional-dependencies"].items()
        if name not in ("docs", "dev", "vineyard")
        for line in its
    ]
    floors = dict(re.findall(r"^([\w-]+)(?:\[.*\])?>=([\d.]+)$", "\n".join([*PROJECT["dependencies"], *extras]), re.M))
    pinned = dict(re.findall(r"^([\w-]+)==([\d.]+)$", (ROOT / "requirements" / "minimum.txt").read_text(), re.M))
    assert {name: re.sub(r"(\.0)+$", "", version) for name, version in pinned.items()} == {
        name: re.sub(r"(\.0)+$", "", version) for name, version in floors.items()
    }


def test_what_the_page_for_users_of_other_libraries_names_is_there() -> None:
    text = (DOCS / "reference" / "names_elsewhere.md").read_text() + (DOCS / "coming_from.md").read_text()
    assert set(re.findall(r"\bdt\.(\w+)", text)) <= set(dask_train.__all__)
    told = (dask_train.Session.__doc__ or "") + " ".join(dir(dask_train.Session))
    assert [name for name in re.findall(r"\bsession\.(\w+)", text) if name not in told] == []
    assert set(re.findall(r"\bnet\.(\w+)", text)) <= set(dir(dask_train.TensorFlowNetwork))
    solvers = set(re.findall(r'"([\w-]+)"', text.partition("`solver=")[2].splitlines()[0].split("|")[1]))
    assert len(solvers) == 5
    assert all(f'"{solver}"' in (linear_model.LogisticRegression.__doc__ or "") for solver in solvers)


def test_the_table_of_arguments_says_why_a_verb_lacks_one() -> None:
    table = extension("argument_table")
    text = (DOCS / "reference" / "arguments.md").read_text()
    explained: dict[str, set[str]] = {verb: set() for verb in table.VERBS}
    for verbs, names in re.findall(r"^\| (`dt\.[^|]*) \| (`[^|]*) \|", text, flags=re.MULTILINE):
        for verb in re.findall(r"`dt\.(\w+)`", verbs):
            explained[verb] |= set(re.findall(r"`(\w+)`", names))
    for verb in table.VERBS:
        lacks = {name for name, verbs in table.shared().items() if verb not in verbs}
        assert explained[verb] == lacks, verb
