"""The promise: every command that reads a tokenizer reads the folder of a Hugging Face model too, with the same
numbers, and ``sgdec vocabulary`` writes the table of any tokenizer, as pynini and ``--ngram.words`` read it."""

from __future__ import annotations

import codecs
import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sgdec
from sgdec.cli.main import main
from sgdec.io.symbols import symbol_of
from sgdec.io.trie import open_trie
from sgdec.text.sentencepiece import train_vocabulary
from sgdec.text.vocabulary import load_vocabulary
from sgdec.text.words import MixedVocabulary
from tests.helpers.optional import optional
from tests.helpers.pretrained_tokenizers import FAMILIES, TEXT

pytest.importorskip("transformers")

LINES = ["the cat sat", "a dog ran in the park"]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for each family, and files of `sgdec tokenizer`."""
    root = tmp_path_factory.mktemp("models")
    for family, make in FAMILIES.items():
        (root / family).mkdir()
        make(root / family)
    (root / "bpe.spm").write_bytes(train_vocabulary(TEXT, 90).serialized)
    (root / "mixed").write_bytes(MixedVocabulary.train(TEXT, 2000).serialized)
    return root


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("text").write_text("\n".join(LINES) + "\n")
    return tmp_path


def plain(symbol: str) -> str:
    """The piece of a symbol, by the rules on the page of file formats."""
    if symbol == r"\e":
        return ""
    return re.sub(r"\\x[0-9a-f]{2}|\\u[0-9a-f]{4}", lambda found: codecs.decode(found[0], "unicode_escape"), symbol)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*FAMILIES, "bpe.spm", "mixed"])
def test_pynini_reads_the_table_of_any_vocabulary(models: Path, name: str) -> None:
    pynini = optional("pynini")
    assert main(["vocabulary", str(models / name), "--output", "table"]) == 0
    vocabulary, table = load_vocabulary(models / name), pynini.SymbolTable.read_text("table")
    assert [number for number, _ in table] == list(range(vocabulary.size))
    assert [table.find(number) for number in range(3)] == ["<unk>", "<s>", "</s>"]
    for number in range(3, vocabulary.size):
        assert plain(table.find(number)) == vocabulary.piece(number)
        assert table.find(table.find(number)) == number


def test_blanks_escapes_and_names_of_roles_are_replaced(models: Path, folder: Path) -> None:
    pynini = optional("pynini")
    odd = ["a b\tc\nd", " ", "\u2028", r"\x20", r"\u2028", r"\e", "\x85", "\xa0", "<s>", "<unk>", "x\r"]
    model = json.loads((models / "gpt2" / "tokenizer.json").read_text())
    first = len(model["model"]["vocab"]) + 1
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
    model["added_tokens"] += [{"id": first + place, "content": piece, **flags} for place, piece in enumerate(odd)]
    (folder / "odd").mkdir()
    (folder / "odd" / "tokenizer.json").write_text(json.dumps(model))
    shutil.copy(models / "gpt2" / "tokenizer_config.json", folder / "odd")
    assert main(["vocabulary", "odd", "--output", "table"]) == 0
    table = pynini.SymbolTable.read_text("table")
    assert [plain(table.find(first + place)) for place in range(len(odd))] == odd
    odd_one = load_vocabulary("odd")
    assert len({odd_one.piece(number) for number in range(odd_one.size)}) == odd_one.size
    assert odd_one.token("<s>") == first + odd.index("<s>")
    assert len({symbol for _, symbol in table}) == table.num_symbols() == first + len(odd) + 2
    assert table.find("\\") == odd_one.token("\\") > 2
    assert [table.find(number) for number in range(3)] == ["<unk>", "<s>", "</s>"]


@pytest.mark.slow
@given(st.text("\\xue20 \t\n\r\x00\x85\u2028<s>/nk", max_size=9) | st.sampled_from(["<s>", "</s>", "<unk>"]))
def test_every_piece_comes_back_from_its_symbol(piece: str) -> None:
    symbol = symbol_of(piece)
    assert plain(symbol) == piece
    assert len(symbol.split()) == 1 and symbol.isprintable()
    assert symbol not in ("<s>", "</s>", "<unk>")


def test_the_table_goes_to_standard_output(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["vocabulary", str(models / "t5")]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[:4] == ["<unk>\t0", "<s>\t1", "</s>\t2", "▁\t3"]
    assert not err
    assert main(["vocabulary", "text"]) == 1
    assert "text" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_n_gram_models_over_pieces_are_read_with_the_table(
    models: Path, family: str, capsys: pytest.CaptureFixture[str]
) -> None:
    vocabulary: Any = load_vocabulary(models / family)
    tokens = vocabulary.encode(LINES[0])
    main(["vocabulary", str(models / family), "--output", "table"])
    symbols = dict(line.rsplit("\t", 1)[::-1] for line in Path("table").read_text().split("\n")[:-1])
    words = [symbols[str(token)] for token in tokens]
    seen = dict.fromkeys(words)
    unigrams = "".join(f"-{place + 1}\t{word}\n" for place, word in enumerate(seen))
    Path("arpa").write_text(
        f"\\data\\\nngram 1={len(seen) + 3}\n\n\\1-grams:\n-9\t<unk>\n-99\t<s>\n-0.5\t</s>\n{unigrams}\n\\end\\\n"
    )
    call = ["--predictors", "forced,ngram", "--ngram.path", "arpa", "--forced.path", "text", "--ngram.words", "table"]
    Path("in").write_text("3\n3\n")
    assert main(["decode", *call, "--tokenizer", str(models / family), "--input-format", "ids", "--output-format",
                 "jsonl", "--max-length", "99", "in"]) == 0  # fmt: skip
    row = json.loads(capsys.readouterr().out.splitlines()[0])["hypotheses"][0]
    order = list(seen)
    expected = -sum(order.index(word) + 1 for word in words) - 0.5
    assert row["scores"]["ngram"] == pytest.approx(expected * 2.302585092994046, rel=1e-5)
    assert (tuple(row["tokens"]), row["text"]) == (tokens, vocabulary.decode(tokens))


@pytest.mark.parametrize("family", FAMILIES)
def test_decode_encodes_sources_and_writes_targets(
    models: Path, family: str, capsys: pytest.CaptureFixture[str]
) -> None:
    vocabulary = load_vocabulary(models / family)
    call = ["decode", "--predictors", "forced", "--forced.path", "text", "--tokenizer", str(models / family), "text"]
    assert main([*call, "--signature", "sig", "--max-length-factor", "9"]) == 0
    assert capsys.readouterr().out.splitlines() == [vocabulary.decode(vocabulary.encode(line)) for line in LINES]
    before = Path("sig").read_text()
    assert re.search(r"\|tokenizer:[^|]+#[0-9a-f]{12}\|", before)
    assert "|transformers:" in before and "|tokenizers:" in before


@pytest.mark.parametrize(
    ("family", "name", "changes"),
    [
        ("t5", "spiece.model", True), ("marian", "vocab.json", True), ("marian", "target.spm", True),
        ("gpt2", "tokenizer.json", True), ("qwen", "generation_config.json", True), ("t5", "config.json", True),
        ("qwen", "model.safetensors", False), ("qwen", "README.md", False),
    ],
)  # fmt: skip
def test_the_signature_covers_the_tokenizer(models: Path, family: str, name: str, changes: bool) -> None:
    from sgdec.signature import digest

    shutil.copytree(models / family, family)
    before, with_weights = digest(family, weights=False), digest(family)
    with (Path(family) / name).open("ab") as file:
        file.write(b" ")
    assert (digest(family, weights=False) != before) == changes
    assert (digest(family) != with_weights) == (changes or name == "model.safetensors")


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_tries_and_models_of_text_have_its_tokens(models: Path, family: str) -> None:
    vocabulary = load_vocabulary(models / family)
    tokenizer = ["--tokenizer", str(models / family)]
    status = main(["trie", "text", *tokenizer, "--output", "trie", "--left-out", "left"])
    assert status == 0
    known = [line for line in LINES if 0 not in vocabulary.encode(line)]
    trie = open_trie("trie")
    assert (trie.entries, trie.longest) == (len(known), max(len(vocabulary.encode(line)) for line in known))

    assert main(["lm", "--input", "text", *tokenizer, "--order", "1", "--discount-fallback", "--output", "arpa"]) == 0
    listed = {line.split("\t")[1] for line in Path("arpa").read_text().split("\n") if line.startswith("-")}
    assert {str(token) for line in LINES for token in vocabulary.encode(line)} <= listed | {"0"}

    Path("list").write_text("".join(f"{n} ||| {line} ||| x= 1 ||| -1\n" for n, line in enumerate(LINES, 1)))
    assert main(["ngrams", "list", *tokenizer, "--order", "1", "--output", "{id}.txt"]) == 0
    for number, line in enumerate(LINES, 1):
        found = {int(row.split(" : ")[0]) for row in Path(f"{number}.txt").read_text().splitlines()}
        assert found == {1, 2, *vocabulary.encode(line)}

    Path("long").write_text("\n".join(LINES * 20) + "\n")
    assert main(["fit-length", "long", "long", *tokenizer, "--output", "weights"]) == 0


def test_pieces_that_an_arpa_file_cannot_hold(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call = ["lm", "--input", "text", "--order", "1", "--discount-fallback", "--output", "arpa", "--words", "pieces"]
    assert main([*call, "--tokenizer", str(models / "qwen")]) == 2
    assert "an ARPA file cannot hold piece" in capsys.readouterr().err
    assert main([*call, "--tokenizer", str(models / "t5")]) == 0
    shutil.copytree(models / "gpt2", "two")
    content = json.loads(Path("two/tokenizer.json").read_text())
    content["added_tokens"].append({**content["added_tokens"][0], "id": 321, "content": "<s>"})
    Path("two/tokenizer.json").write_text(json.dumps(content))
    Path("two/config.json").unlink()
    assert main([*call, "--tokenizer", "two"]) == 2
    assert "an ARPA file cannot hold piece 321, '<s>'" in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")
def test_sources_are_split_as_sources(models: Path) -> None:
    from transformers import AutoTokenizer

    run = sgdec.load("forced", forced={"path": "text"}, tokenizer=models / "marian")
    own = AutoTokenizer.from_pretrained(models / "marian", local_files_only=True)
    vocabularies: Any = run.parts.vocabularies
    for line in TEXT[:9]:
        for vocabulary, side in ((vocabularies.source, "text"), (vocabularies.target, "text_target")):
            expected = own(**{side: line}, add_special_tokens=False)["input_ids"]
            assert vocabulary.numbering.ids[list(vocabulary.encode(line))].tolist() == expected
    assert vocabularies.source.encode(TEXT[0]) != vocabularies.target.encode(TEXT[0])


def test_transducers_between_our_vocabularies_and_models(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pynini = optional("pynini")
    ours = load_vocabulary(models / "bpe.spm")
    for family in ("t5", "marian", "mbart", "nllb", "llama"):
        call = ["transducer", "--from", str(models / "bpe.spm"), "--to", str(models / family), "--text", "text"]
        assert main([*call, "--output", "t.fst"]) == 0
        theirs, fst = load_vocabulary(models / family), pynini.Fst.read("t.fst")
        for line in LINES:
            if 0 in theirs.encode(line):
                continue
            read = pynini.accep(" ".join(map(str, ours.encode(line))), token_type=_numbers(pynini, ours.size))
            written = pynini.shortestpath((read @ fst).project("output").rmepsilon())
            assert _labels(written) == theirs.encode(line)
    capsys.readouterr()
    for family, side in (("gpt2", "--to"), ("qwen", "--from")):
        other = "--from" if side == "--to" else "--to"
        call = ["transducer", side, str(models / family), other, str(models / "bpe.spm"), "--text", "text"]
        assert main([*call, "--output", "t.fst"]) == 2
        assert "In byte-level BPE the first word of a line has no blank" in capsys.readouterr().err


def _numbers(pynini: Any, size: int) -> Any:
    table = pynini.SymbolTable()
    for number in range(size):
        table.add_symbol(str(number), number)
    return table


def _labels(fst: Any) -> tuple[int, ...]:
    """The output labels of a path."""
    labels, state = [], fst.start()
    while arcs := list(fst.arcs(state)):
        labels.append(arcs[0].olabel)
        state = arcs[0].nextstate
    return tuple(labels)


def test_without_the_library_the_extra_is_named(
    models: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(models / "t5", "unread")
    monkeypatch.setitem(sys.modules, "transformers", None)
    assert main(["vocabulary", "unread"]) == 1
    assert capsys.readouterr().err.endswith(' (pip install "sgdec[hf]").\n')


def test_training_refuses_a_folder(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call = ["train", "--train", "text", "text", "--valid", "text", "text", "--output", "run"]
    assert main([*call, "--tokenizer", str(models / "t5")]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line == f"Error: {models / 't5'}: this is a folder. Expected a file that `sgdec tokenizer` wrote."
