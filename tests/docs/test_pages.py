"""Pages are read by somebody who has a task: short, narrow, in plain words, and every link leads somewhere."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import dask_train as dt

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
MADE = ("_build", "gallery", "generated", "jupyter_execute")  # by `make docs`
PAGES = [page for page in sorted(DOCS.rglob("*.md")) if page.relative_to(DOCS).parts[0] not in MADE]
ALL = [*PAGES, *sorted(ROOT.glob("*.md")), ROOT / "benchmarks" / "README.md"]
GUIDES = [page for page in PAGES if page.relative_to(DOCS).parts[0] not in ("design", "reference")]
NOTEBOOK = DOCS / "tutorial.ipynb"
MOST_WORDS = 900
WIDEST = 80
MOST_TERMS = 25

# What a reader searches with, and the heading of the page that answers.
SEARCHED = {
    "early stopping": ("keras_options.md", "torch_modules.md", "boosted_trees.md", "hyperparameter_search.md"),
    "mixed precision": ("keras_options.md", "torch_modules.md", "gpus.md"),
    "data augmentation": ("keras_options.md",),
    "learning rate schedule": ("keras_options.md",),
    "class imbalance": ("keras_options.md", "torch_modules.md", "linear_models.md"),
    "gpus": ("gpus.md",),
    "out of memory": ("larger_than_memory.md",),
    "parquet": ("prediction.md",),
    "resume": ("checkpoints.md", "torch_modules.md", "hyperparameter_search.md"),
}

# Words that only this project would use, and what to write.
DIALECT = {
    r"\bwhether to\b": "a verb: Return, Keep, Wait",
    r"\bthe one after which\b": "name the thing",
    r"\bhow many\.": "Number of ...",
    r"\bwhere (?:it|`[^`]+`) is (?:None|left out)\b": "By default",
    r"\bwhen it is good enough\b": "Stopping rule",
    r"\bnone to go on with\b": "cannot be recovered",
    r"\b(?:one|once|twice|each|the model|value|file|row|rank|number|step|batch|partition|worker|thread|bytes?|lines?"
    r"|task|block|rows)"
    r" an? (?:host|Dask worker|row|batch|partition|epoch|round|rank|worker|step|fold|cell|tree|feature|job|run|process"
    r"|query|token)\b": "per",
    r"\bg(?:o|oes|oing|one) on\b|\bwent on\b": "resume, continue",
    r"\b(?:is|are|was|were) (?:told|said)\b": "is reported, is printed",
    r"\b(?:has|have|had) to do with\b": "name the relation",
    r"(?:^|[.:] |- )of an? [^.]* of (?:your|its|one's) own\b": "For custom ...",
    r"\bfree are\b": "You may change",
    r"\bwhat there can(?:'t|not) be\b": "Unsupported options",
    r"\bclose (?:\w+ ){1,3}to others\b": "block from other users",
    r"\bnobody (?:knows|gets on|has to)\b": "name who does not",
    r"\bwhoever\b": "name the reader, process or rank",
    r"\bin vain\b": "name what fails",
    r"\bbut for the\b": "except for",
}


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks_of(text: str) -> list[str]:
    """Return what stands in fenced blocks of code, commands and output."""
    return re.findall(r"^ *```(?:python|sh|text|toml|yaml)\n(.*?)^ *```", text, flags=re.DOTALL | re.MULTILINE)


def prose_of(text: str) -> str:
    return re.sub(r"^ *```.*?^ *```", "", text, flags=re.DOTALL | re.MULTILINE)


def anchors_of(text: str) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and MyST make them."""
    headings = re.findall(r"^#{1,4} (.*)$", prose_of(text), flags=re.MULTILINE)
    plain = [re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings]
    return {heading.replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("page", GUIDES, ids=name_of)
def test_a_guide_is_short(page: Path) -> None:
    words = [word for word in prose_of(page.read_text()).split() if re.search(r"\w", word)]
    assert len(words) <= MOST_WORDS, "what one in fifty needs belongs below docs/reference"


@pytest.mark.parametrize("page", ALL, ids=name_of)
def test_code_is_narrow(page: Path) -> None:
    wide = [line for block in blocks_of(page.read_text()) for line in block.splitlines() if len(line) > WIDEST]
    assert wide == []


def test_code_of_the_tutorial_is_narrow() -> None:
    cells = [cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"]
    assert [line for cell in cells for line in "".join(cell["source"]).splitlines() if len(line) > WIDEST] == []


@pytest.mark.parametrize("page", ALL, ids=name_of)
def test_its_words_are_those_of_the_field(page: Path) -> None:
    text = " ".join(prose_of(page.read_text()).split())
    found = [
        (match[0], instead) for word, instead in DIALECT.items() for match in re.finditer(word, text, re.IGNORECASE)
    ]
    assert page.name == "CHANGELOG.md" or found == []


def public() -> Iterator[tuple[str, Any]]:
    """Yield what `help` is asked about: public names, those of public modules, and their methods."""
    names = [(name, getattr(dt, name)) for name in dt.__all__ if name != "__version__"]
    for module in ("linear_model", "logging", "sklearn"):
        names += [(f"{module}.{name}", getattr(getattr(dt, module), name)) for name in getattr(dt, module).__all__]
    for name, value in names:
        yield name, value
        for member, its in inspect.getmembers(value) if inspect.isclass(value) else ():
            is_ours = str(getattr(its, "__module__", "dask_train")).startswith("dask_train")
            if not member.startswith("_") and is_ours and (inspect.isfunction(its) or isinstance(its, property)):
                yield f"{name}.{member}", its


@pytest.mark.parametrize(("name", "value"), list(public()), ids=lambda value: value if isinstance(value, str) else "")
def test_help_has_the_words_of_the_field(name: str, value: Any) -> None:
    text = " ".join((inspect.getdoc(value) or "").split())
    found = [
        (match[0], instead) for word, instead in DIALECT.items() for match in re.finditer(word, text, re.IGNORECASE)
    ]
    assert found == [], name


@pytest.mark.parametrize("page", ALL, ids=name_of)
def test_anchors_lead_to_headings(page: Path) -> None:
    text = re.sub(r"`[^`\n]*`", "", prose_of(page.read_text()))
    lost = []
    for path, anchor in re.findall(r"\]\(([^)#\s:]*\.md|)#([^)\s]+)\)", text):
        target = page.parent / path if path else page
        if anchor not in anchors_of(target.read_text()):
            lost.append(f"{path}#{anchor}")
    assert lost == []


def test_links_of_the_tutorial_lead_to_files() -> None:
    cells = [cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "markdown"]
    links = re.findall(r"\]\(([^)#\s:]+)[^)]*\)", "\n".join("".join(cell["source"]) for cell in cells))
    assert links
    assert [link for link in links if not (DOCS / link).exists()] == []


@pytest.mark.parametrize("words", SEARCHED)
def test_words_of_a_search_stand_in_a_heading(words: str) -> None:
    for page in SEARCHED[words]:
        headings = re.findall(r"^#+ (.*)$", (DOCS / page).read_text(), flags=re.MULTILINE)
        assert any(words in heading.lower() for heading in headings), page


def test_install_lines_stand_in_one_place() -> None:
    """The README is read without the site, so it has one of its own."""
    places = [name_of(page) for page in ALL if re.search(r"pip install '?\.", page.read_text())]
    assert places == ["docs/start.md", "README.md"]
    assert "pip install '." not in NOTEBOOK.read_text()


def test_the_glossary_is_short_and_in_order() -> None:
    terms = re.findall(r"^\| ([\w ]+) \|", (DOCS / "glossary.md").read_text(), flags=re.MULTILINE)[1:]
    assert terms == sorted(terms)
    assert 10 < len(terms) <= MOST_TERMS


def test_results_have_what_the_table_of_results_says() -> None:
    text = (DOCS / "reference" / "arguments.md").read_text()
    table = text[text.index("| `result.` |") :].split("\n\n")[0].splitlines()[2:]
    kinds = (dt.FitResult, dt.Result, dt.SearchResult)
    assert len(table) == 8
    for names, *cells in (row.strip("| ").split(" | ") for row in table):
        for name in re.findall(r"`(\w+)", names):
            for kind, cell in zip(kinds, cells, strict=True):
                has = name in {*dir(kind), *kind.__annotations__, *getattr(kind, "__dataclass_fields__", ())}
                assert has is not cell.startswith("no: "), (kind.__name__, name)
