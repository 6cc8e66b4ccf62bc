"""N-best lists as prefix trees, for rescoring (Stahlberg et al. 2017, Table 1).

Score of token w: 0 if some hypothesis of the list begins with the prefix and w; score of ``</s>``: the score of the
hypothesis that equals the prefix, which is its total in the list or one of its ``feature``s; all other tokens are
forbidden. With ``match_unk`` an unknown word in the list stands for any token. If a prefix matches several
hypotheses, the best one counts.

Lists are Moses', ``id ||| tokens ||| name= score ... ||| total``, whose ids count from 0 if 0 is among them (Moses)
and otherwise from 1 (as sgdec writes them). Or they are plain lines without scores: line N belongs to sentence N, or,
if PATH has ``{id}``, all lines of a file belong to its sentence.

State: the nodes of the tree that the prefix leads to; only with ``match_unk`` there can be several. Bounds: each node
stores the best and the worst score below it. Cost: the list is read once, and the tree of a sentence is built when it
begins; then, per prefix, the children of its nodes.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Annotated, NamedTuple, TypeAlias

from pydantic import Field

import sgdec
from sgdec import BOS, EOS, UNK, Context, Predictor, Scores, SgdecError, Source
from sgdec.io.limits import whole_number
from sgdec.io.nbest import SEPARATOR, NbestEntry, parse_entry, parse_id
from sgdec.protocol import FORBIDDEN, Candidates
from sgdec.text.lines import read_lines
from sgdec_predictors._token_lines import TokenLines

Nodes: TypeAlias = tuple[int, ...]
"""Nodes of a tree; empty = off the list."""
ROOT: Nodes = (0,)


class Line(NamedTuple):
    """One hypothesis as it was read."""

    number: int
    """The line number in its file."""
    text: str


class ForcedList(Predictor):
    """Allows exactly the hypotheses of a sentence's n-best list.

    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "nbest.ids")
    ...     with open(path, "w") as file:
    ...         _ = file.write("1 ||| 7 4 ||| lm= -3.5 ||| -1.5\\n1 ||| 7 ||| lm= -2.5 ||| -2.0\\n")
    ...     predictor = ForcedList(path, feature="lm")
    >>> predictor.initialize(Source(id=1, tokens=()))
    >>> predictor.consume(7)
    >>> predictor.predict_next().rows
    [SparseRow({2: -2.5, 4: 0.0}, default=-inf)]
    """

    def __init__(
        self,
        path: Annotated[
            str,
            Field(description="n-best lists: Moses' format, or plain lines; {id} is the sentence number"),
        ],
        use_weights: Annotated[bool, Field(description="false: every hypothesis scores 0")] = True,
        feature: Annotated[
            str, Field(description="feature to score by, or NAME.N for one of several values; empty = the total")
        ] = "",
        match_unk: Annotated[
            bool, Field(description="let an unknown word (token 0) in the list stand for any token")
        ] = False,
        context: Context | None = None,
    ) -> None:
        """Raises SgdecError if the file cannot be read, or if its lines have different formats."""
        self._path = path
        self._use_weights = use_weights
        self._feature = feature
        self._match_unk = match_unk
        self._reader = TokenLines(context)
        self._lists = None if "{id}" in path else _by_sentence(_lines(path), path)
        self._tree = _Tree([], match_unk)
        self._nodes = ROOT

    def initialize(self, source: Source) -> None:
        """Raises SgdecError if there is no list for this sentence, or a line of it is malformed."""
        path = self._path.replace("{id}", str(source.id))
        lines = _lines(path) if self._lists is None else self._lists.get(source.id, [])
        if not lines:
            raise SgdecError(
                f"forcedlst: {path}: no hypothesis for sentence {source.id}. Expected at least one per sentence; "
                "ids count from 0 if 0 is among them, else from 1."
            )
        hypotheses = []
        for line in lines:
            where = f"forcedlst: {path}: line {line.number}"
            text, score = self._parse(line.text, where)
            hypotheses.append((self._reader.read(text, where), score))
        self._tree, self._nodes = _Tree(hypotheses, self._match_unk), ROOT

    def predict_next(self, candidates: Candidates | None = None) -> Scores:
        return self._tree.row(self._nodes)

    def consume(self, token: int) -> None:
        self._nodes = self._tree.after(self._nodes, token)

    def get_state(self) -> Nodes:
        return self._nodes

    def set_state(self, state: Nodes) -> None:
        self._nodes = state

    def best_remaining(self, states: Sequence[Nodes]) -> list[float]:
        return [max((self._tree.best[node] for node in nodes), default=FORBIDDEN) for nodes in states]

    def worst_remaining(self, states: Sequence[Nodes]) -> list[float]:
        return [min((self._tree.worst[node] for node in nodes), default=-FORBIDDEN) for nodes in states]

    def state_key(self, states: Sequence[Nodes]) -> list[Hashable]:
        return list(states)

    def _parse(self, line: str, where: str) -> tuple[str, float]:
        """Text and score of one hypothesis."""
        if SEPARATOR not in line:
            if self._feature and self._use_weights:
                raise SgdecError(f"{where}: has no features, only text. Leave --forcedlst.feature out.")
            return line, 0.0
        entry = parse_entry(line, where)
        score = self._score(entry) if self._use_weights else 0.0
        if not math.isfinite(score):
            raise SgdecError(f"{where}: {score} is not a score. Expected a finite number.")
        return entry.text, score

    def _score(self, entry: NbestEntry) -> float:
        if self._feature:
            return self._feature_of(entry)
        if entry.total is None:
            raise SgdecError(
                f"{entry.where}: has no total. Expected 'id ||| tokens ||| features ||| total'; "
                "without scores give --forcedlst.use_weights false."
            )
        return entry.total

    def _feature_of(self, entry: NbestEntry) -> float:
        name, _, place = self._feature.rpartition(".")
        values = entry.features.get(self._feature)
        if values is None and (number := whole_number(place)) and number <= len(entry.features.get(name, ())):
            return entry.features[name][number - 1]
        if values is None:
            known = f"It has {', '.join(entry.features)}." if entry.features else "It has none."
            raise SgdecError(f"{entry.where}: has no feature {self._feature!r}. {known}")
        if len(values) != 1:
            raise SgdecError(
                f"{entry.where}: feature {self._feature!r} has {len(values)} values. "
                f"Expected one; of several choose one, such as --forcedlst.feature {self._feature}.1."
            )
        return values[0]


class _Tree:
    """The hypotheses of one sentence; node 0 is the empty prefix, and children come after their parents."""

    def __init__(self, hypotheses: Iterable[tuple[tuple[int, ...], float]], match_unk: bool) -> None:
        self._match_unk = match_unk
        self._children: list[dict[int, int]] = [{}]
        self._ends: dict[int, float] = {}
        """By node: the score of the hypothesis that equals the prefix."""
        for tokens, score in hypotheses:
            self._add(tokens, score)
        self.best = self._extremes(1)
        """By node: the highest score below it."""
        self.worst = {node: -score for node, score in self._extremes(-1).items()}

    def row(self, nodes: Nodes) -> Scores:
        scores = dict.fromkeys(chain.from_iterable(self._children[node] for node in nodes), 0.0)
        default = FORBIDDEN
        if self._match_unk and UNK in scores:
            scores[BOS], default = FORBIDDEN, 0.0
        ends = [self._ends[node] for node in nodes if node in self._ends]
        if ends or default != FORBIDDEN:
            scores[EOS] = max(ends, default=FORBIDDEN)
        tokens = sorted(scores)
        return Scores.sparse(tokens, [scores[token] for token in tokens], default)

    def after(self, nodes: Nodes, token: int) -> Nodes:
        wanted = (token, UNK) if self._match_unk and token != UNK else (token,)
        found = [self._children[node].get(label) for node in nodes for label in wanted]
        return tuple(child for child in found if child is not None)

    def _add(self, tokens: Sequence[int], score: float) -> None:
        node = 0
        for token in tokens:
            if token not in self._children[node]:
                self._children[node][token] = len(self._children)
                self._children.append({})
            node = self._children[node][token]
        self._ends[node] = max(score, self._ends.get(node, FORBIDDEN))

    def _extremes(self, sign: int) -> dict[int, float]:
        """For each node the highest ``sign`` x score below it."""
        found: dict[int, float] = {}
        for node in reversed(range(len(self._children))):
            scores = [found[child] for child in self._children[node].values()]
            if node in self._ends:
                scores.append(sign * self._ends[node])
            found[node] = max(scores, default=FORBIDDEN)
        return found


def _lines(path: str) -> list[Line]:
    """The hypotheses of one file. Raises SgdecError if some are in Moses' format and some are plain."""
    try:
        lines = [Line(number, text) for number, text in enumerate(read_lines(path), 1)]
    except SgdecError as error:
        raise SgdecError(f"forcedlst: {error}") from None
    if not any(SEPARATOR in line.text for line in lines):
        return lines
    lines = [line for line in lines if line.text.strip()]
    for line in lines:
        if SEPARATOR not in line.text:
            raise SgdecError(
                f"forcedlst: {path}: line {line.number} is plain, but others are not. "
                "Expected 'id ||| tokens ||| features ||| total'."
            )
    return lines


def _by_sentence(lines: Sequence[Line], path: str) -> Mapping[int, list[Line]]:
    """The hypotheses by sentence number, counted from 1."""
    if not any(SEPARATOR in line.text for line in lines):
        return {line.number: [line] for line in lines}
    found: dict[int, list[Line]] = defaultdict(list)
    for line in lines:
        found[parse_id(line.text, f"forcedlst: {path}: line {line.number}")].append(line)
    return {number + (0 in found): listed for number, listed in found.items()}


@sgdec.hookimpl
def sgdec_predictors() -> dict[str, type[Predictor]]:
    return {"forcedlst": ForcedList}
