"""Searches of sgdec inside ``generate()`` of Hugging Face's `transformers`, as its argument ``custom_generate``.

``generate()`` prepares its inputs and calls the object that `custom_generate` returns in place of its own search. The
model in memory becomes the predictor ``hf``, the prompts become sources, and the lists that a search finds become the
rows that ``generate()`` returns. The run is that of `sgdec.load`, and its results are the same.

Whatever ``generate()`` was asked for is followed, or refused with a line that says what to give instead:

- a setting that the call changes is one of `FOLLOWED`, `IRRELEVANT` or `OUTPUTS`;
- a rule on scores, which ``generate()`` turns into a logits processor, is one of `RULES`: it is a predictor here, or
  `hf` follows it by itself (`sgdec_predictors.pretrained.rules`);
- a stopping criterion is one of `ENDS`;
- an input of the model is one of `INPUTS`.

Settings that the model itself has for a search, such as the ``num_beams`` of its ``generation_config.json``, have no
effect, because the search is another one. `transformers` 5.23 does not tell a callable of the arguments ``streamer``,
``assistant_model`` and ``synced_gpus``: they have no effect either. A version that passes them on would find them
refused.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sgdec.decoder import Decoder
from sgdec.errors import UsageError, counted
from sgdec.library import LoadedRun, parts_of, plugin_files, prepare
from sgdec.plugins.host import Host
from sgdec.plugins.predictor_list import entries_of
from sgdec.settings import Settings

if TYPE_CHECKING:
    from torch import Tensor

    from sgdec.found import Found, FoundHypothesis
    from sgdec.text.roles import Roles

log = logging.getLogger(__name__)

RULES = {
    "RepetitionPenaltyLogitsProcessor": "repetition_penalty",
    "NoRepeatNGramLogitsProcessor": "no_repeat_ngram_size",
    "MinLengthLogitsProcessor": "min_length",
    "MinNewTokensLengthLogitsProcessor": "min_new_tokens",
    "NoBadWordsLogitsProcessor": "bad_words_ids",
    "SuppressTokensLogitsProcessor": "suppress_tokens",
    "SuppressTokensAtBeginLogitsProcessor": "begin_suppress_tokens",
    "ForcedBOSTokenLogitsProcessor": "forced_bos_token_id",
    "ForcedEOSTokenLogitsProcessor": "forced_eos_token_id",
}
"""The logits processors that are followed, with the settings that ask for them."""
NEUTRAL = {"repetition_penalty": 1.0, "no_repeat_ngram_size": 0, "min_length": 0, "min_new_tokens": 0}
"""The values that ask for nothing; None is another."""
SAMPLING = frozenset(
    f"{name}LogitsWarper" for name in ("Temperature", "TopK", "TopP", "TopH", "MinP", "Typical", "Epsilon", "Eta")
)
"""The logits processors of sampling. They are part of a search, and no rule on scores."""
ENDS = frozenset({"MaxLengthCriteria", "EosTokenCriteria"})
FOLLOWED = frozenset({
    *RULES.values(), "max_length", "max_new_tokens", "num_return_sequences", "bos_token_id", "eos_token_id",
    "pad_token_id", "decoder_start_token_id",
})  # fmt: skip
IRRELEVANT = frozenset({
    "use_cache", "cache_implementation", "cache_config", "max_cache_len", "prefill_chunk_size", "compile_config",
    "disable_compile", "transformers_version",
})  # fmt: skip
"""How ``generate()`` computes, which changes no output."""
OUTPUTS = frozenset({"return_dict_in_generate", "output_scores"})
INPUTS = frozenset({
    "attention_mask", "position_ids", "past_key_values", "cache_params", "cache_position", "encoder_outputs",
    "use_cache", "logits_to_keep",
})  # fmt: skip
"""The inputs that ``generate()`` prepares for the model. They are read here, or made again."""
INSTEAD = {
    "num_beams": "The decoder has its own size: beam={'size': 4}, and nbest=4 lists more hypotheses.",
    "length_penalty": "Give beam={'alpha': 0.6, 'normalize': 'length'} to sgdec.custom_generate.",
    "early_stopping": "Give beam={'stop': 'hf-true'} to sgdec.custom_generate.",
    "do_sample": "Give sgdec.custom_generate the decoder 'sample', 'stochastic' or 'mbr'.",
    "temperature": "Give sample={'temperature': 0.7} to sgdec.custom_generate.",
    "top_k": "Give sample={'top_k': 50} to sgdec.custom_generate.",
    "top_p": "Give sample={'top_p': 0.9} to sgdec.custom_generate.",
    "max_time": "Some decoders have an option that limits seconds or expansions.",
}
"""By setting, what to give in its place."""


def custom_generate(
    decoder: str | type[Decoder] | Decoder = "beam",
    predictors: str | Mapping[str, Any] = "hf",
    *,
    nbest: int | None = None,
    tokenizer: Any = None,
    plugin_file: Sequence[str | Path] | str | Path = (),
    **options: Any,
) -> InsideGenerate:
    """A search of sgdec as the argument ``custom_generate`` of ``generate()`` of `transformers`.

        model.generate(**inputs, max_new_tokens=40, custom_generate=sgdec.custom_generate("dfs"))

    ``predictors``: those of `sgdec.load`; ``hf`` is the model of the call. ``nbest``: the number of rows for each
    prompt; None = ``num_return_sequences``. ``tokenizer``: the model's, an object of `transformers` or a folder, for
    parts that need text, and for data whose tokens have the numbers of `sgdec.load`. ``options``: the settings of
    `sgdec.load`, and the options of each part by its name, ``dfs={"max_expansions": 1000}``. ``generate()`` has the
    length limit. Unless they are given, ``device`` is that of the model, and ``max_source_length`` 0.

    ``generate()`` returns token ids ``[prompts * nbest, width]``, the best hypothesis of each prompt first. With
    ``return_dict_in_generate`` it returns them as ``sequences``, and the scores that sort lists, natural logs for
    most decoders, as ``sequences_scores``. If a list is shorter than ``nbest``, equal draws of a decoder that draws
    are repeated: ``sample`` with ``samples`` = ``nbest`` returns all of its draws. Rows that still lack a hypothesis
    have only the prompt and padding, and the score -inf, and a warning counts the prompts with such rows.

    Raises UsageError for an unknown setting. ``generate()`` then raises UsageError for what the search cannot follow
    and for calls that `sgdec.load` would refuse, and SgdecError for a prompt without any hypothesis.
    """
    return InsideGenerate(decoder, predictors, nbest, tokenizer, plugin_file, options)


class InsideGenerate:
    """The callable that `custom_generate` makes. It keeps its predictors for the next call with the same model and
    settings."""

    def __init__(
        self,
        decoder: str | type[Decoder] | Decoder,
        predictors: str | Mapping[str, Any],
        nbest: int | None,
        tokenizer: Any,
        plugin_file: Sequence[str | Path] | str | Path,
        options: Mapping[str, Any],
    ) -> None:
        for name in ("max_length", "max_length_factor"):
            if name in options:
                raise UsageError(f"sgdec.custom_generate has no {name}: give max_new_tokens to generate().")
        self._decoder, self._predictors, self._nbest = decoder, predictors, nbest
        self._tokenizer = tokenizer
        self._files = plugin_files(plugin_file)
        given = {name: options[name] for name in options if name in Settings.__dataclass_fields__}
        self._device = given.get("device")
        self._settings = Settings.of({"max_source_length": 0, **given, "nbest": nbest})
        others = {name: options[name] for name in options if name not in given}
        self._parts = parts_of(others, self._files, predictors, decoder)
        named = [part.plugin for entry in entries_of(predictors) for part in entry.every]
        if "hf" not in named:
            raise UsageError(f"predictors {predictors!r} do not name hf, the model of generate().")
        self._kept: tuple[Any, LoadedRun] | None = None
        self.found: list[Found] = []
        """The results of the last call by prompt, with proofs and ledgers."""

    def __call__(
        self,
        model: Any,
        input_ids: Tensor,
        logits_processor: Sequence[Any],
        stopping_criteria: Sequence[Any],
        generation_config: Any,
        inputs_tensor: Tensor,
        **inputs: Any,
    ) -> Any:
        """The search, as ``generate()`` calls it.

        ``input_ids``: ``[prompts * n, width]``, what precedes the new tokens, each row n times. ``inputs_tensor``:
        ``[prompts, S]``, what the prompts are. ``inputs``: all that the model would be given besides.
        """
        from sgdec.text.model_folder import read_tokenizer
        from sgdec.text.roles import roles_of

        if isinstance(self._tokenizer, (str, Path)):
            self._tokenizer = read_tokenizer(self._tokenizer)
        _refuse_settings(model, generation_config)
        _refuse_rules(logits_processor, stopping_criteria, generation_config, model.config.is_encoder_decoder)
        _refuse_inputs(inputs)
        if model.training:
            raise UsageError("the model is in training mode, so its scores are random: call model.eval().")
        roles = roles_of(model.config, generation_config, self._tokenizer)
        step = len(input_ids) // len(inputs_tensor)
        begun = input_ids[::step]
        if roles.seq2seq and begun.tolist() != [[roles.decoder_start]] * len(begun):
            raise UsageError("outputs of sgdec begin with decoder_start_token_id alone. Leave out decoder_input_ids.")
        prompts = _prompts(inputs_tensor, inputs, step, roles)
        run = self._loaded(model, generation_config, roles, begun.shape[1])
        self.found = list(run.decode(prompts, errors="raise"))
        return _returned(self.found, begun, run.settings.nbest, generation_config, roles)

    def _loaded(self, model: Any, config: Any, roles: Roles, width: int) -> LoadedRun:
        """The run for one call. ``width``: the number of ids that precede the new ones."""
        forced = len(_forced(roles))
        settings = self._settings_of(model, config, config.max_length - width, forced)
        shortest = max(0, (config.min_length or 0) - width - forced)
        lengths = ("max_length", "min_length")  # they count prompts
        values = {name: repr(value) for name, value in _public(config).items() if name not in lengths}
        key = (id(model), model.device, model.dtype, settings, shortest, values)
        if self._kept is None or self._kept[0] != key:
            host = _HostOfModel(self._files, model, config, roles, self._tokenizer)
            rules = _as_predictors(config, roles, shortest)
            plugins = {name: plugin for name, (plugin, _) in rules.items()}
            parts = {**self._parts, **{name: options for name, (_, options) in rules.items()}}
            predictors: str | dict[str, Any]
            if isinstance(self._predictors, str):
                predictors = ",".join([self._predictors, *map("=".join, plugins.items())])
            else:
                predictors = {**self._predictors, **plugins}
            self._kept = key, prepare(predictors, self._decoder, parts, settings, host)
        return self._kept[1]

    def _settings_of(self, model: Any, config: Any, new: int, forced: int) -> Settings:
        """The settings of a run whose outputs have up to ``new`` ids, ``forced`` of them first."""
        if (longest := new - forced - 1) < 1:  # the end counts in generate()
            first = " and begin with a forced one" if forced else ""
            raise UsageError(
                f"max_new_tokens={new} leaves no room: outputs of sgdec end with an end token{first}. "
                f"Give at least {forced + 2}."
            )
        nbest = config.num_return_sequences
        if self._nbest is not None:
            if nbest not in (1, self._nbest):
                raise UsageError(f"num_return_sequences={nbest}, but sgdec.custom_generate has nbest={self._nbest}.")
            nbest = self._nbest
        device = self._device or (str(model.device) if model.device.type == "cuda" else "cpu")
        return replace(self._settings, nbest=nbest, device=device, max_length=longest)


class _HostOfModel(Host):
    """The plugins of a run, in which ``hf`` is the model of a call."""

    def __init__(
        self, files: Sequence[str | Path], model: Any, config: Any, roles: Roles, tokenizer: Any
    ) -> None:
        super().__init__(files)
        self._model = super().load("predictor", "hf@sgdec").holding(model, config, tokenizer)
        if _asked(config, "repetition_penalty"):
            self._model = self._penalised(self._model, config.repetition_penalty, roles)

    def load(self, kind: str, name: str) -> type[Any]:
        return self._model if (kind, name) == ("predictor", "hf") else super().load(kind, name)

    def _penalised(self, plugin: Any, penalty: float, roles: Roles) -> type[Any]:
        """The plugin inside the wrapper ``repetition``, with the plugin's own options."""
        wrapper: Any = super().load("predictor", "repetition@sgdec")
        seen: dict[str, Any] = {"prompt": True}
        if roles.decoder_start is not None:
            begun = roles.numbering.numbers[[roles.decoder_start, *_forced(roles)]]
            seen = {"seen": tuple(begun.tolist())}

        @wraps(plugin.__init__)
        def begin(self: Any, **options: Any) -> None:
            wrapper.__init__(self, plugin(**options), penalty, **seen)

        own = {"__init__": begin, "read_vocabularies": classmethod(lambda _, **__: plugin.read_vocabularies())}
        return type("Penalised", (wrapper,), own)


def _as_predictors(config: Any, roles: Roles, shortest: int) -> dict[str, tuple[str, dict[str, Any]]]:
    """By setting, the predictor that follows it, with its options."""
    found: dict[str, tuple[str, dict[str, Any]]] = {}
    if _asked(config, "no_repeat_ngram_size"):
        options = {"order": config.no_repeat_ngram_size, "prompt": not roles.seq2seq}
        found["no_repeat_ngram_size"] = "norepeat", options
    if shortest:
        found["min_new_tokens"] = "minlength", {"tokens": shortest}
    return found


def _forced(roles: Roles) -> list[int]:
    """The ids that must begin every output."""
    return [roles.forced_bos] if roles.seq2seq and roles.forced_bos is not None else []


def _public(config: Any) -> dict[str, Any]:
    return {name: value for name, value in vars(config).items() if not name.startswith("_")}


def _refuse_settings(model: Any, config: Any) -> None:
    """Raise UsageError if the call changes a setting of the model and the search does not follow it."""
    unset = type(config)()
    neutral = {**_public(unset), **getattr(unset, "_get_default_generation_params", dict)()}
    own = neutral | {name: value for name, value in _public(model.generation_config).items() if value is not None}
    for name, value in sorted(_public(config).items()):
        if name not in FOLLOWED | IRRELEVANT | OUTPUTS and value != own.get(name):
            instead = INSTEAD.get(name, "Leave it out.")
            raise UsageError(f"{name}={value!r} has no effect on a search of sgdec. {instead}")


def _refuse_rules(processors: Sequence[Any], criteria: Sequence[Any], config: Any, seq2seq: bool) -> None:
    """Raise UsageError if a rule on scores, or on the end of a search, is not followed."""
    followed = {name for name, setting in RULES.items() if _asked(config, setting)}
    if not seq2seq:
        followed.discard("ForcedBOSTokenLogitsProcessor")  # what a prompt of one token would be followed by
    if config.do_sample:
        followed |= SAMPLING
    for processor in processors:
        if (name := type(processor).__name__) not in followed:
            setting = RULES.get(name)
            way = f"Give {setting} to generate()" if setting else "Leave out what asks for it, or give a predictor"
            raise UsageError(f"{name} changes scores, and sgdec does not apply it. {way}.")
    for criterion in criteria:
        if (name := type(criterion).__name__) not in ENDS:
            raise UsageError(f"{name} would end generate(), but not a search of sgdec. Leave it out.")


def _asked(config: Any, setting: str) -> bool:
    return getattr(config, setting) not in (None, NEUTRAL.get(setting))


def _refuse_inputs(inputs: Mapping[str, Any]) -> None:
    """Raise UsageError if ``generate()`` was given more for the model than token ids."""
    for name, value in inputs.items():
        if name not in INPUTS and value is not None and value is not False:
            raise UsageError(f"{name} has no effect on a search of sgdec, where a model reads ids. Leave it out.")
    for name in ("past_key_values", "cache_params"):
        if getattr(inputs.get(name), "_is_user_defined", False):  # generate() marks what it did not make itself
            raise UsageError(f"sgdec remembers by itself what a model has read. Leave out {name}.")


def _prompts(ids: Tensor, inputs: Mapping[str, Any], step: int, roles: Roles) -> list[tuple[int, ...]]:
    """The sources are rows of ids ``[prompts, S]`` without padding, in the numbers of sgdec.

    Each row of the ``inputs`` is repeated ``step`` times. Raises UsageError if the model does not have the ids, if
    padding is inside a source or on the right of a causal model's prompt, or if positions do not begin with 0.
    """
    import torch

    numbers = roles.sources.numbers
    if ids.ndim != 2 or ids.is_floating_point() or not bool(((ids >= 0) & (ids < len(numbers))).all()):
        raise UsageError(f"sgdec reads token ids, here 0 to {len(numbers) - 1}: give generate() these as input_ids.")
    mask, positions = inputs.get("attention_mask"), inputs.get("position_ids")
    read = torch.ones_like(ids, dtype=torch.bool) if mask is None else mask[::step] != 0
    prompts = []
    for row, used in enumerate(read.cpu()):
        places = used.nonzero()[:, 0]
        first = len(used) - len(places) if not roles.seq2seq else int(places[0]) if len(places) else 0
        if not torch.equal(places, torch.arange(first, first + len(places))):
            side = "inside it" if roles.seq2seq else "not on its left: give the tokenizer padding_side='left'"
            raise UsageError(f"prompt {row + 1}: the attention_mask has padding {side}.")
        if positions is not None and positions.ndim == 2:
            counted = positions[row * step % len(positions)].cpu()[places]
            if not torch.equal(counted, torch.arange(len(places))):
                raise UsageError(f"prompt {row + 1}: sgdec counts positions from 0. Leave out position_ids.")
        prompts.append(tuple(numbers[ids[row].cpu()[places].numpy()].tolist()))
    return prompts


def _drawn(listed: Sequence[FoundHypothesis], nbest: int) -> list[FoundHypothesis]:
    """A list that is shorter than ``nbest``, with equal draws repeated as often as they were drawn, best first."""
    lacking = nbest - len(listed)
    rows = []
    for hypothesis in listed:
        more = min((hypothesis.count or 1) - 1, lacking) if hypothesis.log_weight is None else 0
        rows += [hypothesis] * (1 + more)
        lacking -= more
    return rows


def _returned(found: Sequence[Found], begun: Tensor, nbest: int, config: Any, roles: Roles) -> Any:
    """The result of ``generate()``. ``begun``: ``[prompts, width]``, the ids that precede the new ones."""
    import torch

    end = roles.eos[0]
    pad = end if config.pad_token_id is None else config.pad_token_id
    forced = _forced(roles)
    rows, scores = [], []
    for each, first in zip(found, begun.tolist(), strict=True):
        listed = _drawn(each.hypotheses[:nbest], nbest)
        for hypothesis in listed:
            rows.append([*first, *forced, *roles.numbering.ids[list(hypothesis.tokens)].tolist(), end])
            scores.append(float(hypothesis.rank_score))
        lacking = nbest - len(listed)
        rows += [first] * lacking
        scores += [-math.inf] * lacking
    if short := sum(score == -math.inf for score in scores[nbest - 1 :: nbest]):
        log.warning(
            f"{short} of {counted(len(found), 'prompt')} {'has' if short == 1 else 'have'} fewer than nbest={nbest} "
            "hypotheses: the rows that lack one have only padding after the prompt, and the score -inf."
        )
    width = max(map(len, rows))
    padded = [[*row, *[pad] * (width - len(row))] for row in rows]
    sequences = torch.tensor(padded, dtype=torch.long, device=begun.device)
    if not config.return_dict_in_generate:
        return sequences
    from transformers.generation import GenerateBeamDecoderOnlyOutput, GenerateBeamEncoderDecoderOutput

    output = GenerateBeamEncoderDecoderOutput if roles.seq2seq else GenerateBeamDecoderOnlyOutput
    return output(sequences, sequences_scores=torch.tensor(scores, dtype=torch.float32, device=begun.device))
