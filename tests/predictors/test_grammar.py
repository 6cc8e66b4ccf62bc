"""The promise of ``grammar``: a search finds exactly the token sequences whose text is in the language, best first;
JSON texts are those of values that the schema allows."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sgdec_decoders.dfs import DfsDecoder
from sgdec_predictors.grammar import GrammarPredictor
from sgdec_predictors.texts.matchers import Tokens

from sgdec import EOS, Context, SgdecError, Source
from sgdec.context import Vocabularies
from sgdec.protocol import BatchPredictor, Predictor
from sgdec.search.constellation import Constellation
from sgdec.search.scheduler import Scheduler
from sgdec.testing import Table
from sgdec.text.words import SPECIAL, WordVocabulary
from tests.helpers.characters import CHARACTERS
from tests.helpers.contracts import PluginContract, V
from tests.helpers.oracles import tiny
from tests.helpers.random_spaces import search
from tests.helpers.spelled_vocabularies import KINDS, context_of, letters, spelling, vocabulary
from tests.helpers.vocabularies import made

pytest.importorskip("llguidance")

SOURCE = Source(1, (3,))
LETTERS = WordVocabulary([*SPECIAL, "a", "b", "c", "ab", "d", "ba"])
assert LETTERS.size == V


@pytest.fixture(scope="module", autouse=True)
def tokenizers_once() -> Iterator[None]:
    """Contracts make a predictor for each prefix; the tokenizers of llguidance, which do not change, are shared."""
    build, built = Tokens._tokenizer, dict[Any, Any]()

    def once(tokens: Tokens, state: int) -> Any:
        key = (tokens.vocab_size, *tokens.spelling.adds[state])
        if key not in built:
            built[key] = build(tokens, state)
        return built[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Tokens, "_tokenizer", once)
        yield


def written(folder: Path, text: str, name: str = "g.lark") -> str:
    (folder / name).write_text(text)
    return str(folder / name)


@pytest.mark.slow
class TestGrammarContract(PluginContract):
    plugin = "grammar"
    context = Context(vocabularies=Vocabularies(target=LETTERS), vocab_size=V)

    def prepare(self, folder: Path) -> dict[str, Any]:
        return {"path": written(folder, 'start: x (" " x)*\nx: "a" | "b" | "ab" | "c" " d"'), "context": self.context}

    def make(self) -> Predictor | BatchPredictor:
        return GrammarPredictor(**self.options)


@pytest.mark.slow
class TestGrammarOfEachSentence(TestGrammarContract):
    own_sentences = True

    def prepare(self, folder: Path) -> dict[str, Any]:
        for source in self.sources:
            written(folder, f"start: /[ab ]{{{source.id},}}/", f"{source.id}.lark")
        return {"path": f"{folder}/{{id}}.lark", "context": self.context}


@pytest.mark.slow
class TestGrammarOfPieces(TestGrammarContract):
    """The tokens of a SentencePiece model, of which most have two spellings."""

    vocab_size = vocabulary("unigram").size
    context = context_of("unigram")


@pytest.mark.slow
class TestSchemaOfBytes(TestGrammarContract):
    vocab_size = vocabulary("bytes").size
    context = context_of("bytes")

    def prepare(self, folder: Path) -> dict[str, Any]:
        schema = {"type": "array", "items": {"enum": ["a", "é", 1]}, "maxItems": 2}
        return {"path": written(folder, json.dumps(schema), "s.json"), "context": self.context}


FINITE: dict[str, Callable[[str], bool]] = {
    'start: ("a" | "ab" | "b") (" b" | "é")?': lambda text: bool(re.fullmatch("(a|ab|b)( b|é)?", text)),
    'start: "a"~1..3': lambda text: text in ("a", "aa", "aaa"),
    'start: "ab ba"': lambda text: text == "ab ba",
}


@pytest.mark.slow
@pytest.mark.parametrize("lark", FINITE)
@pytest.mark.parametrize("kind", KINDS)
def test_a_search_finds_all_sequences_of_the_language_in_order_of_score(kind: str, lark: str, tmp_path: Path) -> None:
    longest, size = 3, vocabulary(kind).size
    scores = np.random.default_rng(3).normal(size=(size, size)).round(2)
    expected = {
        sequence
        for length in range(longest + 1)
        for sequence in itertools.product(letters(kind), repeat=length)
        if FINITE[lark](_text(spelling(kind).text(sequence)))
    }
    if (kind, lark) == ("word", 'start: "ab ba"'):  # ba is not a word
        with pytest.raises(SgdecError, match="the target vocabulary spells no text of this grammar"):
            GrammarPredictor(written(tmp_path, lark), context=context_of(kind))
        assert not expected
        return
    grammar = GrammarPredictor(written(tmp_path, lark), context=context_of(kind))
    space = tiny(longest, None, size, model=Table(scores), grammar=grammar)
    result, _ = search(DfsDecoder(), space, nbest=10_000)
    assert {hypothesis.tokens for hypothesis in result.hypotheses} == expected
    assert expected or kind in ("word", "char", "mixed")
    totals = [hypothesis.score for hypothesis in result.hypotheses]
    paths = [(1, *hypothesis.tokens, EOS) for hypothesis in result.hypotheses]
    assert totals == sorted(totals, reverse=True)
    assert totals == pytest.approx([sum(scores[a, b] for a, b in itertools.pairwise(path)) for path in paths])


def _text(spelled: bytes | None) -> str:
    return "?" if spelled is None else spelled.decode(errors="replace")


def accepts(grammar: GrammarPredictor, text: str) -> bool:
    (state,) = grammar.initialize_batch([SOURCE])
    for token in CHARACTERS.encode(text):
        if grammar.predict_batch([state]).rows[0].get(token) != 0.0:
            return False
        (state,) = grammar.consume_batch([state], [token])
    return grammar.predict_batch([state]).rows[0].get(EOS) == 0.0


def grammar_of(folder: Path, schema: object, **options: Any) -> GrammarPredictor:
    path = written(folder, json.dumps(schema), "s.json")
    return GrammarPredictor(path, context=CHARACTERS.context, **options)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-20, 20) | st.text("ab\"\\é 😀", max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "c"]), inner, max_size=3),
    max_leaves=6,
)


@st.composite
def schemas(draw: st.DrawFn, depth: int = 2) -> dict[str, Any]:
    kind = draw(st.sampled_from(["null", "boolean", "integer", "string", "enum", *["array", "object"] * (depth > 0)]))
    if kind == "enum":
        return {"enum": draw(st.lists(VALUES, min_size=1, max_size=3))}
    schema: dict[str, Any] = {"type": kind}
    if kind == "integer":
        schema |= draw(st.sampled_from([{}, {"minimum": -3}, {"maximum": 7}, {"minimum": 2, "maximum": 12}]))
    if kind == "string":
        schema |= draw(st.sampled_from([{}, {"maxLength": 2}, {"minLength": 1}]))
    if kind == "array":
        schema |= {"items": draw(schemas(depth - 1))} | draw(st.sampled_from([{}, {"minItems": 1}, {"maxItems": 2}]))
    if kind == "object":
        names = draw(st.lists(st.sampled_from("abc"), unique=True, max_size=3))
        schema["properties"] = {name: draw(schemas(depth - 1)) for name in names}
        schema["required"] = draw(st.lists(st.sampled_from(names), unique=True)) if names else []
        schema["additionalProperties"] = False
    return schema


def conforms(value: Any, schema: dict[str, Any]) -> bool:
    """Whether a value is allowed, as JSON Schema 2020-12 says; its properties have the order of the schema."""
    if "enum" in schema:
        return any(json.dumps(value) == json.dumps(one) for one in schema["enum"])
    match schema["type"]:
        case "null":
            return value is None
        case "boolean":
            return isinstance(value, bool)
        case "integer":
            number = isinstance(value, int) and not isinstance(value, bool)
            return number and schema.get("minimum", value) <= value <= schema.get("maximum", value)
        case "string":
            return isinstance(value, str) and schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", 99)
        case "array":
            sized = isinstance(value, list) and schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", 99)
            return sized and all(conforms(item, schema["items"]) for item in value)
    if not isinstance(value, dict) or not set(schema["required"]) <= set(value):
        return False
    known = [name for name in schema["properties"] if name in value]
    return list(value) == known and all(conforms(value[name], schema["properties"][name]) for name in value)


@st.composite
def values_for(draw: st.DrawFn, schema: dict[str, Any]) -> Any:
    """A value that is likely to be allowed."""
    if draw(st.integers(0, 9)) == 0:
        return draw(VALUES)
    if "enum" in schema:
        return draw(st.sampled_from(schema["enum"]))
    match schema["type"]:
        case "null":
            return None
        case "boolean":
            return draw(st.booleans())
        case "integer":
            return draw(st.integers(-5, 15))
        case "string":
            return draw(st.text("ab\"\\é 😀", max_size=3))
        case "array":
            return draw(st.lists(values_for(schema["items"]), max_size=3))
    chosen = {name: draw(values_for(inner)) for name, inner in schema["properties"].items() if draw(st.booleans())}
    return {**chosen, **{name: draw(values_for(schema["properties"][name])) for name in schema["required"]}}


@given(data=st.data())
def test_random_schemas_allow_the_values_that_conform(data: st.DataObject, tmp_path_factory: Any) -> None:
    schema = data.draw(schemas())
    grammar = grammar_of(tmp_path_factory.getbasetemp(), schema)
    for _ in range(5):
        value = data.draw(values_for(schema))
        text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
        assert accepts(grammar, text) == conforms(value, schema), (schema, text)


@pytest.mark.parametrize(
    ("whitespace", "expected"),
    [
        ("compact", (True, False, False, False, False)),
        ("spaced", (False, True, False, False, False)),
        ("flexible", (True, True, True, True, True)),
        (None, (True, True, True, True, True)),
    ],
)
def test_the_blanks_between_and_around_the_parts_of_a_json_text(
    whitespace: Any, expected: tuple[bool, ...], tmp_path: Path
) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "integer"}}}}
    grammar = grammar_of(tmp_path, schema, **({} if whitespace is None else {"whitespace": whitespace}))
    value = {"a": [1, 2]}
    plain = json.dumps(value)
    texts = [json.dumps(value, separators=(",", ":")), plain, '{ "a" :[1,  2]}', json.dumps(value, indent=2)]
    assert tuple(accepts(grammar, text) for text in (*texts, f"\r\n\t {plain} \n")) == expected


@pytest.mark.parametrize("place", range(9))
def test_flexible_blanks_are_as_many_as_a_deep_indent_needs_but_not_without_end(place: int, tmp_path: Path) -> None:
    """Before and after each part of a text."""
    grammar = grammar_of(tmp_path, {"type": "object", "properties": {"a": {"type": "array"}}})
    parts = ["{", '"a"', ":", "[", "1", "]", "}"]
    for blanks, expected in (("\n" + " " * 60, True), ("\n" + " " * 64, False), (" " * 65, False)):
        text = "".join(parts[:place]) + blanks + "".join(parts[place:])
        assert accepts(grammar, text) == expected, text


@pytest.mark.parametrize("value", [12, "a", True, None, [], {}])
def test_blanks_can_be_around_every_kind_of_json_text(value: object, tmp_path: Path) -> None:
    grammar = grammar_of(tmp_path, True)
    text = json.dumps(value)
    assert all(accepts(grammar, each) for each in (text, f" {text}", f"\n{text}", f"{text}\n", f" {text} "))
    assert not accepts(grammar, " ")


OWN_BLANKS = {
    '{"whitespace_flexible": false}': (True, False, False, False),
    '{"whitespace_flexible": false, "item_separator": ", ", "key_separator": ": "}': (False, True, False, False),
    '{"whitespace_flexible": true}': (True, True, True, False),
    '{"whitespace_pattern": " "}': (True, True, False, False),
    '{"lenient": true}': (True, True, True, True),
}


@pytest.mark.parametrize("own", OWN_BLANKS)
def test_the_blanks_that_a_schema_sets_itself_have_priority(own: str, tmp_path: Path) -> None:
    schema = {"type": "array", "items": {"type": "integer"}, "x-guidance": json.loads(own)}
    grammar = grammar_of(tmp_path, schema)
    texts = ["[1,2]", "[1, 2]", "[\n 1,\n 2]", "[1,2]\n"]
    assert tuple(accepts(grammar, text) for text in texts) == OWN_BLANKS[own]


def test_the_grammar_of_each_sentence(tmp_path: Path) -> None:
    for number in (1, 2):
        written(tmp_path, f'start: "{"ab"[number - 1]}"', f"{number}.lark")
    grammar = GrammarPredictor(f"{tmp_path}/{{id}}.lark", context=CHARACTERS.context)
    states = grammar.initialize_batch([Source(1, ()), Source(2, ())])
    assert [row.tokens for row in grammar.predict_batch(states).rows] == [[3 + 65], [3 + 66]]
    assert len(set(grammar.state_key(states))) == 2
    with pytest.raises(SgdecError, match=r"3\.lark: cannot be read .* \(sentence 3\)\. Expected a grammar for each"):
        grammar.initialize_batch([Source(3, ())])


def test_tokenisations_of_one_text_share_a_key(tmp_path: Path) -> None:
    grammar = GrammarPredictor(written(tmp_path, "start: /[ab]*/"), context=context_of("text as it is"))
    token = vocabulary("text as it is").token
    (empty,) = grammar.initialize_batch([SOURCE])
    (a,) = grammar.consume_batch([empty], [token("a")])
    one, other, third = grammar.consume_batch([a, empty, empty], [token("b"), token("ab"), token("ba")])
    keys = grammar.state_key([one, other, third])
    assert keys[0] == keys[1] != keys[2]


REFUSED = {
    ("g.lark", 'start: "a" x'): 'line 1, column 8: unknown name: "x".',
    ("g.lark", 'begin: "a"'): "no start rule found.",
    ("g.lark", 'start: "a'): "line 1, column 10: lexer error.",
    ("g.lark", "start: x\nx: x"): "allows no text. Expected a grammar of at least one text.",
    ("s.json", '{"type": "integer", "minimum": 3, "maximum": 2}'): "Unsatisfiable schema: minimum (3) is greater",
    ("s.json", '{"properties": {"a": {"not": {}}}}'): "keywords that are not supported: not. Remove them",
    ("s.json", '{"$ref": "https://example.org/s"}'): "Resource 'https://example.org/s' is not present",
}


@pytest.mark.parametrize(("name", "text"), REFUSED)
def test_a_grammar_that_cannot_be_used_is_refused_in_one_line(tmp_path: Path, name: str, text: str) -> None:
    with pytest.raises(SgdecError) as found:
        GrammarPredictor(written(tmp_path, text, name), context=CHARACTERS.context)
    message = str(found.value)
    assert message.startswith(f"grammar: {tmp_path}/{name}: {REFUSED[name, text]}")
    assert "\n" not in message and message.endswith(".")


def test_too_much_work_in_a_search_costs_only_its_sentence(tmp_path: Path) -> None:
    written(tmp_path, 'start: x\nx: "a" | "a" x | "b" x x | x x', "1.lark")
    written(tmp_path, 'start: "a"', "2.lark")
    grammar = GrammarPredictor(f"{tmp_path}/{{id}}.lark", effort=0.003, context=CHARACTERS.context)
    constellation = Constellation.of({"grammar": grammar}, vocab_size=CHARACTERS.size)
    sources = [Source(number, (), max_length=3) for number in (1, 2)]
    first, second = Scheduler(constellation, DfsDecoder(), batch_size=2).run(sources)
    assert re.fullmatch(r"grammar: .*/1\.lark: .* \(after the text 'a*'\)\. Simplify .*\.", str(first.error))
    assert second.result is not None
    assert [hypothesis.tokens for hypothesis in second.result.hypotheses] == [CHARACTERS.encode("a")]


def test_unsupported_keywords_can_be_ignored(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    grammar = grammar_of(tmp_path, {"type": "integer", "not": {"const": 3}}, lenient=True)
    assert accepts(grammar, "3")
    (message,) = caplog.messages
    assert message == f"grammar: {tmp_path}/s.json: keywords that are ignored: not"


def test_formats_that_are_not_enforced_are_refused_or_ignored_as_one_wishes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    integer = {"type": "integer", "format": "int32"}
    schema = {"type": "array", "prefixItems": [integer, {"type": "string", "format": "iri"}], "format": "date"}
    with pytest.raises(SgdecError) as error:
        grammar_of(tmp_path, schema)
    said = "formats that are not supported: int32, iri. Remove them from the schema, or ignore them with"
    assert str(error.value) == f"grammar: {tmp_path}/s.json: {said} --grammar.lenient true."
    assert accepts(grammar_of(tmp_path, schema, lenient=True), '[1,"?"]')
    assert caplog.messages == [f"grammar: {tmp_path}/s.json: formats that are ignored: int32, iri"]
    named = {"type": "object", "properties": {"format": {"enum": [{"format": "x"}]}}, "x-note": {"format": "x"}}
    assert accepts(grammar_of(tmp_path, named), '{"format":{"format":"x"}}'), "these are not formats"


def test_a_vocabulary_is_needed_and_has_to_spell_from_left_to_right(tmp_path: Path) -> None:
    from sgdec.text.right_left import RightToLeft

    path = written(tmp_path, 'start: "a"')
    with pytest.raises(SgdecError, match=r"^grammar: there is no target vocabulary"):
        GrammarPredictor(path, context=Context(vocab_size=9))
    backwards = Context(vocabularies=Vocabularies(target=RightToLeft(LETTERS)), vocab_size=V)
    with pytest.raises(SgdecError, match=r"^grammar: .* from right to left"):
        GrammarPredictor(path, context=backwards)


def test_without_llguidance_one_line_says_how_to_install_it(tmp_path: Path, monkeypatch: Any) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "llguidance", None)
    with pytest.raises(SgdecError, match=r'^grammar: .* llguidance: .* \(pip install "sgdec\[constraints\]"'):
        GrammarPredictor(written(tmp_path, 'start: "a"'), context=CHARACTERS.context)


def test_nothing_follows_where_no_token_spells_what_is_next(tmp_path: Path) -> None:
    grammar = GrammarPredictor(written(tmp_path, 'start: "ax" | "b"'), context=TestGrammarContract.context)
    (state,) = grammar.consume_batch(grammar.initialize_batch([SOURCE]), [3])
    row = grammar.predict_batch([state]).rows[0]
    assert (len(row), row.restricts) == (0, True)


UNSPELLED = {
    'start: "cat Zoë" | "dog!Q"': "with 'Q', 'Z' (first after 'dog!'). Give a",
    'start: "Ç"': "with 'Ç' (first after ''). Give another tokenizer, or a",
    "start: /[а-я]+/": "with 'а', 'б', 'в', 'г', 'д', 'е', 'ж', 'з', ... (first after",
    '{"required": ["Q"], "properties": {"Q": {"type": "null"}}, "type": "object"}': "with '{', '\\t', '\\n',",
}


@pytest.mark.parametrize("text", UNSPELLED)
def test_a_grammar_of_which_no_text_can_be_spelled_is_refused_before_the_search(tmp_path: Path, text: str) -> None:
    found = made("char")[0]
    context = Context(vocabularies=Vocabularies(target=found), vocab_size=found.size)
    name = "g.json" if text.startswith("{") else "g.lark"
    with pytest.raises(SgdecError) as error:
        GrammarPredictor(written(tmp_path, text, name), context=context)
    expected = "the target vocabulary spells no text of this grammar: no token continues its texts"
    assert str(error.value).startswith(f"grammar: {tmp_path}/{name}: {expected} {UNSPELLED[text]}")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "characters"),
    [
        ('start: "cat" | "Zoë"', "'Z', 'ë'"),
        ('start: /[a-z]*/ "Ç"?', "'Ç'"),
        ('start: "the" | "caté" // "Q"', None),
        ('start: "cat" | /[QZ]/', None),
        ('{"enum": [1, 12, "Q"]}', "'\"', 'Q'"),
    ],
)
def test_literals_that_cannot_be_spelled_are_said_before_the_search(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str, characters: str | None
) -> None:
    found = made("char")[0]
    context = Context(vocabularies=Vocabularies(target=found), vocab_size=found.size)
    for number in (1, 2):
        written(tmp_path, text, f"{number}.json" if text.startswith("{") else f"{number}.lark")
    grammar = GrammarPredictor(f"{tmp_path}/{{id}}.{'json' if text.startswith('{') else 'lark'}", context=context)
    grammar.initialize_batch([Source(1, ()), Source(2, ())])
    said = [message for message in caplog.messages if "no token of the target vocabulary has" in message]
    assert len(said) == (characters is not None)  # once, though each sentence has a grammar
    assert characters is None or f"vocabulary has {characters}: texts with such characters are never" in said[0]


def test_bytes_and_parts_of_characters_spell_every_literal(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for kind in ("bytes", "llama", "gpt2"):
        found = made(kind)[0]
        context = Context(vocabularies=Vocabularies(target=found), vocab_size=found.size)
        GrammarPredictor(written(tmp_path, 'start: "Zoë" | "日本"'), context=context)
    assert not caplog.messages
