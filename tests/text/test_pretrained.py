"""The promise: text becomes the ids that a Hugging Face tokenizer gives, under our numbers, for each family of
models; marks such as ``</s>`` are added by `wrap` alone; folders that cannot be used give one clear line."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any
from unicodedata import normalize

import pytest
from packaging.version import Version

from sgdec.context import BOS, EOS, UNK
from sgdec.errors import SgdecError
from sgdec.text.numbering import RESERVED
from sgdec.text.pretrained import PretrainedVocabulary, load_pretrained, read_roles
from sgdec.text.vocabulary import load_trained, load_vocabulary
from tests.helpers.pretrained_tokenizers import FAMILIES, TEXT

pytest.importorskip("transformers")

LINES = [
    "the cat", "", " ", " leading", "trailing ", "two  blanks", "tab\there", "Ünïcödé", "Ünïcödé 🙂 日本",
    "zzz \u2603", "e\u0301", "no\u00a0break", ">>fra<< the cat", "the park , too !", *TEXT[:9],
]  # fmt: skip
ROLES: dict[str, tuple[list[int], int | None, int | None]] = {
    # ids of <unk>, <s>, </s>; the decoder's start (the last id of Marian's models); the forced first token
    "t5": ([2, RESERVED, 1], 0, None),
    "marian": ([1, RESERVED, 0], -1, None),
    "marian-separate": ([1, RESERVED, 0], -1, None),
    "bart": ([3, 0, 2], 2, 0),
    "gpt2": ([RESERVED, RESERVED, 320], None, None),
    "mbart": ([3, 0, 2], 61, None),
    "nllb": ([3, 0, 2], 2, None),
    "llama": ([0, 1, 2], None, None),
    "qwen": ([RESERVED, RESERVED, 322], None, None),
    "neox": ([RESERVED, RESERVED, 0], None, None),
}
Folder = Callable[[str], Path]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """The folder of a family, made at its first use."""
    root = tmp_path_factory.mktemp("families")

    def make(family: str) -> Path:
        found = root / family
        if not found.exists():
            found.mkdir()
            FAMILIES[family](found)
        return found

    return make


def library(folder: Path) -> Any:
    """The tokenizer as `transformers` reads it."""
    import warnings

    from transformers import AutoTokenizer

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return AutoTokenizer.from_pretrained(folder, local_files_only=True)


def logging_cache_clear() -> None:
    """The library prints some warnings once only."""
    from transformers.utils import logging as library_logging

    library_logging.warning_once.cache_clear()


def ids(vocabulary: PretrainedVocabulary, tokens: Any) -> list[int]:
    return [int(vocabulary.numbering.ids[token]) for token in tokens]


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_roles(folder: Folder, family: str) -> None:
    roles, (first, start, forced) = read_roles(folder(family)), ROLES[family]
    assert roles.numbering.ids[:3].tolist() == first
    assert roles.decoder_start == (roles.rows - 1 if start == -1 else start)
    assert roles.forced_bos == forced
    assert roles.seq2seq == (start is not None)
    assert roles.eos[0] == first[EOS]
    assert roles.eos == ((322, 320) if family == "qwen" else (first[EOS],))
    assert (roles.sources is roles.numbering) == (family != "marian-separate")
    for vocabulary in load_pretrained(folder(family)):
        numbering = roles.sources if vocabulary.numbering is vocabulary.roles.sources else roles.numbering
        assert vocabulary.numbering.ids.tolist() == numbering.ids.tolist()


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_plain_tokens_between_their_marks_are_what_the_tokenizer_gives(folder: Folder, family: str) -> None:
    own = library(folder(family))
    source, target = load_pretrained(folder(family))
    for line in LINES:
        assert ids(source, source.wrap(source.encode(line))) == own(line)["input_ids"]
        expected = own(text_target=line, add_special_tokens=False)["input_ids"]
        assert ids(target, target.encode(line)) == expected
        assert target.decode(target.encode(line)) == own.decode(
            expected, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
    for vocabulary in (source, target):
        assert vocabulary.encode_all(LINES) == [list(vocabulary.encode(line)) for line in LINES]
        assert vocabulary.encode_all([]) == []


@pytest.mark.parametrize("family", ["bart", "gpt2", "llama", "qwen", "neox"])
def test_bytes_give_back_every_text(folder: Folder, family: str) -> None:
    vocabulary = load_pretrained(folder(family))[1]
    for line in LINES:
        normal = normalize("NFC", line) if family in ("qwen", "neox") else line
        assert vocabulary.decode(vocabulary.encode(line)) == normal
    assert len(vocabulary.encode("🙂")) > 1, "one character in several tokens"


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_marks_that_a_text_spells_are_text(folder: Folder, family: str) -> None:
    own = library(folder(family))
    for side, vocabulary in enumerate(load_pretrained(folder(family))):
        numbers = vocabulary.numbering.numbers
        special = {int(numbers[id]) for id in own.all_special_ids if id < len(numbers)} | {BOS, EOS}
        for mark in own.all_special_tokens:
            for text in (mark, f"the {mark} cat", f"a{mark}b"):
                tokens = vocabulary.encode(text)
                assert not special & set(tokens) - {UNK}, (side, text)
                if len(own.convert_ids_to_tokens(own(mark)["input_ids"])) and UNK not in tokens:
                    assert mark in vocabulary.decode(tokens)


def test_marks_of_a_prompt_are_marks(folder: Folder) -> None:
    vocabulary = load_pretrained(folder("qwen"))[0]
    prompt = "<|im_start|>the cat<|im_end|>"
    first, *middle, last = vocabulary.encode_prompt(prompt)
    assert (vocabulary.piece(first), last, tuple(middle)) == ("<|im_start|>", EOS, vocabulary.encode("the cat"))
    assert vocabulary.decode(vocabulary.encode(prompt)) == prompt, "in a source they are text"


@pytest.mark.parametrize("family", FAMILIES)
def test_pieces_and_tokens_are_inverse_and_bounded(folder: Folder, family: str) -> None:
    own = library(folder(family))
    for vocabulary in load_pretrained(folder(family)):
        numbers = range(vocabulary.size)
        assert [vocabulary.token(vocabulary.piece(number)) for number in numbers] == list(numbers)
        assert vocabulary.token("no such piece") == UNK
        for number in (-1, vocabulary.size):
            with pytest.raises(IndexError):
                vocabulary.piece(number)
    for id in own.get_vocab().values() if family != "marian-separate" else ():
        assert vocabulary.piece(int(vocabulary.numbering.numbers[id])) == own.convert_ids_to_tokens(id)


def test_rows_without_a_token_have_a_name(folder: Folder) -> None:
    source, target = load_pretrained(folder("t5"))
    assert (target.size, target.piece(255), target.piece(BOS)) == (257, "<255>", "<s>")
    assert target.decode([*target.encode("the cat"), 255, BOS, *target.encode("sat")]) == "the cat <255> <s> sat"
    assert source.fingerprint == target.fingerprint


def test_sides_with_ids_of_their_own(folder: Folder) -> None:
    source, target = load_pretrained(folder("marian-separate"))
    for vocabulary, name in ((source, "vocab.json"), (target, "target_vocab.json")):
        expected = json.loads((folder("marian-separate") / name).read_text())
        assert len(vocabulary.numbering.numbers) == len(expected)
        assert all(vocabulary.piece(int(vocabulary.numbering.numbers[id])) == piece for piece, id in expected.items())
    assert source.fingerprint != target.fingerprint


@pytest.mark.parametrize("family", FAMILIES)
def test_the_texts_of_tokens_join_to_the_text(folder: Folder, family: str) -> None:
    for vocabulary in load_pretrained(folder(family)):
        for line in ("the cat sat", "a dog ran in the park", "läuft"):
            texts = [vocabulary.text_of(token) for token in vocabulary.encode(line)]
            if None not in texts:
                joined = "".join(map(str, texts))
                assert joined.removeprefix("▁") == line.replace(" ", "▁")
            assert vocabulary.words_in(line) == line.split()
        assert all(vocabulary.text_of(token) is None for token in (UNK, BOS, EOS))


def test_languages(folder: Folder) -> None:
    own = library(folder("nllb"))
    source, _ = load_pretrained(folder("nllb"), source_language="deu_Latn")
    own.src_lang = "deu_Latn"
    assert ids(source, source.wrap(source.encode("the cat"))) == own("the cat")["input_ids"]
    assert read_roles(folder("nllb"), target_language="deu_Latn").forced_bos == own.convert_tokens_to_ids("deu_Latn")
    own = library(folder("mbart"))
    roles = read_roles(folder("mbart"), target_language="fr_XX")
    assert (roles.decoder_start, roles.forced_bos) == (own.convert_tokens_to_ids("fr_XX"), None)
    for family, language in (("nllb", "xx"), ("mbart", "xx"), ("t5", "de_DE")):
        with pytest.raises(SgdecError, match="language"):
            load_pretrained(folder(family), target_language=language)


def _as_json(folder: Path, other: Path) -> None:
    """A SentencePiece model as tokenizer.json."""
    library(folder).save_pretrained(other)
    assert (other / "tokenizer.json").is_file() and not list(other.glob("*.model"))


def _as_merges(folder: Path, other: Path) -> None:
    """tokenizer.json of byte-level BPE as vocab.json and merges.txt."""
    from tokenizers import Tokenizer

    other.mkdir()
    backend = Tokenizer.from_file(str(folder / "tokenizer.json"))
    backend.model.save(str(other))
    listed = backend.get_vocab()
    (other / "vocab.json").write_text(json.dumps(dict(sorted(listed.items(), key=lambda item: item[1]))))
    shutil.copy(folder / "tokenizer_config.json", other)


@pytest.mark.parametrize(
    ("family", "convert"), [("t5", _as_json), ("mbart", _as_json), ("gpt2", _as_merges), ("bart", _as_merges)]
)
def test_all_layouts_of_a_tokenizer_give_the_same_tokens(
    folder: Folder, tmp_path: Path, family: str, convert: Callable[[Path, Path], None]
) -> None:
    other = tmp_path / family
    convert(folder(family), other)
    shutil.copy(folder(family) / "config.json", other)
    for one, another in zip(load_pretrained(folder(family)), load_pretrained(other), strict=True):
        assert one.fingerprint == another.fingerprint
        assert one.encode_all(LINES) == another.encode_all(LINES)
        assert one.wrap((5,)) == another.wrap((5,))


def test_a_folder_with_a_tokenizer_alone(folder: Folder, tmp_path: Path) -> None:
    shutil.copytree(folder("llama"), tmp_path / "llama")
    (tmp_path / "llama" / "config.json").unlink()
    alone, whole = load_pretrained(tmp_path / "llama")[1], load_pretrained(folder("llama"))[1]
    assert alone.fingerprint == whole.fingerprint
    with pytest.raises(SgdecError, match=r"there is no config.json"):
        read_roles(tmp_path / "llama")


def test_a_folder_with_a_config_alone(folder: Folder, tmp_path: Path) -> None:
    shutil.copy(folder("t5") / "config.json", tmp_path)
    assert read_roles(tmp_path).numbering.ids[:3].tolist() == [RESERVED, RESERVED, 1]


def _json(path: Path) -> Any:
    return json.loads(path.read_text())


def test_lengths_that_the_file_fixes_change_no_text(folder: Folder, tmp_path: Path) -> None:
    shutil.copytree(folder("gpt2"), tmp_path / "gpt2")
    content = _json(tmp_path / "gpt2" / "tokenizer.json")
    content["truncation"] = {"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0}
    content["padding"] = {
        "strategy": {"Fixed": 64}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0, "pad_type_id": 0,
        "pad_token": "!",
    }  # fmt: skip
    (tmp_path / "gpt2" / "tokenizer.json").write_text(json.dumps(content))
    for given, fixed in zip(load_pretrained(folder("gpt2")), load_pretrained(tmp_path / "gpt2"), strict=True):
        assert fixed.encode_all(LINES) == given.encode_all(LINES)
        assert fixed.encode_prompt(TEXT[0]) == given.encode_prompt(TEXT[0])
        assert fixed.wrap((5,)) == given.wrap((5,)) == (5,)


def test_a_changed_file_is_read_again(folder: Folder, tmp_path: Path) -> None:
    shutil.copytree(folder("bart"), tmp_path / "bart")
    before = load_pretrained(tmp_path / "bart")[1]
    _edit("tokenizer_config.json", unk_token="<mask>")(tmp_path / "bart")
    after = load_pretrained(tmp_path / "bart")[1]
    assert (before.piece(UNK), after.piece(UNK)) == ("<unk>", "<mask>")


def test_pieces_with_blanks_inside_are_in_no_word(folder: Folder, tmp_path: Path) -> None:
    shutil.copytree(folder("llama"), tmp_path / "llama")
    content = _json(tmp_path / "llama" / "tokenizer.json")
    rows = len(content["model"]["vocab"])
    content["model"]["vocab"]["▁▁"] = rows
    content["model"]["merges"].append(["▁", "▁"])
    (tmp_path / "llama" / "tokenizer.json").write_text(json.dumps(content))
    _edit("config.json", vocab_size=rows + 1)(tmp_path / "llama")
    vocabulary = load_pretrained(tmp_path / "llama")[1]
    assert rows in vocabulary.encode("the   cat")
    assert (vocabulary.piece(rows), vocabulary.text_of(rows)) == ("▁▁", None)


def test_warnings_of_the_library_stay_away(folder: Folder, tmp_path: Path) -> None:
    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = records.append  # type: ignore[method-assign]
    logger = logging.getLogger("transformers")
    logger.addHandler(handler)
    try:
        shutil.copytree(folder("gpt2"), tmp_path / "gpt2")
        _edit("tokenizer_config.json", tokenizer_class="LlamaTokenizer")(tmp_path / "gpt2")
        library(tmp_path / "gpt2")
        assert records or Version(version("transformers")) < Version("5.22"), "the library warns of this class"
        records.clear()
        (tmp_path / "gpt2").rename(tmp_path / "other")
        logging_cache_clear()
        load_pretrained(tmp_path / "other")
        assert records == []
    finally:
        logger.removeHandler(handler)


def test_nothing_is_printed(folder: Folder, capfd: pytest.CaptureFixture[str]) -> None:
    for family in FAMILIES:
        load_pretrained(folder(family))[0].encode("the cat " * 1000)
    assert capfd.readouterr() == ("", "")


def _write(name: str, content: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_text(content)


def _edit(name: str, **changes: Any) -> Callable[[Path], object]:
    def edit(folder: Path) -> None:
        (folder / name).write_text(json.dumps({**json.loads((folder / name).read_text()), **changes}))

    return edit


def _rename(name: str, other: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).rename(folder / other)


def _remove(*names: str) -> Callable[[Path], object]:
    return lambda folder: [(folder / name).unlink() for name in names]


BAD: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "no tokenizer": ("t5", _remove("spiece.model"), "there are no files of a tokenizer. Expected tokenizer.json"),
    "another class's files": ("t5", _rename("spiece.model", "x.spm"), "needs one of the files tokenizer"),
    "half of Marian's": ("marian", _remove("target.spm"), "the tokenizer cannot be used"),
    "broken tokenizer": ("qwen", _write("tokenizer.json", "{"), "/tokenizer.json: this is not JSON. Copy the folder"),
    "no object": ("qwen", _write("tokenizer.json", "[]"), "this is not a tokenizer"),
    "broken model": ("t5", _write("spiece.model", "x"), "the tokenizer cannot be used"),
    "broken config": ("qwen", _write("config.json", "{"), "/config.json: this is not JSON"),
    "broken generation": ("qwen", _write("generation_config.json", "{"), "/generation_config.json: this is not JSON"),
    "broken settings": ("qwen", _write("tokenizer_config.json", "{"), "/tokenizer_config.json: this is not JSON"),
    "unknown architecture": ("qwen", _edit("config.json", model_type="nonesuch"), "config cannot be used"),
    "too small": ("t5", _edit("config.json", vocab_size=20), "but the model has only the ids 0 to 19. They"),
    "no end": ("t5", _edit("config.json", eos_token_id=500), "id 500 has a role, but there are only 256 ids"),
    "an end that is text": ("qwen", _edit("generation_config.json", eos_token_id="x"), "eos_token_id is 'x'"),
    "an end that is none": ("qwen", _edit("generation_config.json", eos_token_id=[3, None]), "id is [3, None]"),
    "half a beginning": ("qwen", _edit("generation_config.json", bos_token_id=1.5), "bos_token_id is 1.5; expected"),
    "a start that is missing": ("t5", _edit("config.json", decoder_start_token_id=256), "but there are only 256 ids"),
    "huge": ("t5", _edit("config.json", vocab_size=10**12), "the vocabulary has 1000000000000 tokens. The limit is"),
    "ids that are text": ("marian", _edit("vocab.json", x="y"), "an id is not a number"),
    "no <unk>": ("bart", _edit("tokenizer_config.json", unk_token=None, pad_token="none"), ""),
    "code of its own": (
        "qwen",
        _edit("tokenizer_config.json", tokenizer_class="Mine", auto_map={"AutoTokenizer": ["mine.Mine", None]}),
        "it needs code from its folder, which sgdec never runs",
    ),
    "code of its own, model": (
        "qwen", _edit("config.json", model_type="mine", auto_map={"AutoConfig": "mine.Config"}),
        "it needs code from its folder, which sgdec never runs",
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("case", BAD)
def test_bad_folders_give_one_clear_line(folder: Folder, tmp_path: Path, case: str) -> None:
    family, spoil, expected = BAD[case]
    spoiled = tmp_path / "folder"
    shutil.copytree(folder(family), spoiled)
    spoil(spoiled)
    with pytest.raises(SgdecError) as error:
        load_vocabulary(spoiled)
    message = str(error.value)
    assert expected in message
    assert message.startswith(str(spoiled)), "the place comes first"
    assert "\n" not in message and len(message) < 400


def test_files_beyond_the_limit_are_refused(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SGDEC_MAX_DOCUMENT_BYTES", "100")
    with pytest.raises(SgdecError, match="SGDEC_MAX_DOCUMENT_BYTES"):
        load_vocabulary(folder("gpt2"))


def test_other_folders(folder: Folder, tmp_path: Path) -> None:
    with pytest.raises(SgdecError, match="cannot be read"):
        load_vocabulary(tmp_path / "nowhere")
    with pytest.raises(SgdecError, match="no files of a tokenizer"):
        load_vocabulary(tmp_path)
    with pytest.raises(SgdecError, match=r"this is a folder\. Expected a file"):
        load_trained(folder("gpt2"))
    (tmp_path / "best").mkdir()
    (tmp_path / "best" / "config.json").write_text('{"format": 1, "source_vocab_size": 9}')
    for path in (tmp_path, tmp_path / "best"):
        with pytest.raises(SgdecError, match=r"this is a folder of `sgdec train`\. Give a tokenizer in it"):
            load_vocabulary(path)
