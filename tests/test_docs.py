"""What the documentation names is there: reasons, options, tests, files."""

from __future__ import annotations

import argparse
import re
import subprocess
from pathlib import Path

import pytest

from tvm_fusion.cli import options
from tvm_fusion.policy.reasons import Reason

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


def all_reasons(base: type[Reason]) -> list[type[Reason]]:
    """All classes derived from one."""
    return [c for direct in base.__subclasses__() for c in (direct, *all_reasons(direct))]


def test_the_table_of_reasons_has_every_code_once_and_no_other():
    section = text_of("policies.md").split("## Reasons")[1]
    listed = re.findall(r"^\| `(\w+)` \|", section, flags=re.M)
    assert sorted(listed) == sorted({reason.code for reason in all_reasons(Reason) if reason.code})


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
    parser = argparse.ArgumentParser()
    options.add_options(parser)
    flags = {flag for action in parser._actions for flag in action.option_strings}
    page = text_of("command_line.md")
    table = page.split("## Options")[1].split("## Files")[0]
    listed = set(re.findall(r"^\| `(-[-\w]+)", table, flags=re.M)) | {"--help"}
    assert flags | {"--compare-stock", "--check", "--version"} == listed


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
