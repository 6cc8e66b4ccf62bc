"""Assembly of a run, for ``sgdec decode`` and `sgdec.load`: from names and options to a constellation and a decoder.

Classes come from the plugin host, and options are defined by their constructors. Vocabularies come from the
predictors: the classmethod ``read_vocabularies``, called with the options, reads them without loading weights. In a
wrapper it may have a parameter ``inner``, for the vocabularies of the inner predictor. All source vocabularies must
be equal, and all target vocabularies must be equal. If the inner predictor of a wrapper has other vocabularies than
the run, the wrapper has a classmethod ``inner_context``, which derives the inner context from the context and its
options.

A library call can give a class or an object in place of a plugin's name. A class is configured like a plugin's. An
object is used as it is: its only options are those of its entry, and its vocabularies are in its attribute
``vocabularies``.
"""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from sgdec.context import Context, Vocabularies, Vocabulary
from sgdec.decoder import Decoder
from sgdec.device import require_device
from sgdec.errors import UsageError
from sgdec.io.limits import VOCABULARY, real_number
from sgdec.lifting import lift
from sgdec.mixing import Mix
from sgdec.nesting import is_timed, refuse_inner_programs, with_inner_built, with_inner_checked
from sgdec.plugins.host import Host, name_of, no_exit
from sgdec.plugins.options import check, configure, describe, flag, refuse_unused
from sgdec.plugins.parts import Part, construct
from sgdec.plugins.predictor_list import EntryOptions, ListEntry, entries_of
from sgdec.plugins.surface import require_sound
from sgdec.protocol import BatchPredictor, Predictor
from sgdec.search.checking.constellation import CheckedConstellation
from sgdec.search.combination.renormalizing import Renormalized
from sgdec.search.constellation import Constellation
from sgdec.search.member import Member
from sgdec.settings import BoundsKind
from sgdec.suggest import suggest
from sgdec.utility import Utility

if TYPE_CHECKING:
    from sgdec.models.kernels import MatrixProducts


@dataclass(frozen=True)
class RunConfig:
    """The parts of a run."""

    predictors: str | Mapping[str, Any]
    """``[NAME=][WRAPPER:]...PREDICTOR``, separated by commas; or a mapping by name, see `entries_of`."""
    decoder: str | type[Decoder] | Decoder = "beam"
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The options of each part, by the part's name; those of each entry too (`EntryOptions`)."""
    weights: str | None = None
    """A file with other weights for each sentence; the caller applies them."""
    tokenizer: str | None = None
    vocab_size: int | None = None
    device: str = "cpu"
    precision: str = "fp32"
    seed: int = 0
    deterministic: bool = False
    bounds: BoundsKind = "auto"
    check_bounds: bool = False

    @property
    def decoder_name(self) -> str:
        """The name that the decoder's options belong to: its own name, or that of its class."""
        if isinstance(self.decoder, str):
            return name_of(self.decoder)
        return (self.decoder if isinstance(self.decoder, type) else type(self.decoder)).__name__


@dataclass(frozen=True)
class Run:
    """All parts of a run, ready to decode."""

    constellation: Constellation
    decoder: Decoder
    vocabularies: Vocabularies
    config: RunConfig
    host: Host
    entries: tuple[tuple[float, ListEntry], ...]
    """The weight and the list entry of each predictor."""
    options: Mapping[str, Mapping[str, Any]]
    """The options of each part as its constructor received them, by the part's name."""
    threads: int | None = None
    """The number of PyTorch's threads when the run began; None = the present one."""

    @property
    def products(self) -> list[MatrixProducts]:
        """How the models compute their matrix products, each way once."""
        inside = [part for member in self.constellation.members for part in _inside(member.predictor)]
        return list(dict.fromkeys(filter(None, (getattr(part, "products", None) for part in inside))))

    @cached_property
    def signature(self) -> dict[str, str]:
        """The signature that reproduces the run: versions, predictors with weights and options, decoder with options,
        seed.

        Reads all files that options name, to hash them. Includes the number of threads if torch is loaded, and what
        lengths count if the target vocabulary has a ``unit``.
        """
        from sgdec import signature

        config, torch = self.config, sys.modules.get("torch")

        def part(name: str, plugin: Any) -> str:
            return signature.part(name, plugin, config.options.get(name, {}), self.options[name])

        unit = getattr(self.vocabularies.target, "unit", None)
        predictors = [
            f"{signature.exact(weight)}*{entry.said(lambda own: part(own.name, own.plugin))}"
            for weight, entry in self.entries
        ]
        own = {"weights": config.weights, "tokenizer": config.tokenizer, "vocab_size": config.vocab_size}
        hashes = partial(signature.hashes, weights=False)  # of a model's folder, only the tokenizer is read
        return {
            **signature.versions(self.host.third_parties),
            "predictors": ",".join(predictors),
            "decoder": part(config.decoder_name, config.decoder),
            **{name: f"{value}{hashes(value)}" for name, value in own.items() if value is not None},
            **({"lengths": f"in {unit}"} if unit else {}),
            "precision": config.precision,
            "device": config.device,
            **({"threads": str(self.threads or torch.get_num_threads())} if torch else {}),
            "seed": str(config.seed),
        }

    def with_weights(self, weights: Mapping[str, Any], decoding: Mapping[str, Any]) -> Run:
        """The same predictors under other weights, and the decoder with other options; nothing is loaded again.

        ``weights``: by predictor; the others keep theirs. ``decoding``: options of the decoder; the others keep their
        values. What depends on weights, such as bounds, is computed again. Raises UsageError for an unknown
        predictor, a weight that is not a number, and what `assemble` refuses of options.
        """
        names = self.constellation.names
        if unknown := next((name for name in weights if name not in names), None):
            raise UsageError(f"no predictor {unknown!r} in this run. {suggest(unknown, names)}")
        changed = {name: {"weight": _weight(weight, name)} for name, weight in weights.items()}
        if decoding:
            changed[self.config.decoder_name] = dict(decoding)
        before = self.config.options
        after = {name: {**before.get(name, {}), **own} for name, own in changed.items()}
        config = replace(self.config, options={**before, **after})
        entries = tuple(
            (changed[entry.name]["weight"] if entry.name in changed else weight, entry)
            for weight, entry in self.entries
        )
        members = [
            Member(member.name, member.predictor, weight)
            for member, (weight, _) in zip(self.constellation.members, entries, strict=True)
        ]
        constellation = _constellation(config, members, self.constellation.vocab_size)
        decoder, options = self.decoder, self.options
        if decoding:
            context = _context(config, self.vocabularies, self.host)
            part = _decoding(config, context, self.host)
            decoder, options = construct(part, context), {**options, part.name: part.options}
        constellation.require_attention(decoder.ranking)
        return Run(constellation, decoder, self.vocabularies, config, self.host, entries, options)

    @property
    def clock(self) -> str | None:
        """The option by which searches end after some time, so that their results depend on the machine; None = none.
        """
        name = self.config.decoder_name
        options = {**{o.name: o.default for o in describe(type(self.decoder))}, **self.options[name]}
        limits = (f"--{name}.{o} {value:g}" for o, value in options.items() if o.endswith("seconds") and value)
        inner = (f"--{name}.{o} {value}" for o, value in options.items() if is_timed(value))
        return next(chain(limits, inner), None)


def assemble(config: RunConfig, host: Host) -> Run:
    """Assemble a run. Raises UsageError for unknown names or options, different vocabularies, or an empty wrapper."""
    require_device(config.device)
    decoder_name = config.decoder_name
    _class("decoder", config.decoder, host)  # its errors come first
    entries = entries_of(config.predictors, taken=[decoder_name])
    parts = {part.name: _class("predictor", part.plugin, host) for entry in entries for part in entry.every}
    refuse_unused(config.options, [*parts, decoder_name], partial(_how_to_use, host))
    _refuse_options_inside(entries, parts, config.options)
    given = {name: dict(config.options.get(name, {})) for name in [*parts, decoder_name]}
    weights = [_weight(given[entry.name].pop("weight", 1.0), entry.name) for entry in entries]
    renormalized = [_renormalizes(given[entry.name], parts[entry.name], entry.name) for entry in entries]
    chains = [_chain(entry, parts, given) for entry in entries]
    vocabularies = _vocabularies(chains, config.tokenizer)
    context = _context(config, vocabularies, host)
    decoding = _decoding(config, context, host)
    decoder = construct(decoding, context)
    predictors = [_wrap(chain, context) for chain in chains]
    members = [
        Member(entry.name, Renormalized(predictor) if renormalizes else predictor, weight)
        for entry, predictor, weight, renormalizes in zip(entries, predictors, weights, renormalized, strict=True)
    ]
    constellation = _constellation(config, members, context.vocab_size)
    constellation.require_attention(decoder.ranking)
    checked = {part.name: part.options for chain in chains for part in [*chain.every, decoding]}
    return Run(constellation, decoder, vocabularies, config, host, tuple(zip(weights, entries, strict=True)), checked)


def _inside(predictor: Any) -> Iterator[Any]:
    """A predictor and all that are inside of it."""
    yield predictor
    inner = getattr(predictor, "inner", None)
    for each in inner.values() if isinstance(inner, Mapping) else [] if inner is None else [inner]:
        yield from _inside(each)


def check_file(
    predictors: str, decoder: str, options: Mapping[str, Mapping[str, Any]], host: Host, file: str
) -> None:
    """Raise UsageError, which begins with ``file``, for options of parts that it sets and that the run cannot have.

    Options may be missing, because the command line can set them.
    """
    name_of_decoder = name_of(decoder)
    entries = entries_of(predictors, taken=[name_of_decoder])
    parts = {part.name: _class("predictor", part.plugin, host) for entry in entries for part in entry.every}
    parts[name_of_decoder] = _class("decoder", decoder, host)
    try:
        refuse_unused(options, parts, partial(_how_to_use, host))
        _refuse_options_inside(entries, parts, options)
        for name, given in options.items():
            own = dict(given)
            if name in [entry.name for entry in entries]:
                _weight(own.pop("weight", 1.0), name)
                _renormalizes(own, parts[name], name)
            checked = Part(name, parts[name], check(parts[name], own, name=name))
            where = partial(flag, name=name)
            refuse_inner_programs(with_inner_checked(checked, host, where), where)
    except UsageError as error:
        raise UsageError(f"{file}: {error}") from None


def assemble_utility(
    utility: str | type[Utility] | Utility, options: Mapping[str, Any], context: Context, host: Host
) -> Utility:
    """A utility: a plugin's name, a class or an object, with its options. Raises UsageError as `assemble` does."""
    cls = _class("utility", utility, host)
    name = name_of(utility) if isinstance(utility, str) else cls.__name__
    made: Utility = construct(_part(name, utility, cls, {name: options}), context)
    return made


def _context(config: RunConfig, vocabularies: Vocabularies, host: Host) -> Context:
    return Context(
        device=config.device,
        precision=config.precision,
        vocabularies=vocabularies,
        vocab_size=_vocab_size(config.vocab_size, vocabularies.target),
        seed=config.seed,
        deterministic=config.deterministic,
        host=host,
    )


def _constellation(config: RunConfig, members: Sequence[Member], vocab_size: int | None) -> Constellation:
    kind = CheckedConstellation if config.check_bounds else Constellation
    return kind(members, vocab_size=vocab_size, bounds=config.bounds)


def _decoding(config: RunConfig, context: Context, host: Host) -> Part:
    """The decoder's part, with decoders and utilities inside it constructed."""
    name = config.decoder_name
    given = {name: dict(config.options.get(name, {}))}
    part = _part(name, config.decoder, _class("decoder", config.decoder, host), given)
    if part.made is None:
        part = with_inner_built(with_inner_checked(part, host, partial(flag, name=name)), context)
    return part


def _how_to_use(host: Host, name: str) -> str | None:
    """How a run uses the plugin called ``name``; None if there is none."""
    if "@" in name:
        return f"Options belong to the name alone: --{name_of(name)}.OPTION."
    kinds = {entry.kind for entry in host.names() if entry.name == name}
    if "decoder" in kinds:
        return f"It is a decoder: give --decoder {name}, or omit its options."
    if "predictor" in kinds:
        return f"It is a predictor: add {name} to --predictors, or omit its options."
    return None


def _class(kind: str, given: Any, host: Host) -> type[Any]:
    """The class of a plugin, or of the class or object given in its place."""
    if isinstance(given, str):
        return host.load(kind, given)
    cls = given if isinstance(given, type) else type(given)
    if not issubclass(cls, {"decoder": Decoder, "utility": Utility}.get(kind, (Predictor, BatchPredictor))):
        example = {"decoder": "beam", "utility": "chrf"}.get(kind, "ngram")
        raise UsageError(
            f"{given!r} is not a {kind}. Expected the name of a plugin, such as {example!r}, a class, or an object "
            "of one."
        )
    require_sound(cls)
    return cls


def _part(name: str, plugin: Any, cls: type[Any], given: Mapping[str, Mapping[str, Any]]) -> Part:
    """A part with checked options. An object must have no options, because it was created with its own."""
    if isinstance(plugin, (str, type)):
        return Part(name, cls, configure(cls, given[name], name=name))
    if given[name]:
        option = next(iter(given[name]))
        raise UsageError(f"no option --{name}.{option}: {name!r} is an object, and its options are already set.")
    return Part(name, cls, {}, plugin)


def _weight(value: Any, name: str) -> float:
    try:
        weight = real_number(value) if isinstance(value, str) else None if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        weight = None
    if weight is None or not math.isfinite(weight):
        raise UsageError(f"--{name}.weight {value}: expected a number, such as 0.5.")
    return weight


def _renormalizes(given: dict[str, Any], cls: type[Any], name: str) -> bool:
    """Take ``renormalize`` out of an entry's options, unless its class has an option of this name itself."""
    if any(option.name == "renormalize" for option in describe(cls)):
        return False
    options = configure(EntryOptions, {"renormalize": given.pop("renormalize", False)}, name=name)
    return bool(options["renormalize"])


class ConfiguredEntry(NamedTuple):
    """An entry with checked options: its wrappers, outermost first, then its predictor or mix."""

    parts: tuple[Part, ...]
    mixed: Mapping[str, ConfiguredEntry]
    """The parts of the mix by name; empty without a mix."""

    @property
    def every(self) -> list[Part]:
        return [*self.parts, *(part for inside in self.mixed.values() for part in inside.every)]


def _chain(entry: ListEntry, classes: Mapping[str, type[Any]], given: Mapping[str, Any]) -> ConfiguredEntry:
    """Raises UsageError for wrappers without predictors, mixes without parts, and what is neither before others."""
    parts = []
    for place, (name, plugin) in enumerate(entry.parts):
        cls = classes[name]
        if not isinstance(plugin, (str, type)):
            return ConfiguredEntry((_part(name, plugin, cls, given),), {})
        last = place == len(entry.parts) - 1
        mixes, wraps = issubclass(cls, Mix), "inner" in inspect.signature(cls.__init__).parameters
        if mixes and not (last and entry.mixed):
            raise UsageError(f"{plugin!r} mixes several predictors: write {plugin}:PREDICTOR+PREDICTOR.")
        if last and entry.mixed and not mixes:
            raise UsageError(f"{plugin!r} is not a mix of predictors, such as interpolate or contrast.")
        if wraps and last and not mixes:
            better = f"write {plugin}:PREDICTOR" if isinstance(plugin, str) else "give an object of it"
            raise UsageError(f"{plugin!r} wraps another predictor: {better}.")
        if not wraps and not last:
            raise UsageError(
                f"{plugin!r} is not a wrapper; it cannot come before {entry.parts[-1].plugin!r}."
            )
        parts.append(_part(name, plugin, cls, given))
    return ConfiguredEntry(tuple(parts), {inside.name: _chain(inside, classes, given) for inside in entry.mixed})


def _refuse_options_inside(
    entries: Sequence[ListEntry], classes: Mapping[str, type[Any]], options: Mapping[str, Mapping[str, Any]]
) -> None:
    """Raise UsageError for options of entries that are given to a part of a mix."""
    for entry in entries:
        for inside in entry.mixed:
            _refuse_options_inside([inside], classes, options)
            own = [option.name for option in describe(classes[inside.name])]
            for option in inspect.signature(EntryOptions).parameters:
                if option in options.get(inside.name, {}) and option not in own:
                    mix = entry.parts[-1]
                    raise UsageError(
                        f"--{inside.name}.{option}: {inside.name!r} is a part of the mix {mix.name!r}; only the "
                        f"entries of --predictors have this option. What weighs the parts: sgdec plugins {mix.plugin}"
                    )


def _wrap(chain: ConfiguredEntry, context: Context) -> BatchPredictor:
    """Construct the innermost predictors and each mix and wrapper around them, all in the batch form."""
    part, *inside = chain.parts
    if not inside and not chain.mixed:
        return lift(construct(part, context))
    narrowed = getattr(part.cls, "inner_context", None)
    with no_exit(part.name):
        inner_context = context if narrowed is None else narrowed(context, **part.options)
    if inside:
        return lift(construct(part, context, inner=_wrap(ConfiguredEntry(tuple(inside), chain.mixed), inner_context)))
    parts = {name: _wrap(each, inner_context) for name, each in chain.mixed.items()}
    return lift(construct(part, context, inner=parts))


def _vocabularies(chains: list[ConfiguredEntry], tokenizer: str | None) -> Vocabularies:
    """The vocabularies of all entries, which must agree. If outputs are bytes, ``tokenizer`` is that of sources."""
    brought = [(f"predictor {chain.parts[0].name!r}", _brought(chain)) for chain in chains]
    if tokenizer is not None:
        from sgdec.text.byte_vocabulary import ByteVocabulary
        from sgdec.text.vocabulary import load_sides

        source, target = load_sides(tokenizer)
        of_bytes = any(isinstance(vocabularies.target, ByteVocabulary) for _, vocabularies in brought)
        brought.insert(0, (f"--tokenizer {tokenizer}", Vocabularies(source, None if of_bytes else target)))
    return _agreed(brought)


def _agreed(brought: Iterable[tuple[str, Vocabularies]]) -> Vocabularies:
    """The one vocabulary of each side, of owners in words and theirs. Raises UsageError if they differ."""
    found: dict[str, tuple[str, Vocabulary]] = {}
    for who, vocabularies in brought:
        for side, vocabulary in zip(("source", "target"), vocabularies, strict=True):
            if vocabulary is None:
                continue
            first, known = found.setdefault(side, (who, vocabulary))
            if known.fingerprint != vocabulary.fingerprint:
                sizes = f"{known.size} and {vocabulary.size} tokens"
                if known.size == vocabulary.size:
                    sizes = f"{known.size} tokens each, but not the same ones"
                if _forwards(known).fingerprint == _forwards(vocabulary).fingerprint:
                    raise UsageError(
                        f"{first} and {who} write in opposite directions. Decode with one and let the other rescore: "
                        "sgdec score --nbest-list."
                    )
                way = "omit --tokenizer" if first.startswith("--tokenizer") else "write aligned:NAME for one of them"
                raise UsageError(
                    f"{first} and {who} have different {side} vocabularies ({sizes}). All predictors of a run must "
                    f"share one: use models with the same tokenizer, or {way}."
                )
    source, target = (found[side][1] if side in found else None for side in ("source", "target"))
    return Vocabularies(source, target)


def _forwards(vocabulary: Vocabulary) -> Vocabulary:
    """The vocabulary itself, or for a right-to-left model the same vocabulary in left-to-right order."""
    forwards: Vocabulary = getattr(vocabulary, "forwards", vocabulary)
    return forwards


def _brought(chain: ConfiguredEntry) -> Vocabularies:
    """The vocabularies of one entry. A wrapper may replace the vocabularies of its inner predictor."""
    part, *inside = chain.parts
    if part.made is not None:
        other = hasattr(part.cls, "inner_context")  # then its inner predictor has other tokens than the run
        return Vocabularies() if other else part.made.vocabularies
    read = getattr(part.cls, "read_vocabularies", None)
    if read is None:
        return Vocabularies()
    if "inner" in inspect.signature(read).parameters:
        if inside:
            read = partial(read, inner=_brought(ConfiguredEntry(tuple(inside), chain.mixed)))
        else:
            parts = {name: _brought(each) for name, each in chain.mixed.items()}
            if not hasattr(part.cls, "inner_context"):
                _agreed((f"predictor {name!r}", vocabularies) for name, vocabularies in parts.items())
            read = partial(read, inner=parts)
    with no_exit(part.name):
        found: Vocabularies = read(**part.options)
    return found


def _vocab_size(given: int | None, target: Vocabulary | None) -> int | None:
    if given is not None and target is not None and given != target.size:
        raise UsageError(f"--vocab-size {given}, but the target vocabulary has {target.size} tokens; leave it out.")
    if given is not None and given > VOCABULARY.value:
        raise UsageError(f"--vocab-size {given}: each row of scores would have this length. {VOCABULARY.raising}")
    return given if target is None else target.size
