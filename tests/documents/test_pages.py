"""Rules for the blocks of all tutorials and how-to pages."""

from pathlib import Path

import pytest
from ruamel.yaml import YAML

from barnabas_operator.resources.cluster_kind import KINDS
from barnabas_operator.resources.kind import GROUP
from documents.how_to import ON_KUBERNETES, ON_ONE_MACHINE
from documents.pages import BLOCK, DOCS, Run, Write, lacking, languages, not_run, row_of, runnable, steps

HOW_TO = sorted((DOCS / "how-to").glob("*.md"))
PAGES = [*sorted((DOCS / "tutorials").glob("*.md")), *HOW_TO]
KNOWN = {"console", "java", "promql", "properties", "python", "sh", "text", "yaml"}


def test_the_steps_of_a_page_are_its_files_commands_and_expected_output(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        '```yaml title="a/b.yaml"\nkind: A\n```\n```yaml\nnot: run\n```\n'
        "  ```sh\n  echo 1  2\n  ```\n  ```text\n  1 2\n  ```\n```console\n$ ls\na\n$ pwd\n```\n",
        encoding="utf-8",
    )
    assert list(steps(page)) == [
        Write("a/b.yaml", "kind: A\n"),
        Run("echo 1  2\n", False, ("1 2",)),
        Run("ls\npwd", False, ()),
    ]
    assert lacking(("1 2", "... of 3"), "x\n1   2\n 2 of 3\n") == []
    assert lacking(("1 2",), "1 2 3") == ["1 2"]


def test_every_block_names_its_language() -> None:
    """A block without a language would be run by no test, and nobody would notice."""
    unknown = {str(page): found for page in PAGES if (found := set(languages(page)) - KNOWN)}
    assert unknown == {}


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: page.stem)
def test_every_block_of_yaml_can_be_parsed(page: Path) -> None:
    for block in BLOCK.finditer(page.read_text("utf-8")):
        if block[2].partition(" ")[0] == "yaml":
            list(YAML(typ="safe").load_all(block[3]))


def test_every_how_to_page_with_commands_is_run_somewhere() -> None:
    with_commands = {page.stem for page in HOW_TO if any(isinstance(step, Run) for step in runnable(page, not_run()))}
    assert with_commands == {*ON_ONE_MACHINE, *ON_KUBERNETES}


def test_every_row_of_not_run_matches_one_block_of_a_page() -> None:
    table = not_run()
    runs = [(page, step) for page in PAGES for step in steps(page) if isinstance(step, Run)]
    about = [row for page, step in runs if (row := row_of(page, step, table)) is not None]
    assert sorted(about) == sorted(table)


def test_the_upgrade_page_migrates_every_kind() -> None:
    write, patch = (step.commands for step in steps(DOCS / "how-to" / "upgrade.md") if isinstance(step, Run))
    kinds = KINDS.values()
    assert sorted(write.split()[2].split(",")) == sorted(kind.short_name for kind in kinds)
    assert {word for word in patch.split() if GROUP in word} == {f"{kind.plural}.{GROUP}" for kind in kinds}
