"""A language model in KenLM's binary format, queried through KenLM's Python module (Heafield 2011).

The scores are those of `KenlmModel`, which needs no module. A full row takes one query per column; the last ones are
kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from sgdec.errors import SgdecError
from sgdec.files import LN_10
from sgdec_predictors.ngrams.kenlm_file import check_kenlm

ROWS_KEPT = 256


class KenlmModule:
    """Scores of words after a history; the methods are those of `BackoffTable`. A history is a ``kenlm.State``."""

    def __init__(self, path: str, columns: Sequence[str]) -> None:
        """Raises `SgdecError` if KenLM cannot read the file, and ImportError if the module is not installed."""
        import kenlm

        check_kenlm(path)
        config = kenlm.Config()
        config.show_progress = False
        config.arpa_complain = kenlm.ARPALoadComplain.NONE
        try:
            self._model: Any = kenlm.Model(path, config)
        except (OSError, RuntimeError, UnicodeDecodeError) as error:
            raise SgdecError(f"{path}: KenLM cannot read it: {' '.join(str(error).split())}.") from None
        self._new_state = kenlm.State
        self._columns = columns
        self._row = lru_cache(ROWS_KEPT)(self._score_columns)
        self.start: Any = kenlm.State()
        self._model.BeginSentenceWrite(self.start)

    def __contains__(self, word: str) -> bool:
        return word in self._model

    def rows(self, histories: Sequence[Any]) -> npt.NDArray[np.float32]:
        """``[rows, columns]``: ln p of every column after each history."""
        return np.stack([self._row(history) for history in histories])

    def score(self, history: Any, word: str) -> float:
        """ln p of one word."""
        return self.step(history, word)[0]

    def symbol(self, word: str) -> str:
        """The argument of `step` for a word."""
        return word

    def step(self, history: Any, word: str) -> tuple[float, Any]:
        """ln p of one word, and the history after it."""
        after = self._new_state()
        log10: float = self._model.BaseScore(history, word, after)
        return log10 * LN_10, after  # KenLM's scores are log10

    def _score_columns(self, history: Any) -> npt.NDArray[np.float32]:
        scores = (self.score(history, word) for word in self._columns)
        with np.errstate(over="ignore"):  # an infinite score is an error of the search
            return np.fromiter(scores, np.float32, len(self._columns))
