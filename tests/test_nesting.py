"""The promise: a decoder inside another is what it is alone, and its text, table and object say the same."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sgdec_decoders.beam import BeamDecoder
from sgdec_decoders.sample import SampleDecoder

import sgdec
from sgdec.cli.main import main
from sgdec.decoder import Decoder
from sgdec.errors import UsageError
from sgdec.found import Found
from sgdec.nesting import DEEPEST, DecoderSpec, built, checked, configured
from sgdec.plugins.host import Host
from sgdec.plugins.options import describe
from sgdec.protocol import Scores, State
from sgdec.ranking import Ranking
from sgdec.search.tracing.meter import Meter
from sgdec.signature import digest
from sgdec.testing import BatchTable, Lattice, Table, tiny_spaces
from tests.helpers.breadth import examples
from tests.helpers.places import ROOT

PLUGIN = str(ROOT / "tests" / "third_party" / "best_of_two.py")
HOST = Host([PLUGIN], autoload=False)
DECODERS = [entry.name for entry in HOST.names("decoder")]
TABLE = np.random.default_rng(3).normal(size=(7, 7))
SOURCES = [[3], [4, 5], [6], [3, 4, 5]]


def load(predictor: Any = None, **options: Any) -> sgdec.library.LoadedRun:
    given = {"nbest": 1, "max_length": 4, "plugin_file": PLUGIN, **options}
    return sgdec.load({"table": predictor or Table(TABLE)}, "best-of-two", vocab_size=7, **given)


def outputs(found: Iterator[Found]) -> list[list[tuple[tuple[int, ...], float]]]:
    return [[(hypothesis.tokens, hypothesis.score) for hypothesis in each.hypotheses] for each in found]


# The text.

HOSTILE = st.text(st.one_of(st.sampled_from(',="+:\\\'{}[] \t\n\r#@|é\u2028'), st.characters()), max_size=12)
OPTION = st.text("abcxyz_", min_size=1, max_size=4).filter(str.isidentifier)
SPECS = st.recursive(
    st.builds(DecoderSpec, st.sampled_from(["beam", "sample", "mine@others-2"]), st.dictionaries(OPTION, HOSTILE)),
    lambda inner: st.builds(DecoderSpec, st.just("mbr"), st.dictionaries(OPTION, HOSTILE | inner)),
    max_leaves=4,
)


def same(one: Any, other: Any) -> bool:
    """Whether a value is what was printed; inside a text, a decoder is a text until its option is known."""
    if isinstance(one, DecoderSpec):
        read = DecoderSpec.of(other)
        names = one.options.keys() == read.options.keys()
        return one.plugin == read.plugin and names and all(same(one.options[k], read.options[k]) for k in one.options)
    return bool(one == other)


@pytest.mark.slow
@settings(max_examples=examples(300), deadline=None)
@given(SPECS)
def test_a_spec_is_its_text(spec: DecoderSpec) -> None:
    assert same(spec, str(spec))


@settings(max_examples=examples(300), deadline=None)
@given(st.text(st.sampled_from('beam:size=3,"\\ +@'), max_size=20))
def test_any_text_is_a_spec_or_refused(text: str) -> None:
    try:
        spec = DecoderSpec.parse(text)
    except ValueError as error:
        assert str(error)
    else:
        assert DecoderSpec.parse(str(spec)) == spec


def test_a_quoted_value_can_have_what_a_toml_file_has() -> None:
    assert DecoderSpec.parse('a: x = "\t,\n" , y=z').options == {"x": "\t,\n", "y": "z"}


VALUES: list[Any] = [
    True, False, 1, 3, 0.5, 0.1, 1e-20, 1e300, "", "a,b", '"', " a ", "top_k=5+min_p=0.05", "beam:size=2,alpha=0.5",
    "iter-3", "chrf:word_order=2",
]  # fmt: skip


REQUIRED = {"syncbeam": {"symbol": 1}}


@pytest.mark.parametrize("name", DECODERS)
def test_options_of_every_decoder_survive_the_text(name: str) -> None:
    cls = HOST.load("decoder", name)
    for option in describe(cls):
        tried = 0
        for value in [*VALUES, *option.type.split(" | "), [1, 2], ["a", "b"]]:
            spec = DecoderSpec(name, {**REQUIRED.get(name, {}), option.name: value, "nbest": 3, "seed": -1})
            try:
                typed = configured(checked(spec, HOST, "here"))[option.name]
            except UsageError:
                continue
            texts = configured(checked(DecoderSpec.parse(str(spec)), HOST, "here"))[option.name]
            if option.type == "int | text":  # a command line cannot say which
                typed = str(typed)
            assert typed == texts and type(typed) is type(texts), (option.name, value)
            tried += 1
        assert tried, f"no value for --{name}.{option.name}"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("samplee", "--best-of-two.second: no decoder named 'samplee'. Did you mean 'sample'?"),
        ("wc", "--best-of-two.second: no decoder named 'wc' ('wc' is a predictor)."),
        ("sample@nobody", "--best-of-two.second: no decoder 'sample' of a distribution 'nobody'."),
        ("sample:sampls=2", "--best-of-two.second: sample has no option 'sampls'. Did you mean 'samples'?"),
        ("sample:sed=2", "--best-of-two.second: sample has no option 'sed'. Did you mean 'seed'?"),
        ("sample:samples=0", "--best-of-two.second: sample: samples: '0' should be at least 1 (int >= 1: "),
        ("sample:nbest=0", "--best-of-two.second: sample: nbest: '0' should be at least 1 (int >= 1: "),
        ("sample:samples=1_0", "'1_0' should be a number without underscores"),
        ("best-of-two:first=beam:sise=2", "second: best-of-two: first: beam has no option 'sise'. Did you mean"),
        ("sample:", "'' after 'sample' is not OPTION=VALUE; expected NAME or NAME:OPTION=VALUE,..., such as"),
        ("sample:samples", "'samples' after 'sample' is not OPTION=VALUE"),
        ("sample:samples=2,", "'' after 'sample' is not OPTION=VALUE"),
        ("sample:samples=2,samples=3", "sample has 'samples' twice"),
        ('sample:chain="top_k=2', "has no text in double quotes"),
        ('sample:chain="top_k=2"+min_p=0.1', "is followed by '+min_p=0.1', not by a comma"),
        ("", "'' is not the name of a decoder; expected NAME or NAME:OPTION=VALUE"),
        ("a b", "'a b' is not the name of a decoder"),
        (5, "that is not the name of a decoder"),
        ({"beam": {}, "dfs": {}}, "a table should have one name, with a table of its options"),
        ({"beam": 8}, "a table should have one name, with a table of its options"),
        (Table, "is not the name of a decoder"),
    ],
)
def test_a_wrong_spec_is_one_line_that_says_where(text: Any, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        load(**{"best-of-two": {"second": text}})
    assert said in str(caught.value)
    assert str(caught.value).startswith("--best-of-two.second: ")
    assert "\n" not in str(caught.value)


def test_an_object_has_no_options_and_nesting_has_an_end() -> None:
    with pytest.raises(ValueError, match="SampleDecoder is an object; its options are already set"):
        DecoderSpec(SampleDecoder(), {"samples": 3})
    endless = "best-of-two:first=" * 2000 + "greedy"
    with pytest.raises(UsageError, match=f"more than {DEEPEST} decoders are inside each other"):
        load(**{"best-of-two": {"first": endless}})


# The search.


@pytest.mark.parametrize("name", DECODERS)
def test_every_decoder_finds_inside_what_it_finds_alone(name: str) -> None:
    for tiny in (tiny_spaces()[k] for k in (0, 1, 5)):
        decoder = built(checked(DecoderSpec(name, REQUIRED.get(name)), HOST, name), sgdec.Context())
        alone, around = tiny.open(nbest=2), tiny.open(nbest=2)
        alone.ranking = decoder.decoder.ranking
        expected, found = decoder.decoder.decode(alone), decoder.decode(around)
        assert [(h.tokens, h.score) for h in found.hypotheses] == [(h.tokens, h.score) for h in expected.hypotheses]
        assert found.expansions == around.expansions == alone.expansions
        assert found.proven == expected.proven


def test_text_table_class_and_object_are_one_decoder(tmp_path: Path) -> None:
    run = load(nbest=5, **{"best-of-two": {"second": "beam:size=5,stop=full,alpha=0.6"}})
    expected = outputs(run.decode(SOURCES))
    options = {"size": 5, "stop": "full", "alpha": 0.6}
    for spec in [
        {"beam": options}, {"beam": {**options, "size": np.int64(5)}}, DecoderSpec("beam", options),
        BeamDecoder(**options), DecoderSpec(BeamDecoder, options), "beam: alpha = 0.6, stop = full, size = 5",
    ]:  # fmt: skip
        assert outputs(load(nbest=5, **{"best-of-two": {"second": spec}}).decode(SOURCES)) == expected


def test_what_wins_is_the_better_one() -> None:
    beam = sgdec.load({"table": Table(TABLE)}, "beam", vocab_size=7, max_length=4, beam={"size": 5})
    greedy = sgdec.load({"table": Table(TABLE)}, "greedy", vocab_size=7, max_length=4)
    better = [
        max(one.hypotheses + other.hypotheses, key=lambda each: each.score).tokens
        for one, other in zip(beam.decode(SOURCES), greedy.decode(SOURCES), strict=True)
    ]
    found = load(**{"best-of-two": {"second": "beam:size=5"}}).decode(SOURCES)
    assert [each.best.tokens for each in found if each.best is not None] == better


class Counted(BatchTable):
    """Counts its calls."""

    def __init__(self) -> None:
        super().__init__(TABLE)
        self.calls = 0

    def predict_batch(self, states: Sequence[State], candidates: Any = None) -> Scores:
        self.calls += 1
        return super().predict_batch(states, candidates)


def test_inner_searches_of_all_sentences_are_batched_and_batches_change_nothing() -> None:
    found, calls = [], []
    for batch_size in (1, 16):
        counted = Counted()
        options = {"first": "sample:samples=4", "second": "beam:size=3"}  # beam has a form for batches
        run = load(counted, nbest=3, batch_size=batch_size, **{"best-of-two": options})
        found.append(outputs(run.decode(SOURCES * 4)))
        calls.append(counted.calls)
    assert found[0] == found[1]
    assert calls[1] * 3 < calls[0]


def test_lists_seeds_and_budgets_are_its_own() -> None:
    space = tiny_spaces()[0].open(nbest=1)
    assert len(DecoderSpec("beam", {"size": 4, "stop": "full"}).decode(space).hypotheses) == 1
    assert len(DecoderSpec("beam", {"size": 4, "stop": "full"}).decode(space, nbest=3).hypotheses) == 3
    assert len(DecoderSpec("beam", {"size": 4, "stop": "full", "nbest": 2}).decode(space, nbest=3).hypotheses) == 2
    assert space.nbest == 1
    drawn = {
        seed: [h.tokens for h in DecoderSpec("sample", {"samples": 9, "seed": seed}).decode(space, 9).hypotheses]
        for seed in (None, 0, 1)
    }
    assert drawn[None] == drawn[0] != drawn[1]
    before = space.expansions
    budget = DecoderSpec("dfs", {"max_expansions": 4})
    assert budget.decode(space, 20).expansions == budget.decode(space, 20).expansions == 4
    assert space.expansions == before + 8


def test_its_penalties_rank_its_list_alone() -> None:
    space = tiny_spaces()[0].open(nbest=9)
    assert space.ranking == Ranking()
    penalised = DecoderSpec("beam", {"size": 9, "alpha": 2.0, "stop": "full"}).decode(space).hypotheses
    plain = DecoderSpec("beam", {"size": 9, "stop": "full"}).decode(space).hypotheses
    assert [h.rank_score for h in penalised] != [h.score for h in penalised]
    assert [h.rank_score for h in plain] == [h.score for h in plain]
    with pytest.raises(UsageError, match="attention"):
        list(load(**{"best-of-two": {"first": "beam:beta=0.2"}}).decode(SOURCES))


def test_a_trace_has_the_expansions_of_both() -> None:
    run = load(**{"best-of-two": {"first": "greedy", "second": "beam:size=4,stop=full"}})
    for traced, greedy in zip(run.decode(SOURCES, trace=True), load().decode(SOURCES, trace=True), strict=True):
        assert traced.trace is not None and greedy.trace is not None
        assert traced.trace.counted == traced.expansions > greedy.expansions
        assert len(traced.trace.expansions) > len(greedy.trace.expansions)
        assert traced.trace.stopped is not None
        assert not {"unsaid", "unread"} & {str(fate) for each in traced.trace.expansions for fate in each.fates}


def test_its_expansions_are_shown_and_its_texts_are_distinct_like_those_of_the_run() -> None:
    space, shown = tiny_spaces()[0].open(nbest=6), Meter(lambda meter: None)
    beam = DecoderSpec("beam", {"size": 6, "stop": "full"})
    space._meter = shown
    lengths = [len(each.tokens) for each in beam.decode(space).hypotheses]
    assert shown.expansions == space.expansions > 0
    space.text_of = lambda tokens: "a" * len(tokens)
    distinct = [len(each.tokens) for each in beam.decode(space).hypotheses]
    assert len(set(lengths)) < len(lengths) and len(set(distinct)) == len(distinct) > 1


def test_the_framework_knows_of_inner_searches_what_it_knows_of_others() -> None:
    (found,) = load(**{"best-of-two": {"first": "dfs"}}).decode([[3]])
    assert found.bounds == "sum"
    (found,) = load(**{"best-of-two": {"first": "greedy"}}).decode([[3]])
    assert found.bounds is None
    nowhere = Lattice({0: {3: (0.0, 1), 4: (0.0, 1)}})
    (inside,), (alone,) = (
        run.decode([[3]])
        for run in (load(nowhere), sgdec.load({"table": nowhere}, "greedy", vocab_size=7, max_length=4))
    )
    assert str(inside.error) == str(alone.error)
    assert "After the longest prefix, 3: table allows nothing." in str(alone.error)


def test_signatures_name_the_inner_options_and_their_files(tmp_path: Path) -> None:
    file = tmp_path / "a file.txt"
    file.write_text("x")
    text = load(**{"best-of-two": {"second": "sample:samples=2,chain=top_k=5+min_p=0.05"}}).signature
    chained = {"samples": 2, "chain": "top_k=5+min_p=0.05"}
    assert "|decoder:best-of-two(second=sample(samples=2,chain=top_k=5+min_p=0.05))|" in text
    assert load(**{"best-of-two": {"second": {"sample": chained}}}).signature == text
    assert load(**{"best-of-two": {"second": "sample:samples=3"}}).signature != text
    plugin = tmp_path / "reads.py"
    plugin.write_text(READS)
    run = load(plugin_file=[PLUGIN, plugin], **{"best-of-two": {"second": {"reads": {"path": file}}}})
    assert f"second=reads(path={file}#{digest(file)})" in run.signature
    assert f"reads.py#{digest(plugin)}" in run.signature


READS = '''
import sgdec
from sgdec import Decoder, Result


class Reads(Decoder):
    def __init__(self, path: str, context: sgdec.Context):
        self.seed = context.seed
        if path == "wrong":
            raise sgdec.UsageError("path: it is wrong.")

    def decode(self, space):
        assert self.seed == space.seed, (self.seed, space.seed)
        return Result([])


class Endless(Decoder):
    def __init__(self, inner_one: sgdec.DecoderSpec = sgdec.DecoderSpec("endless")): ...

    def decode(self, space):
        return 5


class Wrong(Endless):
    def __init__(self): ...


@sgdec.hookimpl
def sgdec_decoders():
    return {"reads": Reads, "endless": Endless, "wrong": Wrong}
'''


def test_inner_decoders_get_the_context_with_their_seed(tmp_path: Path) -> None:
    plugin = tmp_path / "reads.py"
    plugin.write_text(READS)
    for second, seed in [("reads:path=x", 5), ("reads:path=x,seed=8", 5)]:
        run = load(plugin_file=[PLUGIN, plugin], seed=seed, **{"best-of-two": {"second": second}})
        assert all(found.error is None for found in run.decode(SOURCES))
    with pytest.raises(UsageError, match=r"^--best-of-two.second: reads needs path=VALUE \(text\)\.$"):
        load(plugin_file=[PLUGIN, plugin], **{"best-of-two": {"second": "reads"}})
    with pytest.raises(UsageError, match=r"^--best-of-two.second: best-of-two: first: path: it is wrong\.$"):
        load(plugin_file=[PLUGIN, plugin], **{"best-of-two": {"second": "best-of-two:first=reads:path=wrong"}})
    with pytest.raises(UsageError, match="more than"):
        load(plugin_file=[PLUGIN, plugin], **{"best-of-two": {"second": "endless"}})
    (found,) = load(plugin_file=[PLUGIN, plugin], **{"best-of-two": {"second": "wrong"}}).decode([[3]])
    assert "Wrong.decode returned an int; expected a Result" in str(found.error)


def test_a_clock_inside_is_a_clock_of_the_run() -> None:
    assert load(**{"best-of-two": {"second": "dfs:max_expansions=5"}}).parts.clock is None
    timed = load(**{"best-of-two": {"second": "best-of-two:first=dfs:max_seconds=5"}}).parts.clock
    assert timed == "--best-of-two.second best-of-two:first=dfs:max_seconds=5"


# The command line.


def decode(tmp_path: Path, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    (tmp_path / "in.ids").write_text("3 4\n5\n")
    status = main([
        "decode", "--plugin-file", PLUGIN, "--decoder", "best-of-two", "--predictors", "wc", "--vocab-size", "6",
        "--max-length", "3", "--input-format", "ids", "--output-format", "jsonl", str(tmp_path / "in.ids"), *words,
    ])  # fmt: skip
    printed = capsys.readouterr()
    return status, re.sub(r'"seconds": [\d.e-]+', "", printed.out), printed.err


@pytest.mark.slow
def test_the_command_line_and_a_config_file_say_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sample = "sample:samples=5,chain=top_k=3+min_p=0.05"
    typed = decode(tmp_path, capsys, "--best-of-two.second", sample, "--nbest", "9")
    assert typed[0] == 0 and typed[1].count("\n") == 2
    config = tmp_path / "run.toml"
    for text in (
        '[best-of-two]\nsecond = "sample:samples=5,chain=top_k=3+min_p=0.05"',
        '[best-of-two.second.sample]\nsamples = 5\nchain = "top_k=3+min_p=0.05"',
        '[best-of-two]\nsecond = {sample = {samples = 5, chain = "top-k = 3 + min_p = 0.05"}}',
    ):
        config.write_text(f"nbest = 9\n{text}\n")
        assert decode(tmp_path, capsys, "--config", str(config))[:2] == typed[:2]
    config.write_text("[best-of-two.second.sample]\nsampls = 5\n")
    status, _, said = decode(tmp_path, capsys, "--config", str(config))
    assert status == 2 and f"--config {config}: --best-of-two.second: sample has no option 'sampls'." in said
    config.write_text('[best-of-two.second.sample]\nplugin-file = "evil.py"\n')
    assert "would execute code" in decode(tmp_path, capsys, "--config", str(config))[2]


def test_plugins_explains_what_a_decoder_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plugins", "--plugin-file", PLUGIN, "best-of-two"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "--best-of-two.first decoder the one decoder [default: greedy]" in said
    assert "A decoder is NAME or NAME:OPTION=VALUE,OPTION=VALUE, such as beam:size=8" in said


def test_specs_are_values() -> None:
    spec = DecoderSpec("beam", {"size": 3, "alpha": None})
    assert spec == DecoderSpec("beam", {"size": 3}) and hash(spec) == hash(DecoderSpec("beam", {"size": 4}))
    assert spec != DecoderSpec("beam") and spec != "beam:size=3"
    assert isinstance(spec.decoder, Decoder) and spec.name == "beam" and repr(spec) == "DecoderSpec('beam:size=3')"
