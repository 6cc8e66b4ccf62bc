"""Feed-forward n-gram language model: ln P(token | the n - 1 tokens before it) (Vaswani et al. 2013, section 2).

The model is a checkpoint of ``sgdec train --model nplm``, or a text file that NPLM itself wrote (`sgdec.io.nplm` has
the format). A state is the window of the last n - 1 tokens, at first all ``<s>``; equal windows have equal futures.

A text file has its own words. The word of a token is its piece in the target vocabulary, or its id if the run has no
vocabulary (``<unk>``, ``<s>``, ``</s>`` for 0, 1, 2). A token whose word the file does not list is its ``<unk>``.
Scores are normalised over the words of the file, which NPLM itself omits by default: they are those of its
``normalization`` option. So they sum to one over the tokens if these are the words of the file, one to one.

Cost: consuming is free; a prediction is one run through the hidden layers and one softmax over V, many rows at once.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

import sgdec
from sgdec import BOS, EOS, BatchPredictor, Context, Scores, SgdecError, Source, UsageError
from sgdec.context import UNK, Vocabularies
from sgdec.protocol import Candidates

if TYPE_CHECKING:
    from torch import Tensor

    from sgdec.models.kernels import MatrixProducts
    from sgdec.models.nplm import NPLM

Window = tuple[int, ...]
SPECIAL = {UNK: "<unk>", BOS: "<s>", EOS: "</s>"}


class NplmPredictor(BatchPredictor):
    """A feed-forward language model from `sgdec train` or from NPLM."""

    max_score = 0.0

    def __init__(
        self,
        model: Annotated[str, Field(description="checkpoint folder, such as 'run/best', or NPLM's own text file")],
        context: Context | None = None,
    ) -> None:
        """Raises SgdecError if the model is damaged or of another kind, UsageError if it shares no word with the
        vocabulary."""
        context = context or Context()
        self._device, self._precision = context.device, context.precision
        self._columns: Tensor | None = None
        """For a text file: the index of each token's word."""
        if Path(model).is_file():
            self._model, self._columns = _from_text(model, context)
        else:
            self._model = _from_checkpoint(model, context)
        self._first: Window = (BOS,) * (self._model.order - 1)

    @classmethod
    def read_vocabularies(cls, model: str) -> Vocabularies:
        """The target vocabulary of a checkpoint, without loading its weights; a text file has none."""
        if Path(model).is_file():
            return Vocabularies()
        from sgdec.checkpoints.layout import load_vocabularies

        return load_vocabularies(model)

    @property
    def products(self) -> MatrixProducts:
        """How the model's products are computed here."""
        from sgdec.models.kernels import MatrixProducts

        return MatrixProducts(self._precision, self._device, self._model.packed)

    def initialize_batch(self, sources: Sequence[Source]) -> list[Window]:
        return [self._first] * len(sources)

    def predict_batch(
        self, states: Sequence[Window], candidates: Sequence[Candidates | None] | None = None
    ) -> Scores:
        import torch

        with torch.inference_mode():
            windows = torch.tensor(states, device=self._device)  # [rows, n - 1]
            logits = self._model.project(self._model.output(windows))
            logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
            scores = torch.log_softmax(logits, -1)  # [rows, V]
            return Scores.dense(scores if self._columns is None else scores[:, self._columns])

    def consume_batch(self, states: Sequence[Window], tokens: Sequence[int]) -> list[Window]:
        return [(*window[1:], token) for window, token in zip(states, tokens, strict=True)]

    def state_key(self, states: Sequence[Window]) -> list[Hashable]:
        return list(states)


def _from_checkpoint(path: str, context: Context) -> NPLM:
    from sgdec.checkpoints.loading import load_language_model
    from sgdec.models.nplm import NPLM

    model, _ = load_language_model(path, device=context.device, precision=context.precision, host=context.host)
    if not isinstance(model, NPLM):
        raise SgdecError(
            f"{path}: this is a {type(model).__name__}, whose inputs are more than a window. Use the predictor rnnlm."
        )
    return model


def _from_text(path: str, context: Context) -> tuple[NPLM, Tensor]:
    """A model whose inputs are tokens and whose outputs are the file's words; and for each token its word [V]."""
    import torch

    from sgdec.checkpoints.loading import DTYPES, make_ready
    from sgdec.files import read_nplm
    from sgdec.models.nplm import NPLM

    if context.precision not in DTYPES:
        raise UsageError(f"{path}: a language model cannot be loaded in 8 bits. Give --precision fp32.")
    spelled = _spelled(path, context)
    file = read_nplm(path)
    inputs, outputs = (_places(path, words, spelled) for words in (file.input_words, file.output_words))
    model = make_ready(NPLM.of_file(file, inputs), device=context.device, precision=context.precision)
    return model, torch.tensor(outputs, device=context.device)


def _spelled(path: str, context: Context) -> list[str]:
    """The word of each token."""
    vocabulary, size = context.vocabularies.target, context.vocab_size
    if vocabulary is not None:
        return [SPECIAL.get(token) or vocabulary.piece(token) for token in range(vocabulary.size)]
    if size is None:
        raise UsageError(
            f"{path}: the tokens of its words are unknown. Give --tokenizer, or --vocab-size for token ids."
        )
    return [SPECIAL.get(token) or str(token) for token in range(size)]


def _places(path: str, words: Sequence[str], spelled: Sequence[str]) -> list[int]:
    """The index of each token's word among the model's ``words``."""
    place = {word: i for i, word in enumerate(words)}
    listed = [word for word in spelled[len(SPECIAL) :] if word in place]
    missing = [word for word in spelled if word not in place]
    if not listed:
        theirs = ", ".join(repr(word) for word in words if word not in SPECIAL.values())
        raise UsageError(
            f"{path}: this model shares no word with the target vocabulary. Looked for "
            f"{', '.join(map(repr, spelled[3:6]))}, ...; it has {theirs[:60]}. Use a model over the same tokens."
        )
    if missing and SPECIAL[UNK] not in place:
        raise SgdecError(
            f"{path}: this model has no <unk>, so {len(missing)} tokens have no score, such as {missing[-1]!r}."
        )
    return [place.get(word, place.get(SPECIAL[UNK], 0)) for word in spelled]


@sgdec.hookimpl
def sgdec_predictors() -> dict[str, type[BatchPredictor]]:
    return {"nplm": NplmPredictor}
