"""The style rules of English that a pattern can check: ``python -m tests.helpers.style [PATH]...``.

The rules read docstrings, comments, help texts and messages of Python files, the prose of Markdown files, and the
issue templates. Each rule has the phrase that it finds, the reason, what to write instead, and an example that it
must find. A pattern is narrow enough to have no false positive in the repository, so there is no list of
exceptions. `PENDING` lists rooms that do not keep a rule yet: take a room out when it is clean, and never add one.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
ROOMS = ("sgdec", "predictors", "decoders", "docs", "examples", "benchmarks", "fuzz", ".github/ISSUE_TEMPLATE")
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")
LONGEST = 40
"""Words in a sentence, at most. A colon or semicolon ends a sentence here."""


class Rule(NamedTuple):
    """A phrase to avoid."""

    name: str
    pattern: str
    why: str
    instead: str
    example: str


RULES = [
    Rule(
        "sentence begins with Of",
        r"(?:^|(?<=[.:;] ))Of (?!course\b)",
        "The reader meets the genitive before its noun.",
        "Begin with the subject: 'Each list has its totals', 'Among equal scores the first wins'.",
        "Of the list's own totals: they are added this many times.",
    ),
    Rule(
        "one X a Y",
        r"\b(?:lines?|tokens|sentences|hypotheses|rows|scores?|times|once|one(?: (?!without)\w+)?|kept|prefixes) an? "
        r"(?:line|sentence|token|step|row|word|second|source|hypothesis|batch|update|prefix|predictor|plugin|state|node)\b"
        r"(?! (?:of|that|with|which)\b)",
        "The reader takes the second noun for an apposition.",
        "Write 'per': 'one line per sentence'.",
        "lengths, one line a sentence",
    ),
    Rule(
        "anew",
        r"\banew\b",
        "Archaic.",
        "Write 'again', or say which step is repeated.",
        "Train anew.",
    ),
    Rule(
        "such a thing",
        r"\b[Ss]uch an? (?:file|line|one|thing|name|list|run|case)\b",
        "The reader has to look for what the words point at.",
        "Repeat the noun and its property: 'an embedding file'.",
        "start target embeddings from such a file",
    ),
    Rule(
        "take up",
        r"\b(?:take|takes|taken|took|taking) up (?:at|after|with|again|by)\b|\b(?:be|is|was|are) taken up\b",
        "Not the term of the field.",
        "Write 'resume'.",
        "May a run be taken up?",
    ),
    Rule(
        "whoever",
        r"(?i:\bwhoever\b)",
        "The actor is unnamed.",
        "Name the actor: 'the caller', 'a subclass', 'the reader of the file'.",
        "Whoever needs full rows gives the ARPA file.",
    ),
    Rule(
        "from where",
        r"\b[Ff]rom where\b",
        "The place is unnamed.",
        "Name it: 'the last good checkpoint'.",
        "From where one can go on, for an error.",
    ),
    Rule(
        "what is no X",
        r"\bwhat (?:is|are) (?:no|not)\b",
        "A negation that names nothing.",
        "Name the case: 'if the device is unknown', 'if the text is not JSON'.",
        "Raises UsageError for what is no device.",
    ),
    Rule(
        "that is none",
        r"\b(?:that|which|it|they) (?:is|are) none\b",
        "The reader has to look for what is negated.",
        "Name the case: 'for an unknown name', 'for an invalid factor'.",
        "Raises UsageError for a name that is none.",
    ),
    Rule(
        "so many",
        r"\b(?:[Bb]y|[Oo]f|[Aa]t most|after|[Ff]or|keep|with|and|every) so (?:many|much|few)\b|^So many\b",
        "The number is not named.",
        "Write 'this many', or name the quantity: 'the number of rows'.",
        "A prefix of so many tokens is given up.",
    ),
    Rule(
        "it pays",
        r"\b(?:does|do|did) not pay\b|\bhave not paid\b",
        "A figure of speech.",
        "Say what is slower, larger or lost.",
        "On a CPU this does not pay.",
    ),
    Rule(
        "spells",
        r"\b(?:has|have|had|of) spells\b",
        "A figure of speech.",
        "Write 'fluctuates'.",
        "a machine whose speed has spells",
    ),
    Rule(
        "double negation",
        r"\b(?:not|never|no) un\w{4,}(?:ed|able|ible)\b|\bno \w+ but (?:the|a|its)\b|\bis not no\b|\bnot without\b",
        "Two negations have to be cancelled.",
        "State it positively: 'the only state is ...'.",
        "There is no state but the last tokens.",
    ),
    Rule(
        "nothing but",
        r"\b(?:[Nn]othing|[Nn]obody|[Nn]one|[Nn]o one) but\b",
        "Two negations have to be cancelled.",
        "Write 'only'.",
        "It reads nothing but the state.",
    ),
    Rule(
        "is to be",
        r"\b(?:is|are|was|were) to be (?!or not)\w+",
        "Obligation, plan or possibility: the reader has to guess.",
        "Write 'must', 'will' or 'can', or use the active voice.",
        "Whether this prefix is to be opened.",
    ),
    Rule(
        "begins with What",
        r"^What [^?]*[.;]$",
        "A clause stands for the noun.",
        "Begin with the noun: 'The error message', 'The purpose of a setting'.",
        "What is wrong with one lattice file, and the way out.",
    ),
    Rule(
        "begins with a question",
        r"^(?:How (?:many|much|often|long|far|well|good|wide)|Why|Which|Whose|Who|By what|In which|Where) [^?]*[.;]$",
        "A clause stands for the noun.",
        "Begin with the noun: 'The number of sentences', 'The reason why', 'The folder'.",
        "How many of its sentences failed.",
    ),
    Rule(
        "rate with a",
        r"\b(?:nats|bytes|steps|MB|MiB|arrays?|quer(?:y|ies)|vectors|examples|width\^2|outputs|messages?|thresholds?"
        r"|epochs?|updates?|searches|expansions|words|characters|punctuation|multiplications|weights) an? "
        r"(?:token|epoch|step|side|prefix|layer|block|rank|line|sentence|word|source|centroid|order|batch|second"
        r"|query|node|hypothesis|pair)\b(?! (?:of|that|with|which)\b)",
        "The reader takes the second noun for an apposition.",
        "Write 'per': '3 width^2 per block'.",
        "a flat array, 16 bytes a line",
    ),
    Rule(
        "where there is none",
        r"\b[Ww]here there (?:is|are) (?:none|no|one)\b",
        "A condition is not a place.",
        "Write 'if there is none' or 'without ...'.",
        "Token ids where there is none.",
    ),
    Rule(
        "go on",
        r"\b[Gg]o(?:es|ing)? on\b",
        "Too vague: a run is resumed, a search continues, a hypothesis is kept.",
        "Write 'continue', 'resume' or 'keep'.",
        "--resume goes on with a file.",
    ),
    Rule(
        "where no",
        r"\b[Ww]here (?:no|nothing|nobody|none)\b",
        "A condition is not a place.",
        "Write 'if no ...' or 'without ...'.",
        "-inf where no way leads to an end",
    ),
    Rule(
        "mend",
        r"\b[Mm]end(?:s|ed|ing)?\b",
        "Not the term of the field.",
        "Write 'fix' or 'correct'.",
        "lower the weight, or mend its model",
    ),
    Rule(
        "raises where",
        r"\b(?:Raises \S+|\S+Error`?) where\b",
        "A condition is not a place.",
        "Write 'if'.",
        "Raises UsageError where Faiss is not installed.",
    ),
    Rule(
        "comes to an end",
        r"\bcom(?:e|es|ing) to (?:no|an) end\b",
        "Three words for one.",
        "Write 'ends' or 'never ends'.",
        "10,000 tokens come to no end",
    ),
    Rule(
        "hardly",
        r"\b(?:hardly|scarcely) (?:a|an|any|anything|ever)\b",
        "A hidden negation.",
        "Write 'few', 'little' or 'rarely'.",
        "There is hardly a cycle.",
    ),
    Rule(
        "begins with an error",
        r"^\w+Error (?:if|unless|where|for|beyond)\b",
        "The verb is missing.",
        "Write 'Raise UsageError if ...' for a check, 'Raises UsageError if ...' elsewhere.",
        "UsageError unless the widths agree.",
    ),
    Rule(
        "is no X",
        r"(?<!here )\b(?:is|are) no (?!problem|longer|larger|higher|lower|faster|slower|smaller|wider|stronger|more"
        r"|less|worse|better|different)\w+",
        "Not idiomatic.",
        "Write 'is not a number', or what was expected.",
        "'x' is no number.",
    ),
    Rule(
        "archaic word",
        r"\b(?:thereof|therein|wherein|whereof|herein|hitherto|whilst|amongst|nought|lest|thence|whence"
        r"|for want of)\b",
        "Archaic.",
        "Use the plain word: 'of it', 'in which', 'so that ... not'.",
        "the scores thereof",
    ),
]


DOCSTRING_RULES = [
    Rule(
        "docstring in dots",
        r"^(?:\.\.\.|…)|(?:\.\.\.|…)$",
        "A reader of one name sees half a sentence, or a series that has to be guessed.",
        "Write a whole sentence for each name, and the last member of a series.",
        "None for decoders on whole arrays, unless ...",
    ),
    Rule(
        "docstring says the same",
        r"^The same\.?$",
        "The reader has to look for the other docstring.",
        "Say what the thing is.",
        "The same.",
    ),
]
"""Rules for a whole docstring, from its first word to its last."""

PENDING: dict[str, tuple[str, ...]] = {}
"""Rooms, by rule, that do not keep it yet."""


class Finding(NamedTuple):
    """A place that breaks a rule."""

    path: Path
    line: int
    rule: str
    excerpt: str
    instead: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.rule}: '{self.excerpt}'. {self.instead}"


def is_pending(finding: Finding) -> bool:
    """Whether the rule does not hold for the room yet."""
    return str(finding.path).startswith(PENDING.get(finding.rule, ()))


def findings(path: Path) -> Iterator[Finding]:
    """What the rules find in one file, in pending rooms, too."""
    passages = {".py": python_passages, ".yml": yaml_passages}.get(path.suffix, markdown_passages)
    text = path.read_text("utf-8")
    for line, passage in passages(text):
        for rule, excerpt, offset, instead in breaches(passage):
            yield Finding(path, line + passage[:offset].count("\n"), rule, excerpt, instead)
    if path.suffix == ".py":
        for line, docstring in docstrings(text):
            for rule in DOCSTRING_RULES:
                if re.search(rule.pattern, docstring):
                    yield Finding(path, line, rule.name, docstring.partition("\n")[0], rule.instead)


def breaches(passage: str) -> Iterator[tuple[str, str, int, str]]:
    """The name of the rule, the words found, their position and the advice, for each breach in a passage."""
    flat = passage.replace("\n", " ")
    for rule in RULES:
        for found in re.finditer(rule.pattern, flat):
            yield rule.name, found[0].strip(), found.start(), rule.instead
    for sentence in re.finditer(r"[^.:;?!|]+(?:[.](?=\w)[^.:;?!|]+)*", flat):
        words = [word for word in sentence[0].split() if re.search("[a-z]{2}", word)]
        if len(words) > LONGEST:
            excerpt = " ".join(words[:6]) + " ..."
            yield "long sentence", excerpt, sentence.start(), f"{len(words)} words: write two sentences."


def python_passages(code: str) -> Iterator[tuple[int, str]]:
    """Comments (neighbouring lines together), docstrings by paragraph, and messages, with their lines."""
    comment: list[str] = []
    begin = last = 0
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        if token.type != tokenize.COMMENT:
            continue
        if comment and token.start[0] != last + 1:
            yield begin, "\n".join(comment)
            comment = []
        begin = begin if comment else token.start[0]
        last = token.start[0]
        comment.append(token.string.lstrip("#: "))
    if comment:
        yield begin, "\n".join(comment)
    inside: set[int] = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.JoinedStr):
            inside |= {id(part) for part in node.values}
            parts = [part.value if isinstance(part, ast.Constant) else "{}" for part in node.values]
            yield node.lineno, "".join(map(str, parts)).replace("\n", " ")
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
            yield from paragraphs(node.lineno, re.sub(r"^[ >.]*>>>.*$", "", node.value, flags=re.MULTILINE))


def docstrings(code: str) -> Iterator[tuple[int, str]]:
    """The docstrings of modules, classes and functions, and those below names, with their lines."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value.strip()


def markdown_passages(text: str) -> Iterator[tuple[int, str]]:
    """Paragraphs without code blocks; lines keep their numbers."""
    fenced = re.compile(r"^ *(```+|~~~+).*?^ *\1 *$", re.MULTILINE | re.DOTALL)
    yield from paragraphs(1, fenced.sub(lambda block: "\n" * block[0].count("\n"), text))


def yaml_passages(text: str) -> Iterator[tuple[int, str]]:
    """The values, each of which is in one line."""
    for number, line in enumerate(text.splitlines(), start=1):
        yield number, re.sub(r"^[\s-]*\w+: *", "", line).strip("\"'")


def paragraphs(line: int, text: str) -> Iterator[tuple[int, str]]:
    """Pieces between empty lines; an item of a list or a row of a table is a piece of its own."""
    lines: list[str] = []
    for number, words in enumerate([*text.split("\n"), ""]):
        item = re.match(r" *([-*|>#]|\d+\.) ", words)
        if (not words.strip() or item) and lines:
            yield line + number - len(lines), "\n".join(lines)
            lines = []
        if words.strip():
            lines.append(words.strip())


def prose() -> Iterator[Path]:
    """The files that the rules hold for, without the pages of the reference that `make docs` generates."""
    yield from map(Path, PAGES)
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*")):
            if path.suffix in (".py", ".md", ".yml") and path.parent.parent != ROOT / "docs" / "reference":
                yield path.relative_to(ROOT)


if __name__ == "__main__":
    files = map(Path, sys.argv[1:] or prose())
    found = [finding for path in files for finding in findings(path) if not is_pending(finding)]
    print(*found, sep="\n")
    sys.exit(bool(found))
