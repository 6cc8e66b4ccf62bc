"""Hugging Face models: log P(token | prefix, source) of a seq2seq or causal model of `transformers`.

The encoder of a seq2seq model reads the source. For a causal model, the source precedes the output. With ``prompt``
or ``chat``, the source is part of a text that the model reads. This is computed once for each sentence.

The tokens 0, 1 and 2 are ``<unk>``, ``<s>`` and ``</s>`` as everywhere; `sgdec.text.numbering` says what numbers the
ids of a model have. Further ids that end a text count as ``</s>`` (``ends``). Whatever the search, it follows the
model's generation settings where they force or forbid tokens: the first tokens of an output, which are then no part
of it, its end at the length limit, ``bad_words_ids``, ``suppress_tokens`` and ``begin_suppress_tokens``. What is
forced scores 0. Other settings, such as the number of beams, are options of predictors and decoders; a line at the
end of a run names them. Where a model has no more positions, ``</s>`` is the only token.

A state has the keys and values of its tokens in slots, which prefixes with the same beginning share, or its recurrent
states (`sgdec_predictors.pretrained.prefixes`). The last token is read when the next one is predicted.

Cost: one step of the model and one softmax over V for each prefix whose scores are asked for, many prefixes at once.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, cast

from pydantic import Field

import sgdec
from sgdec import EOS, BatchPredictor, Context, Scores, SgdecError, Source, UsageError
from sgdec.context import Vocabularies
from sgdec.protocol import Candidates
from sgdec_predictors.wrapping.own_sources import in_own_tokens

if TYPE_CHECKING:
    from torch import Tensor

    from sgdec.models.kernels import MatrixProducts
    from sgdec.vocabularies import PretrainedVocabulary, Roles
    from sgdec_predictors.pretrained.prefixes import Prefix, Prefixes

log = logging.getLogger("sgdec.predictors.hf")

NEW_TOKENS = 256
"""The default limit on the output of a causal model."""
Ends: TypeAlias = Literal["best", "log-sum"]


@dataclass(frozen=True, slots=True)
class _Sentence:
    """The data that all prefixes of one sentence share."""

    limit: int | None
    """The largest number of tokens before ``</s>``."""
    room: float
    """The number of tokens for which the model has positions."""
    place: slice
    """The source's own tokens among those that the model reads."""


@dataclass(eq=False, slots=True)
class HfState:
    """One prefix."""

    prefix: Prefix
    sentence: _Sentence
    length: int
    """The number of its tokens."""
    last: tuple[int, ...]
    """The last ids, of what precedes the output too: as many as decide which words are forbidden."""


class HfPredictor(BatchPredictor):
    """A model of `transformers`."""

    max_score = 0.0
    products: MatrixProducts | None = None
    """How products are computed here; None for a model that was not loaded here."""

    def __init__(
        self,
        model: Annotated[
            str, Field(description="folder with config.json and model.safetensors, or a name in the local cache")
        ],
        prompt: Annotated[
            str | None,
            Field(description=r"what the model reads, with {source} for the source and \n for a line break"),
        ] = None,
        chat: Annotated[
            bool, Field(description="true: the source (or the prompt) is a user's message in the chat template")
        ] = False,
        source: Annotated[
            bool, Field(description="false: a causal model does not read the source, as a language model")
        ] = True,
        source_language: Annotated[
            str | None, Field(description="the tokenizer's code of the source language, such as en_XX")
        ] = None,
        target_language: Annotated[
            str | None, Field(description="the code of the output's language, forced as its first token")
        ] = None,
        ends: Annotated[
            Ends, Field(description="score of </s> if several ids end a text: their best, or that of their sum")
        ] = "best",
        attention: Annotated[
            int | None,
            Field(description="layer that gives attention, for coverage and copying (seq2seq models); -1 = the last"),
        ] = None,
        download: Annotated[
            bool, Field(description="true: download what the local cache lacks from huggingface.co")
        ] = False,
        context: Context | None = None,
    ) -> None:
        from sgdec.models.kernels import MatrixProducts
        from sgdec.vocabularies import read_roles
        from sgdec_predictors.pretrained.folder import find_folder, reading, vocabularies_in
        from sgdec_predictors.pretrained.loading import load_module
        from sgdec_predictors.pretrained.packing import is_packed
        from sgdec_predictors.pretrained.prompts import Reader

        context = context or Context()
        folder = find_folder(model, download=download)
        roles = read_roles(folder, target_language=target_language)
        if roles.seq2seq and chat:
            raise UsageError(f"hf: chat is for causal models; the encoder of {model} reads no chat.")
        if roles.seq2seq and not source:
            raise UsageError(f"hf: source false is for causal models; the encoder of {model} needs the source.")
        if attention is not None and (not roles.seq2seq or prompt is not None):
            what = "in a prompt the source's tokens are not known" if roles.seq2seq else f"{model} is a causal model"
            raise UsageError(f"hf: attention needs an encoder that reads the source alone, and {what}.")
        languages = {"source_language": source_language, "target_language": target_language}
        vocabularies = vocabularies_in(folder, **languages)
        if roles.seq2seq and vocabularies.source is None:
            _note_bare_sources(model)
        vocabulary = cast("PretrainedVocabulary | None", vocabularies.source)
        reader = Reader(prompt, chat, vocabulary, source=source)
        if vocabulary and vocabulary.has_chat_template and source and not (chat or vocabulary.mark_in(prompt or "")):
            _note_chat_template(model)
        attends = attention is not None
        module = context.once(
            ("hf", folder.resolve(), attends), partial(load_module, folder, context, attention=attends)
        )
        self.products = MatrixProducts(context.precision, context.device, is_packed(module))
        with reading(folder, "the settings of the model cannot be used"):
            settings = module.generation_config
            self._begin_with(module, settings, roles, vocabularies, reader, context, ends, attention)

    @classmethod
    def read_vocabularies(
        cls,
        model: str,
        source_language: str | None = None,
        target_language: str | None = None,
        download: bool = False,
        **others: Any,
    ) -> Vocabularies:
        """The vocabularies of a model's tokenizer, without loading its weights."""
        from sgdec_predictors.pretrained.folder import find_folder, vocabularies_in

        folder = find_folder(model, download=download)
        return vocabularies_in(folder, source_language=source_language, target_language=target_language)

    @classmethod
    def of(
        cls, module: Any, *, ends: Ends = "best", attention: int | None = None, context: Context | None = None
    ) -> HfPredictor:
        """A predictor of a model of `transformers` that is loaded already; sources are what it reads.

        Raises UsageError for an object that is not a language model, SgdecError for one that `probe` refuses.
        """
        if getattr(module, "generation_config", None) is None:
            raise UsageError(f"HfPredictor.of takes a model that can generate, not a {type(module).__name__}.")
        found: HfPredictor = cls.holding(module.eval(), module.generation_config)(ends, attention, context)
        return found

    @classmethod
    def holding(cls, module: Any, settings: Any, tokenizer: Any = None) -> Any:
        """The class of predictors of one model, which is loaded already and in evaluation mode: as a plugin it has no
        options that find a model.

        ``settings``: the ``GenerationConfig`` to follow. ``tokenizer``: an object of `transformers`; None = there are
        no vocabularies. Sources are what the model reads. Raises SgdecError as `roles_of`; the constructor raises it
        for a model that `probe` refuses.
        """
        from sgdec.vocabularies import PretrainedVocabulary, roles_of
        from sgdec_predictors.pretrained.prompts import Reader

        roles, vocabularies = roles_of(module.config, settings, tokenizer), Vocabularies()
        if tokenizer is not None:
            sides = (PretrainedVocabulary(tokenizer, roles, side) for side in ("source", "target"))
            vocabularies = Vocabularies(*sides)

        class Holding(HfPredictor):
            """`HfPredictor` with a loaded model."""

            def __init__(
                self, ends: Ends = "best", attention: int | None = None, context: Context | None = None
            ) -> None:
                context = context or Context()
                self._begin_with(module, settings, roles, vocabularies, Reader(), context, ends, attention)

            @classmethod
            def read_vocabularies(cls, *_: Any, **__: Any) -> Vocabularies:
                return vocabularies

        return Holding

    def _begin_with(
        self,
        module: Any,
        settings: Any,
        roles: Roles,
        vocabularies: Vocabularies,
        reader: Any,
        context: Context,
        ends: Ends,
        attention: int | None,
    ) -> None:
        import torch

        from sgdec.models.kernels import packs
        from sgdec_predictors.pretrained.causal import Continuations
        from sgdec_predictors.pretrained.probe import probe
        from sgdec_predictors.pretrained.rules import Rules
        from sgdec_predictors.pretrained.seq2seq import Translations

        self.vocabularies = vocabularies
        self._roles, self._reader, self._ends = roles, reader, ends
        self._run_source = context.vocabularies.source
        self._settings = settings
        self._rules = Rules.of(self._settings, roles)
        self._positions = _positions(module.config.get_text_config(decoder=True), "decoder")
        self._readable = self._positions
        """The number of tokens of a source that the model can read."""
        if roles.seq2seq:
            self._readable = _positions(module.config.get_text_config(encoder=True), "encoder")
        self._first: tuple[int, ...] = ()
        """The ids with which every output of a seq2seq model begins."""
        together = not context.deterministic
        shared_in = torch.bfloat16 if context.precision == "int8" and packs(torch.bfloat16) else None
        if roles.seq2seq:
            if roles.decoder_start is None:
                raise SgdecError("hf: decoder_start_token_id is missing in generation_config.json.")
            self._first = (roles.decoder_start, *(() if roles.forced_bos is None else (roles.forced_bos,)))
            self._prefixes: Prefixes = Translations(
                module, self._first, together=together, shared_in=shared_in, attention=attention
            )
        else:
            self._prefixes = Continuations(module, together=together, shared_in=shared_in)
        probe(self._prefixes, roles, self._first, exact=context.precision != "int8")
        if attention is None:
            vars(self)["attention"] = None  # hides that of the class
        ids, numbers, device = roles.numbering.ids, roles.numbering.numbers, self._prefixes.device
        moved = (ids != range(len(ids))).nonzero()[0]
        self._moved = torch.tensor(moved, device=device)
        self._moved_ids = torch.tensor(ids[moved], device=device)
        self._other_ends = torch.tensor(numbers[list(roles.eos[1:])], device=device)
        self._banned = torch.tensor(self._rules.banned, dtype=torch.long, device=device)

    def initialize_batch(self, sources: Sequence[Source]) -> list[HfState]:
        """Raises `SgdecError` for a source that is empty, too long for the model, or not in its vocabulary."""
        import torch

        sources = in_own_tokens(sources, self._run_source, self.vocabularies.source)
        read = [self._read(source) for source in sources]
        with torch.inference_mode():
            prefixes = self._prefixes.begin(read)
        states = []
        for source, ids, prefix in zip(sources, read, prefixes, strict=True):
            before = self._first if self._roles.seq2seq else ids
            sentence = _Sentence(source.max_length, self._positions - len(before), self._reader.place(source))
            states.append(HfState(prefix, sentence, 0, self._remembered(before)))
        return states

    def predict_batch(
        self, states: Sequence[HfState], candidates: Sequence[Candidates | None] | None = None
    ) -> Scores:
        import torch

        asked = [row for row, state in enumerate(states) if not self._must_end(state)]
        with torch.inference_mode():
            if len(asked) == len(states):
                return Scores.dense(self._scores(states))
            precision = torch.promote_types(self._prefixes.module.dtype, torch.float32)
            size = len(states), self._roles.numbering.size
            scores = torch.full(size, -math.inf, dtype=precision, device=self._prefixes.device)
            scores[:, EOS] = 0.0
            if asked:
                scores[asked] = self._scores([states[row] for row in asked])
            return Scores.dense(scores)

    def _scores(self, states: Sequence[HfState]) -> Tensor:
        """``[rows, V]``"""
        import torch

        logits = self._prefixes.logits([state.prefix for state in states])
        precision = torch.promote_types(logits.dtype, torch.float32)
        scores = torch.log_softmax(logits.to(precision), dim=-1)
        self._forbid(scores, states)  # before </s> gets the score of several ids
        scores = self._numbered(scores)
        for row, state in enumerate(states):
            if state.length >= state.sentence.room:  # the model has no more positions
                end = float(scores[row, EOS])
                scores[row] = -math.inf
                scores[row, EOS] = end
        return scores

    def consume_batch(self, states: Sequence[HfState], tokens: Sequence[int]) -> list[HfState]:
        import torch

        ids = self._roles.numbering.ids[list(tokens)].tolist()
        with torch.inference_mode():
            prefixes = self._prefixes.after([state.prefix for state in states], ids)
        return [
            HfState(prefix, state.sentence, state.length + 1, self._remembered((*state.last, id)))
            for prefix, state, id in zip(prefixes, states, ids, strict=True)
        ]

    def attention(self, states: Sequence[HfState]) -> list[Any]:
        """For each state the attention ``[source]`` at the prediction of its next token: the shares of the source's
        own tokens, without the marks that the encoder reads with them."""
        import torch

        with torch.inference_mode():
            rows = self._prefixes.attention([state.prefix for state in states])
            own = [row[state.sentence.place].double() for row, state in zip(rows, states, strict=True)]
            return [(row / row.sum().clamp(min=torch.finfo(row.dtype).tiny)).cpu().numpy() for row in own]

    def length_limit(self, source: Source) -> int | None:
        """`NEW_TOKENS`, or the positions that are left after what a causal model reads; None for translations."""
        if self._roles.seq2seq:
            return None
        (own,) = in_own_tokens([source], self._run_source, self.vocabularies.source)
        return int(min(NEW_TOKENS, self._positions - len(self._read(own))))

    def summary(self) -> str | None:
        """The line at the end of a run: settings of the model that are options here."""
        from sgdec_predictors.pretrained.counterparts import not_followed

        return not_followed(self._settings, self._roles)

    def _numbered(self, scores: Tensor) -> Tensor:
        """The columns of scores ``[rows, ids]`` as ``[rows, numbers]``."""
        import torch

        moved = scores[:, self._moved_ids.clamp(min=0)]
        moved[:, self._moved_ids < 0] = -torch.inf
        ends = scores[:, list(self._roles.eos)]
        size = self._roles.numbering.size
        if size > scores.shape[1]:
            wider = scores.new_empty(len(scores), size)
            wider[:, : scores.shape[1]] = scores
            scores = wider
        scores[:, self._moved] = moved
        if len(self._other_ends):
            scores[:, self._other_ends] = -torch.inf
            scores[:, EOS] = ends.amax(dim=1) if self._ends == "best" else ends.logsumexp(dim=1).clamp(max=0.0)
        return scores

    def _forbid(self, scores: Tensor, states: Sequence[HfState]) -> None:
        """Score with -inf what the settings of the model forbid, in scores ``[rows, ids]``."""
        rules = self._rules
        scores[:, self._banned] = -math.inf
        for row, state in enumerate(states):
            banned = list(rules.banned_first) if state.length == 0 else []
            if rules.banned_words:
                banned += rules.forbidden_after(state.last)
            if banned:
                scores[row, banned] = -math.inf

    def _must_end(self, state: HfState) -> bool:
        """Whether the model forces ``</s>``, whose score is 0 then, so that it need not be asked."""
        return self._rules.forced_end and state.length == state.sentence.limit

    def _remembered(self, ids: Sequence[int]) -> tuple[int, ...]:
        memory = self._rules.memory
        return tuple(ids[-memory:]) if memory else ()

    def _read(self, source: Source) -> list[int]:
        """The ids that the model reads of a source. Raises the errors of `initialize_batch`."""
        tokens = self._reader.tokens(source)
        numbering = self._roles.sources
        for token in tokens:
            if not 0 <= token < numbering.size:
                raise SgdecError(f"source token {token} is outside the model's vocabulary 0..{numbering.size - 1}.")
            if numbering.ids[token] < 0:
                raise SgdecError(f"source token {token}: this model has no {('<unk>', '<s>', '</s>')[token]}.")
        ids: list[int] = numbering.ids[list(tokens)].tolist()
        if not ids and not self._roles.seq2seq and self._roles.bos is not None:
            ids = [self._roles.bos]
        if not ids:
            raise SgdecError("the source is empty; this model needs at least one token.")
        if len(ids) > self._readable:
            places = f"{self._readable:.0f} positions"
            raise SgdecError(f"the model would read {len(ids)} tokens, but has {places}. Shorten the source.")
        return ids


@cache
def _note_bare_sources(model: str) -> None:
    log.info(
        f"Note: hf: {model} has no tokenizer, so nothing is added to sources. Encoders expect what a tokenizer adds, "
        "usually 2 (</s>) at the end: give it with the ids."
    )


@cache
def _note_chat_template(model: str) -> None:
    log.info(
        f"Note: hf: {model} has a chat template, which is not used. A model that was tuned on conversations answers "
        "well only in it: --hf.chat true."
    )


def _positions(config: Any, side: str) -> float:
    """The number of tokens for which a model has positions, in its encoder or decoder.

    LongRoPE (Ding et al. 2024) changes the position of every token of a text that is longer than those of the first
    training. What prefixes remember cannot change, so the model ends there.
    """
    names = (f"max_{side}_position_embeddings", "max_position_embeddings", "max_seq_len")
    positions = next((found for name in names if (found := getattr(config, name, None))), math.inf)
    rotary = getattr(config, "rope_parameters", None) or {}
    if rotary.get("rope_type") == "longrope":
        shorter = rotary.get("original_max_position_embeddings")
        positions = min(positions, shorter or getattr(config, "original_max_position_embeddings", None) or positions)
    return positions if positions > 0 else math.inf  # XLNet: -1


@sgdec.hookimpl
def sgdec_predictors() -> dict[str, type[BatchPredictor]]:
    return {"hf": HfPredictor}
