"""N-best lists as prefix trees, for rescoring (Stahlberg et al. 2017, Table 2).

Score of token w: 0 if some hypothesis of the list begins with the prefix and w; score of ``</s>``: the score of the
hypothesis that equals the prefix, which is its total in the list or one of its ``feature``s; all other tokens are
forbidden. With ``match_unk`` an unknown word in the list stands for any token. If a prefix matches several
hypotheses, the best one counts.

Lists are Moses', ``id ||| tokens ||| name= score ... ||| total``, whose ids count from 0 if 0 is among them (Moses)
and otherwise from 1 (as sgdec writes them). Or they are plain lines without scores: line N belongs to sentence N, or,
if PATH has ``{id}``, all lines of a file belong to its sentence.

State: the node of the tree that the prefix leads to, or with ``match_unk`` a number for the nodes, which can be
several. Bounds: each node stores the best and the worst score below it. Cost: the list is read once, and the tree of
a sentence is built when it begins; then, per prefix, the children of its nodes. Relaxations with ``match_unk``: exact
up to 65,536 sets of nodes; otherwise, and then, a constant.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Annotated, NamedTuple

from pydantic import Field

import sgdec
from sgdec import BatchPredictor, Context, SgdecError, Source
from sgdec.arcs import DEAD, Automata
from sgdec.arrays import Ints
from sgdec.files import SEPARATOR, NbestEntry, parse_entry, parse_id, read_lines, whole_number
from sgdec.protocol import Arcs, Listed, SparseRow
from sgdec.relaxations import Relaxation
from sgdec_predictors.automata.numbered import Numbered
from sgdec_predictors.automata.prefix_tree import Nodes, OpenPrefixTree, PrefixTree
from sgdec_predictors.tokens.lines import TokenLines

OFF = PrefixTree([])
"""The tree of no hypothesis."""


class Line(NamedTuple):
    """One hypothesis as it was read."""

    number: int
    """The line number in its file."""
    text: str


class ForcedList(Numbered):
    """Allows exactly the hypotheses of a sentence's n-best list.

    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "nbest.ids")
    ...     with open(path, "w") as file:
    ...         _ = file.write("1 ||| 7 4 ||| lm= -3.5 ||| -1.5\\n1 ||| 7 ||| lm= -2.5 ||| -2.0\\n")
    ...     predictor = ForcedList(path, feature="lm")
    >>> states = predictor.initialize_batch([Source(id=1, tokens=())])
    >>> predictor.predict_batch(predictor.consume_batch(states, [7])).rows
    [SparseRow({2: -2.5, 4: 0.0}, default=-inf)]
    """

    arcs_of_tensors = True

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
        self._trees = Automata[PrefixTree]()
        self.restricts = not match_unk
        if not match_unk:
            self.arcs, self.whole = self._arcs, self._trees.find  # the arcs of an unknown word are not in arrays
        else:
            self.relaxations = self._relaxations

    def initialize_batch(self, sources: Sequence[Source]) -> list[int]:
        """Raises SgdecError if there is no list for a sentence, or a line of it is malformed."""
        trees = [self._tree(source.id) for source in sources]
        return list(map(self._trees.add, trees))

    def release(self, roots: Sequence[int]) -> None:
        for root in roots:
            self._trees.release(root)

    def _arcs(self, states: Ints, candidates: Listed | None) -> Arcs:
        return self._trees.arcs(states, candidates)

    def _row(self, state: int) -> SparseRow:
        tree, _, nodes = self._find(state)
        return tree.row(nodes)

    def _next(self, state: int, token: int) -> int:
        tree, start, before = self._find(state)
        nodes = tree.follow(before, token)
        return start + tree.state(nodes) if nodes else DEAD

    def best_remaining(self, states: Sequence[int]) -> list[float]:
        return [tree.best_below(nodes) for tree, _, nodes in map(self._find, states)]

    def worst_remaining(self, states: Sequence[int]) -> list[float]:
        return [tree.worst_below(nodes) for tree, _, nodes in map(self._find, states)]

    def _relaxations(self, state: int) -> Sequence[Relaxation]:
        tree, _ = self._trees.find(state)
        assert isinstance(tree, OpenPrefixTree)
        return tree.relaxations(self._nodes)

    def _nodes(self, state: int) -> Nodes:
        return self._find(state)[2]

    def _find(self, state: int) -> tuple[PrefixTree, int, Nodes]:
        """The tree of a state, the state of its empty prefix, and the nodes; without nodes off the list."""
        if state == DEAD:
            return OFF, DEAD, ()
        tree, start = self._trees.find(state)
        return tree, start, tree.nodes(state - start)

    def _tree(self, sentence: int) -> PrefixTree:
        path = self._path.replace("{id}", str(sentence))
        lines = _lines(path) if self._lists is None else self._lists.get(sentence, [])
        if not lines:
            raise SgdecError(
                f"forcedlst: {path}: no hypothesis for sentence {sentence}. Expected at least one per sentence; "
                "ids count from 0 if 0 is among them, else from 1."
            )
        hypotheses = []
        for line in lines:
            where = f"forcedlst: {path}: line {line.number}"
            text, score = self._parse(line.text, where)
            hypotheses.append((self._reader.read(text, where), score))
        return OpenPrefixTree(hypotheses) if self._match_unk else PrefixTree(hypotheses)

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
def sgdec_predictors() -> dict[str, type[BatchPredictor]]:
    return {"forcedlst": ForcedList}
