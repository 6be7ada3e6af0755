"""What the documentation names is there: reasons, options, tests, files."""

from __future__ import annotations

import argparse
import dataclasses
import re
import subprocess
from pathlib import Path

import pytest

from tvm_fusion import cli
from tvm_fusion.policy.reasons.page import page as reasons_page
from tvm_fusion.report import data
from tvm_fusion.report.json_format import SCHEMA

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
LINK = re.compile(r"\]\(([^)\s]+)\)")


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def text_of(page: str) -> str:
    return (ROOT / "docs" / page).read_text(encoding="utf-8")


def prose_of(page: Path) -> str:
    """A page without its code blocks."""
    return re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)


def anchors_of(page: Path) -> set[str]:
    """What GitHub makes of the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", prose_of(page), flags=re.M)
    return {re.sub(r"[^\w\- ]", "", h.lower()).strip().replace(" ", "-") for h in headings}


def words(text: str) -> list[str]:
    """What stands in backquotes."""
    return re.findall(r"`(\w+)`", text)


def parsers() -> list[argparse.ArgumentParser]:
    """The parser of the program and those of its commands."""
    program = cli._parser()
    commands = program._subparsers._group_actions[0].choices
    return [program, *commands.values()]


def test_the_page_of_reasons_is_what_their_classes_make():
    """``python -m tvm_fusion.policy.reasons.page > docs/reasons.md`` writes it."""
    assert text_of("reasons.md") == reasons_page()


def test_the_tests_that_internals_names_are_there():
    named = set(re.findall(r"\btest_\w+", text_of("internals.md")))
    assert named
    files = list((ROOT / "tests").rglob("test_*.py"))
    there = {path.stem for path in files}
    for path in files:
        there.update(re.findall(r"^def (test_\w+)", path.read_text(encoding="utf-8"), flags=re.M))
    assert not named - there


def test_the_files_that_the_pages_name_are_there():
    """Names like ``schedule/rules.py``, in the package or in the repository."""
    for page in PAGES:
        for name in re.findall(r"`([\w/]+/\w+\.py)`", prose_of(page)):
            assert (ROOT / name).exists() or (ROOT / "tvm_fusion" / name).exists(), (page, name)


def test_the_command_line_page_has_every_option():
    flags = {flag for parser in parsers() for a in parser._actions for flag in a.option_strings}
    page = text_of("command_line.md")
    table = page.split("## Options")[1].split("## Files")[0]
    listed = set(re.findall(r"^\| `(-[-\w]+)", table, flags=re.M)) | {"--help"}
    assert flags == listed


def test_the_page_of_the_report_has_every_key_of_its_json():
    layout = text_of("report.md").split("## JSON")[1]
    tables = {key for row in re.findall(r"^\|(.*)\|$", layout, flags=re.M) for key in words(row)}
    for entry in vars(data).values():
        if dataclasses.is_dataclass(entry):
            missing = {field.name for field in dataclasses.fields(entry)} - tables
            assert not missing, (entry.__name__, missing)
    assert f"It is {SCHEMA}." in layout


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_relative_links_lead_somewhere(page):
    for link in LINK.findall(prose_of(page)):
        if re.match(r"[a-z]+:", link):
            continue
        target, _, anchor = link.partition("#")
        path = (page.parent / target).resolve() if target else page
        assert path.exists(), f"{name_of(page)} links to {link}"
        if anchor and path.suffix == ".md":
            assert anchor in anchors_of(path), f"{name_of(page)} links to {link}"


def test_every_page_is_in_the_index():
    linked = set(LINK.findall(text_of("README.md")))
    assert {page.name for page in (ROOT / "docs").glob("*.md")} - {"README.md"} <= linked


def test_the_repository_stands_by_itself():
    """Nothing refers to folders next to the repository."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, check=False,
    )  # fmt: skip
    if listing.returncode != 0:
        pytest.skip("not a git checkout")
    outside = [b"/work/" + b"shared", b"../" + b"shared"]
    for name in filter(None, listing.stdout.decode().split("\0")):
        path = ROOT / name
        if path.is_file():
            content = path.read_bytes()
            assert not any(word in content for word in outside), name
