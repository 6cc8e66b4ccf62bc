r"""N-gram language model: the score of token w is ``ln p(w | the tokens before it)`` under a back-off model.

The model is an ARPA file (``.gz`` too) or a KenLM binary (Heafield 2011), which is mapped into memory. The prefix
starts in ``<s>``; token 2 is the model's ``</s>``, token 1 its ``<s>`` (scored as the model lists it, mostly log10
-99), and a token whose word the model does not list is its ``<unk>`` (log10 -100 if it lists none, as in KenLM).
State: the longest history that the model distinguishes from shorter ones. Also registered as ``kenlm`` and ``srilm``.

The highest score of any token is computed from an ARPA file when it is loaded; if back-off weights are positive, it
can be above 0. A KenLM binary does not list its n-grams, so the user gives the highest score (``max_score``): without
it, searches run but prove nothing.

An ARPA model offers three relaxations: the model itself, then the highest (and lowest) score of a token after the
last token, then after any. The last two are computed when a search first asks for them.

Cost: it is asked on demand, and scores the few candidates that other predictors leave, from a cache. Without
candidates a row is exact over the whole vocabulary: from an ARPA file a copy of the unigrams and one write for each
n-gram that the model lists after the history; from a KenLM binary one look-up per token, which is slow: give the
ARPA file. With ``--device cuda`` the rows of an ARPA model are computed on the GPU.

KenLM binaries need nothing of KenLM; ``engine = kenlm`` reads them through its Python module instead, with the same
scores.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import cached_property, lru_cache, partial
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol, cast

import numpy as np
import numpy.typing as npt
from pydantic import Field

import sgdec
from sgdec import BOS, EOS, BatchPredictor, Context, Scores, SgdecError, Source, UsageError
from sgdec.arrays import Copies, Floats, Ints, namespace
from sgdec.files import read_arpa
from sgdec.protocol import Arcs, Candidates, Listed, SparseRow, Steps
from sgdec.relaxations import Relaxation
from sgdec.scores import TokenLists
from sgdec_predictors.ngrams.backoff import UNKNOWN, BackoffTable
from sgdec_predictors.ngrams.backoff_relaxed import AfterAnything, AfterLastWord, AtHistory
from sgdec_predictors.ngrams.kenlm import KenlmModel
from sgdec_predictors.ngrams.kenlm_header import MAGIC
from sgdec_predictors.ngrams.kenlm_module import KenlmModule
from sgdec_predictors.ngrams.words import MAX_ID, ids_among, require_overlap, spelling, unlisted, vocabulary_size

if TYPE_CHECKING:
    from sgdec_predictors.ngrams.device_rows import DeviceRows

KEPT = 1 << 16
"""The number of histories whose computed scores are cached."""
MANY = 256
"""For more candidates than this a full row is computed, if full rows are cheap."""
MANY_ROWS = 32
"""At least this many prefixes are scored as arrays; for fewer, per-call costs would outweigh cached scores."""
LISTED = 1 << 20
"""The symbols of at most this many tokens are kept as an array."""
ROUNDING = 1e-5
"""KenLM adds up float32 numbers: a score may exceed the user's ``max_score`` by this much."""


class LanguageModel(Protocol):
    """The common interface of `BackoffTable`, `KenlmModel` and `KenlmModule`. Histories are hashable values."""

    start: Any

    def rows(self, histories: Sequence[Any]) -> npt.NDArray[np.float32]: ...
    def score(self, history: Any, word: str) -> float: ...
    def symbol(self, word: str) -> Any: ...
    def step(self, history: Any, symbol: Any) -> tuple[float, Any]: ...


class NGram(BatchPredictor):
    r"""N-gram language model: ln p of a token, from an ARPA file or a KenLM binary.

    >>> import math, tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "lm.arpa")
    ...     lines = ["\\data\\", "ngram 1=3", "", "\\1-grams:", "-99 <s>", "-0.5 </s>", "-0.25 7", "", "\\end\\", ""]
    ...     _ = path.write_text("\n".join(lines))
    ...     ngram = NGram(str(path), context=Context(vocab_size=10))
    >>> states = ngram.initialize_batch([Source(1, (4, 4))])
    >>> values = ngram.predict_batch(states).values
    >>> [f"{values[0, token] / math.log(10):.2f}" for token in (2, 7, 8)]
    ['-0.50', '-0.25', '-100.00']
    """

    on_demand = True
    independent_rows = True
    arcs_of_tensors = True

    def __init__(
        self,
        path: Annotated[str, Field(description="an ARPA file (.gz too) or a KenLM binary")],
        words: Annotated[
            str,
            Field(description="the model's words: ids, pieces, or a file with 'word id' on each line"),
        ] = "ids",
        max_score: Annotated[
            float | None,
            Field(
                allow_inf_nan=False,
                description="for a KenLM binary: the highest ln p of any token, needed for proofs",
            ),
        ] = None,
        engine: Annotated[
            Literal["mapped", "kenlm"],
            Field(description="for a KenLM binary: sgdec's own reader, or the Python module kenlm"),
        ] = "mapped",
        context: Context | None = None,
    ) -> None:
        """Raises UsageError if model and vocabulary share no entry, SgdecError for a damaged file."""
        context = context or Context()
        self._given: float | None = None
        """The highest score according to the user."""
        self._spell, listed = spelling(words, context)
        size = vocabulary_size(context)
        self._model: LanguageModel
        self._table: BackoffTable | None = None
        """The same model, if it lists its n-grams: full rows are cheap."""
        self._numbered: BackoffTable | KenlmModel | None = None
        """The same model, if it scores arrays: its histories are numbers."""
        self._device_rows: DeviceRows | None = None
        """Full rows on the device of neural models, if it is not the CPU."""
        if not _is_kenlm_binary(path):
            arpa = read_arpa(path)
            tokens = range(size) if size is not None else sorted({BOS, EOS, *(listed or ids_among(arpa.words))})
            columns = [self._spell(token) for token in tokens]
            lists: Callable[[str], bool] = set(arpa.words).__contains__
            require_overlap(path, words, columns, lists, arpa.words)
            try:
                self._model = self._table = self._numbered = BackoffTable(arpa, columns)
            except SgdecError as error:
                raise SgdecError(f"{path}: {error}.") from None
            self.max_score = self._table.highest_score()
            if max_score is not None:
                raise UsageError(
                    f"ngram: {path} lists its n-grams, so its max_score is known ({self.max_score:.4g}): omit the "
                    "option. It is for KenLM binaries."
                )
            if engine != "mapped":
                raise UsageError(f"ngram: {path} is an ARPA file: omit engine, which is for KenLM binaries.")
            if context.device != "cpu" and size is not None:
                from sgdec_predictors.ngrams.device_rows import DeviceRows

                self._device_rows = DeviceRows(self._table, context.device)
        else:
            tokens = range(size) if size is not None else sorted(listed)
            columns = [self._spell(token) for token in tokens]
            model = KenlmModel(path, columns) if engine == "mapped" else _kenlm_module(path, columns)
            self._model = model
            if isinstance(model, KenlmModel):
                self._numbered, self.arcs_of_tensors = model, False
            if max_score is not None:
                self.max_score = self._given = max_score
            lists = model.__contains__
            require_overlap(path, words, columns or map(str, range(MAX_ID)), lists)
        self._unlisted = None
        if words not in ("ids", "pieces"):
            spelled = [self._spell(token) for token in listed if token > EOS]
            self._unlisted = unlisted([word for word in spelled if word != UNKNOWN], lists)
        self._tokens = None if size is not None else tokens
        """The token of each column, if V is unknown."""
        self._symbols = _Symbols(self._model, self._spell, size)
        if self._numbered is not None:
            self.arcs = self._arcs
        if self._table is not None:
            self.relaxations = self._relaxations
        self._known = lru_cache(KEPT)(partial(_Memory, self._step))

    def summary(self) -> str | None:
        """Return the line at the end of a run: which words of the file ``words`` the model does not list."""
        return self._unlisted

    def initialize_batch(self, sources: Sequence[Source]) -> list[Hashable]:
        return [self._model.start] * len(sources)

    def predict_batch(
        self, states: Sequence[Hashable], candidates: Sequence[Candidates | None] | None = None
    ) -> Scores:
        if isinstance(candidates, TokenLists) and self._numbered is not None and len(states) >= MANY_ROWS:
            _, _, flat, _ = self._arcs(np.array(states), (candidates.offsets, candidates.tokens))
            return Scores.of_candidates(candidates, flat)
        if candidates is None or self._want_full_rows(candidates):
            return self._full_rows(states)
        wanted = [() if tokens is None else tokens for tokens in candidates]
        if self._numbered is not None and len(states) >= MANY_ROWS:
            histories = np.repeat(np.array(states), list(map(len, wanted)))
            tokens = np.fromiter(chain.from_iterable(wanted), np.int64)
            return Scores.of_candidates(candidates, self._step_all(histories, tokens)[0])
        remembered = map(self._known, states)
        scores = [known[token][0] for known, tokens in zip(remembered, wanted, strict=True) for token in tokens]
        return Scores.of_candidates(candidates, np.array(scores))

    def consume_batch(self, states: Sequence[Hashable], tokens: Sequence[int]) -> list[Hashable]:
        if self._numbered is not None and len(states) >= MANY_ROWS:
            _, after = self._numbered.step_all(np.array(states), self._symbols.all(np.array(tokens)))
            return list(after.tolist())
        return [self._known(state)[token][1] for state, token in zip(states, tokens, strict=True)]

    def steps(self, state: Hashable, candidates: Candidates | None) -> Steps:
        """Raises ValueError without candidates, because rows of an open predictor list no tokens."""
        if candidates is None:
            raise ValueError("ngram takes steps among candidates only")
        known = self._known(state)
        found = [known[token] for token in candidates]
        return candidates, [score for score, _ in found], [after for _, after in found]

    def _arcs(self, states: Ints, candidates: Listed | None) -> Arcs:
        """The ability `arcs`. Raises ValueError without candidates, as `steps` does."""
        if candidates is None:
            raise ValueError("ngram has arcs among candidates only")
        offsets, tokens = candidates
        histories = namespace(states).repeat(states, offsets[1:] - offsets[:-1])
        return offsets, tokens, *self._step_all(histories, tokens)

    def _step_all(self, histories: Ints, tokens: Ints) -> tuple[Floats, Ints]:
        """Raises SgdecError for a score above the user's ``max_score``."""
        assert self._numbered is not None
        scores, after = self._numbered.step_all(histories, self._symbols.all(tokens))
        if self._given is not None and scores.max(initial=self._given) > self._given + ROUNDING:
            highest = int(scores.argmax())
            raise _too_high(self._spell(int(tokens[highest])), float(scores[highest]), self._given)
        return scores, after

    def _relaxations(self, state: Hashable) -> Sequence[Relaxation]:
        """The ability `relaxations`: the model itself, and orders 2 and 1; the same for all sentences."""
        return self._relaxed

    @cached_property
    def _relaxed(self) -> tuple[Relaxation, ...]:
        assert self._table is not None
        after_last_word = AfterLastWord(self._table, self._symbols.all)
        coarser = after_last_word, AfterAnything(after_last_word)
        return coarser if self._table.order <= 2 else (AtHistory(self._table, self._symbols.all), *coarser)

    def state_key(self, states: Sequence[Hashable]) -> list[Hashable]:
        return list(states)

    def _step(self, history: Any, token: int) -> tuple[float, Hashable]:
        """Raises SgdecError for a score above the user's ``max_score``."""
        score, after = self._model.step(history, self._symbols[token])
        if self._given is not None and score > self._given + ROUNDING:
            raise _too_high(self._spell(token), score, self._given)
        return score, after

    def _want_full_rows(self, candidates: Sequence[Candidates | None]) -> bool:
        sizes = [len(tokens) for tokens in candidates if tokens is not None]
        return len(sizes) < len(candidates) or (self._table is not None and max(sizes, default=0) > MANY)

    def _full_rows(self, states: Sequence[Hashable]) -> Scores:
        if self._device_rows is not None:
            return Scores.dense(self._device_rows.rows(cast("Sequence[int]", states)))
        rows = self._model.rows(states)
        if self._given is not None and rows.max(initial=self._given) > self._given + ROUNDING:
            column = int(rows.max(axis=0).argmax())
            token = column if self._tokens is None else self._tokens[column]
            raise _too_high(self._spell(token), float(rows[:, column].max()), self._given)
        if self._tokens is None:
            return Scores.dense(rows)
        if not self._tokens:
            raise UsageError("a KenLM binary does not list its words: give --vocab-size, or the model's ARPA file")
        unlisted = [self._model.step(state, self._model.symbol(UNKNOWN))[0] for state in states]
        return Scores(
            rows=[SparseRow(self._tokens, row.tolist(), default) for row, default in zip(rows, unlisted, strict=True)]
        )


class _Symbols(dict[int, Any]):
    """The model's symbol of each token, looked up on first use."""

    def __init__(self, model: LanguageModel, spell: Callable[[int], str], vocab_size: int | None) -> None:
        self._model = model
        self._spell = spell
        self._listed = np.zeros(0, np.int64)
        """The symbols of the first tokens."""
        self._copies: Copies[Ints] = Copies(lambda listed, put: put(listed))
        self._size = vocab_size

    def __missing__(self, token: int) -> Any:
        symbol = self[token] = self._model.symbol(self._spell(token))
        return symbol

    def all(self, tokens: Ints) -> Ints:
        """The symbols of tokens ``[n]``, if symbols are numbers."""
        end = int(tokens.max()) + 1 if len(tokens) else 0
        if end > LISTED:
            xp, symbols = namespace(tokens), list(map(self.__getitem__, tokens.tolist()))
            found: Ints = xp.asarray(symbols, dtype=xp.int64, device=tokens.device)
            return found
        if end > len(self._listed):
            size = max(end, self._size or 2 * len(self._listed))
            self._listed = np.fromiter(map(self.__getitem__, range(size)), np.int64)
            self._copies.drop()
        return self._copies.beside(self._listed, tokens)[tokens]


class _Memory(dict[int, tuple[float, Hashable]]):
    """The scores of tokens after one history, and the histories after them, computed on first use."""

    __slots__ = ("_history", "_step")

    def __init__(self, step: Callable[[Any, int], tuple[float, Hashable]], history: Hashable) -> None:
        self._step = step
        self._history = history

    def __missing__(self, token: int) -> tuple[float, Hashable]:
        found = self[token] = self._step(self._history, token)
        return found


def _kenlm_module(path: str, columns: Sequence[str]) -> KenlmModule:
    try:
        return KenlmModule(path, columns)
    except ImportError as error:
        raise SgdecError(
            f"ngram: engine kenlm: {error}. Omit the option, or build the module: pip install kenlm (it needs a C++ "
            "compiler and cmake)."
        ) from None


def _too_high(word: str, score: float, highest: float) -> SgdecError:
    return SgdecError(
        f"ngram: the token {word!r} scores {score:.6g}, which is above the given max_score, {highest:g}. "
        "Proofs would be wrong: give a higher max_score, or the model's ARPA file."
    )


def _is_kenlm_binary(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError as error:
        raise SgdecError(f"{path}: cannot be read ({error.strerror}).") from None


@sgdec.hookimpl
def sgdec_predictors() -> dict[str, type[BatchPredictor]]:
    return {"ngram": NGram, "kenlm": NGram, "srilm": NGram}
