"""The promise of the prose: it keeps the style rules, and each rule finds the phrase that it was written for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.style import (
    DOCSTRING_RULES,
    PENDING,
    RULES,
    Finding,
    Rule,
    breaches,
    findings,
    is_pending,
    markdown_passages,
    prose,
    python_passages,
    yaml_passages,
)


@pytest.fixture(scope="module")
def found() -> list[Finding]:
    """All places of the repository that break a rule. To look for them takes seconds."""
    return [finding for path in prose() for finding in findings(path)]


@pytest.mark.slow
def test_the_prose_of_the_repository_keeps_the_rules(found: list[Finding]) -> None:
    assert [str(finding) for finding in found if not is_pending(finding)] == []


def test_a_room_is_pending_only_while_it_breaks_the_rule(found: list[Finding]) -> None:
    for rule, rooms in PENDING.items():
        for room in rooms:
            broken = any(finding.rule == rule and str(finding.path).startswith(room) for finding in found)
            assert broken, f"{room} keeps: {rule}"


@pytest.mark.parametrize("rule", RULES, ids=[rule.name for rule in RULES])
def test_a_rule_finds_its_example(rule: Rule) -> None:
    assert rule.name in [name for name, *_ in breaches(rule.example)]


@pytest.mark.parametrize("rule", DOCSTRING_RULES, ids=[rule.name for rule in DOCSTRING_RULES])
def test_a_rule_of_docstrings_finds_its_example_in_docstrings_alone(rule: Rule, tmp_path: Path) -> None:
    path = tmp_path / "code.py"
    path.write_text(f'class C:\n    """{rule.example}"""\n    x = 1\n    """{rule.example}"""\n')
    assert [(finding.line, finding.rule) for finding in findings(path)] == [(2, rule.name), (4, rule.name)]
    path.write_text(f'def f():\n    """Sees ... here. {rule.example} And that."""\n    print("{rule.example}")\n')
    assert list(findings(path)) == []


def test_a_long_sentence_is_found_and_two_short_ones_are_not() -> None:
    half = "every word counts " * 10
    assert [name for name, *_ in breaches(f"{half} and {half}.")] == ["long sentence"]
    assert list(breaches(f"{half}. And {half}.")) == []


def test_comments_docstrings_and_messages_are_read_and_code_is_not(tmp_path: Path) -> None:
    code = '"""Made anew."""\n\nanew = 1  # drawn\n# anew\n\ndef f(x):\n    raise E(f"{x}: train anew")\n'
    path = tmp_path / "code.py"
    path.write_text(code)
    assert sorted(finding.line for finding in findings(path)) == [1, 4, 7]


def test_markdown_is_read_without_its_code_blocks() -> None:
    text = "One line.\n\n```console\nanew\n```\n\n- made\n  anew\n"
    assert list(markdown_passages(text)) == [(1, "One line."), (7, "- made\nanew")]


def test_neighbouring_comments_are_one_passage() -> None:
    assert list(python_passages("# one\n# two\n\n# three\n")) == [(1, "one\ntwo"), (4, "three")]


def test_values_of_issue_templates_are_read() -> None:
    text = 'body:\n  - type: input\n    attributes:\n      label: "Train anew: what?"\n'
    assert list(yaml_passages(text))[-1] == (4, "Train anew: what?")


def test_all_rooms_that_people_read_are_read() -> None:
    read = {path.as_posix() for path in prose()}
    assert {"README.md", "docs/index.md", "docs/conf.py", "fuzz/judge.py", ".github/ISSUE_TEMPLATE/wish.yml"} <= read
