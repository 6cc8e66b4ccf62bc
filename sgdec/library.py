"""sgdec as a library: `load` assembles a run; its `decode` and `score` return results sentence by sentence.

The command line uses the same code: the same parts, the same `Settings` and the same scheduler.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import cached_property
from itertools import zip_longest
from operator import index
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from sgdec.context import Context, Vocabulary
from sgdec.decoder import Decoder
from sgdec.errors import SgdecError, UsageError
from sgdec.found import Found
from sgdec.io.limits import TOKENS
from sgdec.io.sources import SourceReader
from sgdec.io.weights import SentenceWeights
from sgdec.lengths import LengthRule, stated_limit
from sgdec.plugins.assembly import Run, RunConfig, assemble, assemble_utility
from sgdec.plugins.host import Host, name_of
from sgdec.plugins.misplaced import option_of, owner_of
from sgdec.protocol import BatchPredictor, Predictor, Source
from sgdec.ranking import Ranking
from sgdec.search.blame import told
from sgdec.search.bounds.declared import max_score
from sgdec.search.listing import TextOf
from sgdec.search.outcome import Outcome, Unreadable
from sgdec.search.scheduler import Scheduler
from sgdec.search.tracing.meter import Meter
from sgdec.settings import BoundsKind, Penalties, Settings, plain
from sgdec.suggest import suggest
from sgdec.tasks.copying import Copier
from sgdec.tasks.scoring import GivenOutputDecoder, encoded, paired, with_given_output
from sgdec.threads import THREADS
from sgdec.trace.records import Tracing
from sgdec.utility import Utility

Sentence: TypeAlias = str | Sequence[int]
"""Text, or token ids (a list, a tuple or an array)."""
Sentences: TypeAlias = Generator[Source | Unreadable, None, None]
Findings: TypeAlias = Generator[Found, None, None]
"""An iterator over results; closing it ends the searches in progress."""
Errors: TypeAlias = Literal["return", "raise"]
"""The error of a failed sentence is returned in its result, or raised, which ends the run."""


def load(
    predictors: str | Mapping[str, str | type | Predictor | BatchPredictor],
    decoder: str | type[Decoder] | Decoder = "beam",
    *,
    nbest: int = Settings.nbest,
    distinct_text: bool = Settings.distinct_text,
    max_length_factor: float | None = Settings.max_length_factor,
    max_length: int | None = Settings.max_length,
    deterministic: bool = Settings.deterministic,
    bounds: BoundsKind = Settings.bounds,
    check_bounds: bool = Settings.check_bounds,
    copy_unknown: bool = Settings.copy_unknown,
    max_source_length: int = Settings.max_source_length,
    coverage: bool = Settings.coverage,
    weights: str | Path | None = Settings.weights,
    tokenizer: str | Path | None = Settings.tokenizer,
    vocab_size: int | None = Settings.vocab_size,
    batch_size: int = Settings.batch_size,
    window: int | None = Settings.window,
    max_rows: int | None = Settings.max_rows,
    seed: int = Settings.seed,
    device: str = Settings.device,
    precision: str = Settings.precision,
    threads: int | Literal["auto"] = Settings.threads,
    plugin_file: Sequence[str | Path] | str | Path = (),
    **parts: Mapping[str, Any],
) -> LoadedRun:
    """Assemble a run. The settings are those of ``sgdec decode``; see `Settings`.

    ``predictors``: the list of the command line (``"nmt,fst"``), or a mapping from names to plugins, classes and
    objects: ``{"copy": Copy(), "lm": "ngram"}``. ``decoder``: a plugin's name, a class or an object. ``plugin_file``:
    modules with more plugins. ``parts``: the options of each part by its name, ``beam={"size": 5}``; a predictor's
    weight is one of them, ``nmt={"weight": 0.5}``. The options of a decoder given as a class are keyed by the class's
    name.

    >>> run = load("wc", "greedy", wc={"weight": -1.0}, vocab_size=5, max_length=2)
    >>> [found.best.tokens for found in run.decode([[3, 4]])]
    [(0, 0)]

    Raises UsageError for calls that the command line would refuse, SgdecError for a broken plugin or file.
    """
    given = {name: value for name, value in locals().items() if name in Settings.__dataclass_fields__}
    files = plugin_files(plugin_file)
    return prepare(predictors, decoder, parts_of(parts, files, predictors, decoder), Settings.of(given), Host(files))


def parts_of(
    given: Mapping[str, Any], files: Sequence[str | Path], predictors: object, decoder: object
) -> dict[str, dict[str, Any]]:
    """The options of each part, as `prepare` takes them. Raises UsageError if one has another form than a mapping.

    ``files``: modules with more plugins.
    """
    for name, value in given.items():
        if not isinstance(value, Mapping):
            listed = [each for each in (predictors, decoder) if isinstance(each, str)]
            named = re.findall(r"[\w-]+", " ".join(listed))
            raise UsageError(_not_a_part(name, value, Host(files), named))
    return {name: {key: plain(value) for key, value in own.items()} for name, own in given.items()}


def _not_a_part(name: str, value: Any, host: Host, named: Sequence[str]) -> str:
    """The error for ``name=value``, with the call that was meant."""
    if option := option_of(host, name, value):
        return f"{name}={value!r}: options of a part are a mapping. Write {name}={{{option!r}: {value!r}}}."
    if option := option_of(host, name):
        return f"{name}={value!r}: options of a part are a mapping, such as {name}={{{option!r}: VALUE}}."
    if owner := owner_of(host, named, name, value):
        return f"no setting {name!r}; it is an option of {owner!r}. Write {owner}={{{name!r}: {value!r}}}."
    known = [*Settings.__dataclass_fields__, "plugin_file"]
    return f"no setting {name!r}. {suggest(name, known)} Options of a part are a mapping: beam={{'size': 5}}."


def load_utility(
    utility: str | type[Utility] | Utility, *, plugin_file: Sequence[str | Path] | str | Path = (), **options: Any
) -> Utility:
    """A utility with its options, which are those of ``sgdec plugins NAME``; `sgdec.utility.pairwise` calls it.

    ``utility``: a plugin's name, a class or an object. ``plugin_file``: modules with more plugins.

    >>> from sgdec.utility import pairwise
    >>> pairwise(load_utility("chrf", char_order=2), ["a cat"], ["a cat", "a hat"]).round(1).tolist()
    [[100.0, 54.2]]

    Raises UsageError for an unknown name or option, SgdecError for a broken plugin.
    """
    host = Host(plugin_files(plugin_file))
    return assemble_utility(utility, {key: plain(value) for key, value in options.items()}, Context(host=host), host)


def plugin_files(given: Sequence[str | Path] | str | Path) -> list[str | Path]:
    """A path or several, as a list. Raises UsageError for anything else."""
    files = [given] if isinstance(given, (str, Path)) else list(given) if isinstance(given, Iterable) else [None]
    if not all(isinstance(file, (str, Path)) for file in files):
        raise UsageError(f"plugin_file={given!r}: expected the path of a Python file, or a list of paths.")
    return files


def prepare(
    predictors: str | Mapping[str, Any],
    decoder: str | type[Decoder] | Decoder,
    parts: Mapping[str, Mapping[str, Any]],
    settings: Settings,
    host: Host,
) -> LoadedRun:
    """The common part of `load` and the command line. Raises what `load` raises."""
    THREADS.begin()
    shared = (
        "weights", "tokenizer", "vocab_size", "device", "precision", "seed", "deterministic", "bounds",
        "check_bounds",
    )  # fmt: skip
    chosen = {name: getattr(settings, name) for name in shared}
    assembled = assemble(RunConfig(predictors, decoder, parts, **chosen), host)
    threads = THREADS.choose(settings.threads, by_load=not settings.deterministic)
    constellation = assembled.constellation
    stated = stated_limit(dict(zip(constellation.names, constellation.predictors, strict=True)))
    lengths = LengthRule(settings.max_length_factor, settings.max_length, stated)
    return LoadedRun(replace(assembled, threads=threads), settings, lengths)


class LoadedRun:
    """Loaded predictors and a decoder. Repeated calls of `decode` and `score` give the same results.

    The repr lists its parts, and `signature` all that is needed to reproduce it.
    """

    def __init__(self, parts: Run, settings: Settings, lengths: LengthRule) -> None:
        self.parts = parts
        """Constellation, decoder and vocabularies."""
        self.settings = settings
        self.lengths = lengths
        self._text_of = _text_of(parts.vocabularies.target, settings) if settings.distinct_text else None
        self._copier = Copier(parts.constellation, parts.vocabularies) if settings.copy_unknown else None
        names = parts.constellation.names
        self._weights_of = None if settings.weights is None else SentenceWeights(settings.weights, names).of
        THREADS.join(self)
        self.scheduler()  # raises UsageError for settings that the decoder does not support

    def with_weights(self, weights: Mapping[str, float], **decoding: Any) -> LoadedRun:
        """The same run with other weights, and with other options of its decoder; nothing is loaded again.

        ``weights``: by predictor; the others keep theirs. ``decoding``: such as ``alpha=0.6`` of `beam`. Both runs
        can be used. Raises UsageError for an unknown predictor or option, for a wrong value, and for weights of a run
        that has those of each sentence.

        >>> run = load("wc", "beam", wc={"weight": -1.0}, vocab_size=5, max_length=2)
        >>> shortest = run.with_weights({"wc": 1.0}, size=2)
        >>> [found.best.score for each in (run, shortest) for found in each.decode([[3, 4]])]
        [2.0, 0.0]
        """
        if weights and self.settings.weights is not None:
            raise UsageError(f"the weights of each sentence are in {self.settings.weights}; load the run without it.")
        own = {name: plain(value) for name, value in decoding.items()}
        changed = {name: plain(value) for name, value in weights.items()}
        return LoadedRun(self.parts.with_weights(changed, own), self.settings, self.lengths)

    @cached_property
    def signature(self) -> str:
        """A line that reproduces the run: versions, parts with options and hashes of their files, settings."""
        from sgdec import signature

        return signature.line({**self.parts.signature, **self.shaping()})

    def shaping(self) -> dict[str, str]:
        """The settings that the signature lists, and the length limit that holds by default."""
        return {**self.settings.shaping(), **self.lengths.default}

    @cached_property
    def caveat(self) -> str | None:
        """A warning of what the search can miss with its options, and which ones are safe; None = no warning."""
        decoder = self.parts.decoder
        if (caveat := decoder.caveat(self.settings.nbest, self.never_rises)) is None:
            return None
        way_out = decoder.way_out(self.limited, self.bounded)
        return caveat if way_out is None else f"{caveat.rstrip('.')}; {way_out}."

    @property
    def limited(self) -> bool:
        """Whether every sentence has a length limit."""
        return self.lengths.fixed != 0

    @property
    def bounded(self) -> bool:
        """Whether every predictor declares the bound that its weight needs, so that something can be proven."""
        constellation = self.parts.constellation
        return constellation.bounds_under(constellation.weights).declared

    @property
    def never_rises(self) -> bool:
        """Whether predictors declare that totals never rise."""
        constellation = self.parts.constellation
        return max_score(constellation.predictors, constellation.weights) <= 0.0

    def agrees(self, numbers: Collection[int]) -> bool:
        """Whether scores are the same, bit for bit, with each of these numbers of PyTorch's threads.

        A run with a predictor or decoder of others does not agree: nobody knows what such code computes.
        """
        run = self.parts
        parts = [part.plugin for _, entry in run.entries for part in entry.every] + [run.config.decoder]
        own = not run.host.third_parties and all(isinstance(part, str) for part in parts)
        return own and all(products.agree(numbers) for products in run.products)

    def __repr__(self) -> str:
        config, parts = self.parts.config, self.parts
        listed = [
            (f"{weight:g}*" if weight != 1 else "")
            + entry.said(lambda part: _said(*part, parts.options[part.name]))
            + (" renormalized" if k in parts.constellation.renormalized else "")
            for k, (weight, entry) in enumerate(parts.entries)
        ]
        decoder = _said(config.decoder_name, config.decoder, parts.options[config.decoder_name])
        return f"<sgdec: {', '.join(listed)} | {decoder} | {self.settings!r}>"

    def decode(
        self, sources: Iterable[Sentence], *, errors: Errors = "return", trace: bool | Tracing = False
    ) -> Findings:
        """Yield the result of each sentence in order, as soon as it and all earlier results are ready.

        Sentences are strings or sequences of token ids. They are read on demand, at most two windows ahead of the
        results, so ``sources`` may be endless. A failed sentence does not affect the others: its result has an
        ``error``. With ``errors="raise"``, the error is raised as SgdecError in place of its result. With ``trace``,
        each result has a `sgdec.trace.SentenceTrace`, which says what the search did.

        Raises UsageError for strings without a vocabulary, and for invalid sentences.
        """
        _check(sources, "sources", "decode")
        tracing = trace if isinstance(trace, Tracing) else Tracing() if trace else None
        return self._found(self.scheduler(tracing), self._read(sources), errors)

    def score(
        self,
        sources: Iterable[Sentence],
        targets: Iterable[Sentence],
        *,
        alpha: float = Penalties.alpha,
        beta: float = Penalties.beta,
        normalize: str = Penalties.normalize,
        errors: Errors = "return",
    ) -> Findings:
        """Score given outputs with the predictors: target N belongs to source N. The decoder is not used.

        Sentences are read and results yielded as by `decode`. Each result has one hypothesis, and its `rank_score`
        uses the penalties of ``sgdec score``. Raises UsageError as `decode` does, and for a coverage penalty without
        attention; SgdecError if there are not as many targets as sources.
        """
        _check(sources, "sources", "score")
        _check(targets, "targets", "score")
        ranking = Penalties.of({"alpha": alpha, "beta": beta, "normalize": normalize}).ranking
        return self._found(self.scorer(ranking), self._pairs(sources, targets), errors)

    def scheduler(self, tracing: Tracing | None = None, meter: Meter | None = None) -> Scheduler:
        """A scheduler for the decoder, with the settings of the run.

        ``tracing``: which sentences to trace. ``meter``: follows the searches.
        """
        names = ("nbest", "seed", "batch_size", "window", "max_rows", "deterministic", "coverage")
        chosen = {name: getattr(self.settings, name) for name in names}
        return _Scheduler(
            self.parts.constellation, self.parts.decoder, tracing=tracing, meter=meter, text_of=self._text_of,
            vocabulary=self.parts.vocabularies.target, weights_of=self._weights_of, **chosen,
        )  # fmt: skip

    def scorer(self, ranking: Ranking) -> Scheduler:
        """A scheduler that scores the output of a `Pair`. UsageError for a coverage penalty without attention."""
        self.parts.constellation.require_attention(ranking)
        names = ("seed", "batch_size", "window", "max_rows", "deterministic")
        chosen = {name: getattr(self.settings, name) for name in names}
        decoder = GivenOutputDecoder(ranking, self.parts.vocabularies.target)
        constellation = with_given_output(self.parts.constellation)
        return _Scheduler(constellation, decoder, weights_of=self._weights_of, **chosen)

    def respelled(self, outcome: Outcome) -> Outcome:
        """The outcome; if the settings ask for it, with unknown words replaced by source words."""
        return outcome if self._copier is None else self._copier.respell(outcome)

    def reader(self, format: Literal["text", "ids"]) -> SourceReader:
        """A reader of sentences in this format.

        Raises UsageError for text without a vocabulary, and for ids if the run copies words from the text.
        """
        if format == "ids" and self._copier is not None:
            raise UsageError(
                "--copy-unknown copies words from the text of the source, and token ids have no text. Give text with "
                "--input-format text, or omit --copy-unknown."
            )
        return SourceReader(self.parts.vocabularies.source, format, self.lengths, self.settings.max_source_length)

    def _found(self, scheduler: Scheduler, sentences: Sentences, errors: Errors) -> Findings:
        if errors not in get_args(Errors):
            raise UsageError(f"errors={errors!r}: expected 'return' or 'raise'.")
        names, vocabulary = self.parts.constellation.names, self.parts.vocabularies.target

        def found() -> Findings:
            with closing(sentences), closing(scheduler.run(sentences)) as outcomes:
                for outcome in outcomes:
                    if outcome.error is not None and errors == "raise":
                        why = told(outcome.error, self.parts.config.decoder_name)
                        raise SgdecError(f"sentence {outcome.source.id}: {why}") from outcome.error
                    yield Found.of(self.respelled(outcome), names, vocabulary)

        return found()

    def _read(self, sources: Iterable[Sentence]) -> Sentences:
        vocabulary = self.parts.vocabularies.source
        reader = self.reader("ids" if vocabulary is None else "text")
        for number, sentence in enumerate(sources, 1):
            try:
                if not isinstance(sentence, str):
                    yield reader.source(number, _token_ids(sentence, f"source {number}"))
                elif vocabulary is not None:
                    text = sentence.rstrip("\r\n")
                    yield reader.source(number, vocabulary.encode(text), text)
                else:
                    raise _unreadable("source", number)
            except UsageError:
                raise
            except SgdecError as error:
                yield Unreadable(number, error)

    def _pairs(self, sources: Iterable[Sentence], targets: Iterable[Sentence]) -> Sentences:
        vocabularies = self.parts.vocabularies
        for number, (source, target) in enumerate(zip_longest(self._read(sources), targets), 1):
            if source is None or target is None:
                ended, other = ("sources", "targets") if source is None else ("targets", "sources")
                raise SgdecError(f"the {ended} end before number {number}, but the {other} do not.")
            if isinstance(source, Unreadable):
                yield source
                continue
            try:
                if not isinstance(target, str):
                    tokens = _token_ids(target, f"target {number}")
                elif vocabularies.target is not None:
                    tokens = encoded(target.rstrip("\r\n"), vocabularies.target, source, vocabularies.source)
                else:
                    raise _unreadable("target", number)
                yield paired(source, tokens)
            except UsageError:
                raise
            except SgdecError as error:
                yield Unreadable(number, error)


class _Scheduler(Scheduler):
    """Looks between searches whether threads have cores."""

    def run(
        self, sentences: Iterable[Source | Unreadable], ended: Callable[[int], object] = lambda number: None
    ) -> Generator[Outcome, None, None]:
        def watch(number: int) -> None:
            THREADS.watch()
            ended(number)

        return super().run(sentences, watch)


def _text_of(vocabulary: Vocabulary | None, settings: Settings) -> TextOf:
    """The text by which hypotheses are distinct."""
    if vocabulary is None:
        raise UsageError(
            "distinct texts need a target vocabulary, and no predictor has one: give --tokenizer FILE, or omit "
            "--distinct-text."
        )
    if settings.copy_unknown:
        raise UsageError(
            "--distinct-text compares the texts that the vocabulary decodes, and --copy-unknown changes them later: "
            "give one of them."
        )
    return vocabulary.decode


def _unreadable(side: str, number: int) -> UsageError:
    return UsageError(
        f"{side} {number} is text, and no predictor has a {side} vocabulary; give tokenizer='FILE' to sgdec.load, "
        "or token ids."
    )


def _check(sentences: object, what: str, method: str) -> None:
    if isinstance(sentences, (str, bytes)) or not isinstance(sentences, Iterable):
        raise UsageError(f"{what}: expected a list or an iterator of sentences; write run.{method}([...]).")


def _token_ids(given: Any, what: str) -> tuple[int, ...]:
    """Token ids as Python integers.

    Raises UsageError unless ``given`` is a sequence of whole numbers, SgdecError for a number that cannot be an id.
    """
    try:
        tokens = tuple(map(index, given))
        if isinstance(given, (bytes, bytearray)):  # the numbers of bytes are not tokens
            raise TypeError
    except TypeError:
        shown = repr(given) if len(repr(given)) <= 40 else f"{repr(given)[:37]}..."
        raise UsageError(f"{what} is {shown}; expected a string or a sequence of token ids.") from None
    for token in tokens:
        if not 0 <= token < TOKENS:
            raise SgdecError(f"{token} is not a token id (0, 1, 2, ...).")
    return tokens


def _said(name: str, plugin: Any, options: Mapping[str, Any]) -> str:
    """A predictor or decoder with its options, as text."""
    if not isinstance(plugin, str):
        plugin = (plugin if isinstance(plugin, type) else type(plugin)).__name__
    listed = ", ".join(f"{key}={value!r}" for key, value in options.items())
    return (plugin if name == name_of(plugin) else f"{name}={plugin}") + (f"({listed})" if listed else "")
