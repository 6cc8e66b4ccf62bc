"""A submission as a predictor or a decoder, whose methods are questions to its process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count, islice
from typing import Any

import numpy as np

from grader.assignment import Make
from grader.child import Broken, Child
from sgdec.decoder import Decoder
from sgdec.errors import SgdecError, UsageError
from sgdec.protocol import Candidates, Hypothesis, Predictor, Result, Scores, Source
from sgdec.ranking import Ranking
from sgdec.search.node import Node
from sgdec.search.space import SearchSpace

LONGEST_LIST, LONGEST_OUTPUT = 10_000, 10_000
"""The most hypotheses, and tokens of each, that the grader takes the time to check."""
MOST_NODES = 100_000
"""The most nodes of a question about the space; the grader takes a second for this many."""


def maker(child: Child, kind: str) -> Make:
    """The class of the submission, which is called with options."""

    def make(**options: Any) -> RemotePredictor | RemoteDecoder:
        made = child.ask("make", options=options)
        return RemotePredictor(child, made) if kind == "predictor" else RemoteDecoder(child, made)

    return make


class RemoteState:
    """A state that is in the other process."""

    def __init__(self, child: Child, number: int) -> None:
        self.child, self.number = child, number

    def snapshot(self) -> str:
        """Its contents now (`sgdec.testing.snapshot`)."""
        return repr(self.child.ask("image", state=self.number)["image"])


class RemotePredictor(Predictor):
    """A predictor that is in the other process."""

    def __init__(self, child: Child, described: dict[str, Any]) -> None:
        self._child = child
        self._it = described["it"]
        self.max_score = _number(described["max_score"])
        self.on_demand = described["on_demand"] is True
        self._abilities = tuple(map(str, described["abilities"]))

    def __copy__(self) -> RemotePredictor:
        other = object.__new__(RemotePredictor)
        other.__dict__.update(self.__dict__)
        other._it = self._child.ask("copy", it=self._it)["it"]
        return other

    def __getattr__(self, name: str) -> Callable[[Sequence[RemoteState]], list[Any]]:
        if name in self.__dict__.get("_abilities", ()):
            return partial(self._ability, name)
        raise AttributeError(f"the submission has no {name!r}")

    def initialize(self, source: Source) -> None:
        self._child.ask("initialize", it=self._it, source=_plain_source(source))

    def predict_next(self, candidates: Candidates | None = None) -> Scores:
        asked = None if candidates is None else [int(token) for token in candidates]
        return _scores(self._child.ask("predict", it=self._it, candidates=asked)["scores"])

    def consume(self, token: int) -> None:
        self._child.ask("consume", it=self._it, token=int(token))

    def get_state(self) -> RemoteState:
        return RemoteState(self._child, self._child.ask("get state", it=self._it)["state"])

    def set_state(self, state: RemoteState) -> None:
        self._child.ask("set state", it=self._it, state=state.number)

    def _ability(self, name: str, states: Sequence[RemoteState]) -> list[Any]:
        numbers = [state.number for state in states]
        found = self._child.ask("ability", it=self._it, name=name, states=numbers)["values"]
        if not isinstance(found, list):
            raise Broken(f"{name} must return a sequence with one value per state, not {found!r}")
        return found


class RemoteDecoder(Decoder):
    """A decoder that is in the other process, while the space of its search is here."""

    _searches = count()

    def __init__(self, child: Child, described: dict[str, Any]) -> None:
        self._child = child
        self._it = described["it"]
        self.ranking = Ranking(**described["ranking"])
        if self.ranking.uses_coverage:
            raise Broken("in the course no ranking can use coverage (beta)")
        self.exact = described["exact"] is True  # type: ignore[misc]
        self.ranks_by = str(described["ranks_by"])

    def decode(self, space: SearchSpace) -> Result:
        """The claims of the decoder; the checks compare them with what is true."""
        search = next(self._searches)
        asked = _Asked(space)
        answer = self._child.ask(
            "decode", it=self._it, search=search, source=_plain_source(space.source), weights=list(space.weights),
            nbest=space.nbest, seed=space.seed, max_score=space.max_score,
        )  # fmt: skip
        while "result" not in answer:
            found = asked.answer(answer)
            answer = self._child.ask("continue", search=search, answer=found)
        return _result(answer["result"])


class _Asked:
    """The space of one search, and the nodes that the decoder knows by their numbers."""

    def __init__(self, space: SearchSpace) -> None:
        self._space = space
        self._nodes = [space.root]
        self._iterators: list[Iterator[Node]] = []
        self._key_numbers: dict[Any, int] = {}
        self._verbs: dict[str, Callable[..., dict[str, Any]]] = {
            "expand": self._expand, "more": self._more, "best_children": self._best_children, "sample": self._sample,
            "bound": self._bound, "keys": self._keys, "require_end": self._require_end,
        }  # fmt: skip

    def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        """The answer of the space. Raises AssertionError if it expands too much, Broken if it asks wrongly."""
        try:
            verb, arguments = self._verbs[question["needs"]], dict(question["with"])
        except (KeyError, TypeError, ValueError):
            raise Broken("something else wrote in the place of an answer") from None
        try:
            found = verb(**arguments)
        except (SgdecError, ValueError) as error:
            kinds = (UsageError, SgdecError, ValueError)
            found = {"error": str(error), "kind": next(kind.__name__ for kind in kinds if isinstance(error, kind))}
        except (TypeError, IndexError, KeyError, OverflowError) as error:
            raise Broken(f"{question['needs']} was called with wrong arguments: {error}") from None
        return {**found, "expansions": self._space.expansions}

    def _expand(
        self, nodes: list[int], limit: int | None, above: float, bounded: bool, lazy: bool
    ) -> dict[str, Any]:
        known = self._known(nodes)
        if limit is None or lazy:
            families = self._space.expand(known, limit, above, bounded, lazy=True)
            self._iterators += families
            return {"iterators": list(range(len(self._iterators) - len(families), len(self._iterators)))}
        lists = self._space.expand(known, limit, above, bounded)
        return {"families": [self._new(children) for children in lists]}

    def _more(self, iterator: int, count: int) -> dict[str, Any]:
        return {"children": self._new(list(islice(self._iterators[iterator], count)))}

    def _best_children(self, beam: list[int], **options: Any) -> dict[str, Any]:
        known = self._known(beam)
        return {"nodes": self._with_parents(beam, known, self._space.best_children(known, **options))}

    def _sample(self, nodes: list[int], numbers: list[int], **options: Any) -> dict[str, Any]:
        known = self._known(nodes)
        return {"nodes": self._with_parents(nodes, known, self._space.sample(known, numbers, **options))}

    def _bound(self, nodes: list[int]) -> dict[str, Any]:
        return {"bounds": self._space.bound(self._known(nodes))}

    def _keys(self, nodes: list[int]) -> dict[str, Any]:
        """Only which keys are equal, as numbers: the keys themselves can be any values."""
        numbers = self._key_numbers
        return {"keys": [numbers.setdefault(key, len(numbers)) for key in self._space.keys(self._known(nodes))]}

    def _require_end(self, nodes: list[int] | None) -> dict[str, Any]:
        self._space.require_end(None if nodes is None else self._known(nodes))
        return {}

    def _known(self, numbers: list[int]) -> list[Node]:
        if len(numbers) > MOST_NODES:
            raise Broken(f"a question about more than {MOST_NODES:,} nodes")
        if any(type(number) is not int or number < 0 for number in numbers):
            raise Broken("a node of another space")
        return [self._nodes[number] for number in numbers]

    def _new(self, children: Sequence[Node]) -> list[tuple[Any, ...]]:
        """The nodes as a decoder gets them, with new numbers."""
        first = len(self._nodes)
        self._nodes += children
        return [
            (number, node.last, node.total, node.scores, node.bound) for number, node in enumerate(children, first)
        ]

    def _with_parents(
        self, numbers: Sequence[int], parents: Sequence[Node], found: Sequence[Node | None]
    ) -> list[dict[str, Any] | None]:
        """Nodes that the decoder knows already, or children of nodes that it knows."""
        known = {id(node): number for number, node in zip(numbers, parents, strict=True)}
        prefixes = {(node.tokens, node.weights): number for number, node in zip(numbers, parents, strict=True)}
        answer: list[dict[str, Any] | None] = []
        for node in found:
            if node is None:
                answer.append(None)
            elif id(node) in known:
                answer.append({"known": known[id(node)]})
            else:
                parent = prefixes[node.tokens[:-1], node.weights]
                answer.append({"parent": parent, "child": self._new([node])[0]})
        return answer


def _plain_source(source: Source) -> dict[str, Any]:
    return {"id": source.id, "tokens": list(source.tokens), "text": source.text, "max_length": source.max_length}


def _scores(said: Any) -> Scores:
    try:
        if "type" in said:
            raise Broken(f"predict_next must return Scores, not {said['type']}")
        if "dense" in said:
            return Scores.dense(np.asarray(said["dense"], dtype=np.float64))
        parts = [Scores.sparse(tokens, scores, default) for tokens, scores, default in said["rows"]]
    except (TypeError, ValueError, KeyError, OverflowError) as error:
        raise Broken(f"predict_next must return rows of numbers: {error}") from None
    return parts[0] if len(parts) == 1 else Scores.stack(parts)


def _result(said: Any) -> Result:
    try:
        if "type" in said:
            raise Broken(f"decode must return a Result, not {said['type']}")
        if len(said["hypotheses"]) > LONGEST_LIST:
            raise Broken(f"a list of more than {LONGEST_LIST:,} hypotheses")
        hypotheses = [_hypothesis(each) for each in said["hypotheses"]]
        proven, gap = said["proven"], said["gap"]
    except (TypeError, ValueError, KeyError, OverflowError) as error:
        raise Broken(f"decode must return a Result of hypotheses: {error}") from None
    return Result(hypotheses, None if proven is None else proven is True, None if gap is None else _number(gap))


def _hypothesis(said: Any) -> Hypothesis:
    if "type" in said:
        raise Broken(f"a Result must list hypotheses (space.finish), not {said['type']}")
    tokens = said["tokens"]
    if len(tokens) > LONGEST_OUTPUT:
        raise Broken(f"a hypothesis of more than {LONGEST_OUTPUT:,} tokens")
    if any(type(token) is not int for token in tokens):
        raise Broken(f"tokens must be integers, not {tokens}")
    ledger = tuple(tuple(map(_number, row)) for row in said["ledger"])
    weights = tuple(tuple(None if weight is None else _number(weight) for weight in row) for row in said["weights"])
    return Hypothesis(tuple(tokens), _number(said["score"]), _number(said["rank_score"]), ledger, weights)


def _number(said: Any) -> float:
    if isinstance(said, bool) or not isinstance(said, int | float):
        raise Broken(f"expected a number, found {said!r:.80}")
    return float(said)
