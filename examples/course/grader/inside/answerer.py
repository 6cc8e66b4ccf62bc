"""The questions that can be asked, and their answers; values that JSON lacks are in `values`."""

from __future__ import annotations

import copy
import traceback
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import Any

from greenlet import greenlet

from sgdec.decoder import Decoder
from sgdec.errors import SgdecError
from sgdec.lifting import Lowered
from sgdec.plugins.host import Host
from sgdec.protocol import ABILITIES, BatchPredictor, Predictor, Source, ability

from .probing import probe
from .space import Space
from .values import image, plain, plain_result, plain_scores


class Answerer:
    """All that was made of the submission so far, by numbers that the grader knows."""

    def __init__(self) -> None:
        self._class: Any = None
        self._file: Path | None = None
        self._made: list[Any] = []
        self._states: list[Any] = []
        self._keys: dict[Hashable, int] = {}
        self._searches: dict[int, greenlet] = {}
        self._asked: dict[str, Callable[..., dict[str, Any]]] = {
            "are you there": dict, "probe": probe, "load": self._load, "make": self._make, "copy": self._copy,
            "initialize": self._initialize, "predict": self._predict, "consume": self._consume,
            "get state": self._get_state, "set state": self._set_state, "image": self._image,
            "ability": self._ability, "decode": self._decode, "continue": self._continue,
        }  # fmt: skip

    def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        """The answer, or in ``error`` what was raised, in one line."""
        try:
            return self._asked[question["ask"]](**question["with"])
        except BaseException as error:  # a submission can raise anything, also SystemExit
            return {"error": self._said(error)}

    def _load(self, file: str, kind: str, plugin: str) -> dict[str, Any]:
        self._file = Path(file)
        self._class = Host([file], autoload=False).load(kind, plugin)
        return {}

    def _make(self, options: dict[str, Any]) -> dict[str, Any]:
        made = self._class(**options)
        if isinstance(made, BatchPredictor):
            made = Lowered(made)
        self._made.append(made)
        return {"it": len(self._made) - 1, **_described(made)}

    # Predictors.

    def _copy(self, it: int) -> dict[str, Any]:
        self._made.append(copy.copy(self._made[it]))
        return {"it": len(self._made) - 1}

    def _initialize(self, it: int, source: dict[str, Any]) -> dict[str, Any]:
        self._made[it].initialize(_source(source))
        return {}

    def _predict(self, it: int, candidates: list[int] | None) -> dict[str, Any]:
        return {"scores": plain_scores(self._made[it].predict_next(candidates))}

    def _consume(self, it: int, token: int) -> dict[str, Any]:
        self._made[it].consume(token)
        return {}

    def _get_state(self, it: int) -> dict[str, Any]:
        self._states.append(self._made[it].get_state())
        return {"state": len(self._states) - 1}

    def _set_state(self, it: int, state: int) -> dict[str, Any]:
        self._made[it].set_state(self._states[state])
        return {}

    def _image(self, state: int) -> dict[str, Any]:
        return {"image": image(self._states[state])}

    def _ability(self, it: int, name: str, states: list[int]) -> dict[str, Any]:
        method = getattr(_inner(self._made[it]), name)
        found = method([self._states[state] for state in states])
        if name == "state_key":  # any hashable values: the grader needs to know only which ones are equal
            return {"values": [self._keys.setdefault(key, len(self._keys)) for key in found]}
        return {"values": plain(found)}

    # Decoders. A search runs until it needs its space, and continues with the answer; so several can be under way.

    def _decode(self, it: int, search: int, source: dict[str, Any], **space: Any) -> dict[str, Any]:
        decoder: Decoder = self._made[it]

        def run() -> dict[str, Any]:
            here = Space(self._ask, _source(source), decoder.ranking, **space)
            return {"result": plain_result(decoder.decode(here))}  # type: ignore[arg-type]

        self._searches[search] = greenlet(run)
        return self._go(search)

    def _continue(self, search: int, answer: dict[str, Any]) -> dict[str, Any]:
        return self._go(search, answer)

    def _go(self, search: int, *given: Any) -> dict[str, Any]:
        found: dict[str, Any] = self._searches[search].switch(*given)
        if self._searches[search].dead:
            del self._searches[search]
        return found

    def _ask(self, verb: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Ask the grader's space: what a search calls."""
        answer: dict[str, Any] = greenlet.getcurrent().parent.switch({"needs": verb, "with": arguments})
        return answer

    def _said(self, error: BaseException) -> str:
        name = "" if isinstance(error, SgdecError) else f"{type(error).__name__}: "
        text = " ".join(f"{name}{error}".split()).removesuffix(":")
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if self._file and frame.filename == str(self._file)]
        place = f" ({Path(own[-1].filename).name}, line {own[-1].lineno})" if own else ""
        return (text if len(text) <= 300 else f"{text[:297]}...") + place


def _described(made: Predictor | Decoder) -> dict[str, Any]:
    """All that the grader has to know of an instance before it calls it."""
    if isinstance(made, Decoder):
        ranking = {name: getattr(made.ranking, name) for name in ("alpha", "beta", "normalize", "length_offset")}
        return {"ranking": ranking, "exact": bool(made.exact), "ranks_by": str(made.ranks_by)}
    inner = _inner(made)
    return {
        "max_score": float(inner.max_score),
        "on_demand": bool(inner.on_demand),
        "abilities": [name for name in ABILITIES if ability(inner, name) is not None],
    }


def _inner(made: Any) -> Any:
    return made.predictor if isinstance(made, Lowered) else made


def _source(given: dict[str, Any]) -> Source:
    tokens: Sequence[int] = given["tokens"]
    return Source(given["id"], tuple(tokens), given["text"], given["max_length"])
