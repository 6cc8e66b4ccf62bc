"""Writes `fuzz/corpus`: one tiny file of each format that sgdec reads. `python -m fuzz.make_corpus` writes all of
them.

The files are in the repository, so that inputs do not depend on the machine that makes them; run this only if a
format is added or changes. Three sentences over the letters a, b, c: as tokens 4, 5, 6, in a vocabulary of 7.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pynini
import pywrapfst
import torch

from fuzz.case import CORPUS
from sgdec.cli.main import main
from sgdec.demo.corpus import english, german
from sgdec.io.nplm import NplmFile, StoredLayer, write_nplm
from sgdec.text.lines import ZSTD
from sgdec.text.sentencepiece import train_vocabulary
from sgdec.text.vocabulary import train
from tests.helpers.corpora import write_corpus
from tests.helpers.tiny_models import write_checkpoint, write_lattice

ROOT = Path(__file__).parent.parent
IDS = "4 5\n6\n5 4 6\n"
TEXT = "ab\nc\nba c\n"
MODELS = {
    "gnmt": {"layers": 2, "width": 4},
    "transformer": {"layers": 1, "width": 4, "heads": 2, "feed_forward": 4},
    "multi-source": {"width": 4, "embedding": 4},
    "rnnlm": {"layers": 1, "width": 4},
    "nplm": {"order": 3, "embedding": 2, "hidden": 3, "output": 2},
}
NUMBERS = {"one": "eins", "two": "zwei", "three": "drei", "four": "vier"}


def sources() -> None:
    write("in.ids", IDS)
    write("in.txt", TEXT)
    write("two.ids", "4 5 2 6\n6 2 4\n5 2 4 6\n")
    zipped("in.ids")
    write("outputs.ids", "5 4\n6\n4\n")
    write("outputs.txt", "ba\nc\na\n")
    write("grammar.lark", 'start: word (" " word)*  // at least one\nword: /[ab]{1,2}/ | "c"\n')
    write("schema.json", json.dumps({"type": "array", "items": {"enum": ["a", 1]}, "minItems": 1, "maxItems": 2}))
    write("phrases.tsv", "a | b\nc\n\n")
    write("avoided.tsv", "a b\tc c\n")
    write("patterns.txt", "a( b)*\n[ab]+|c\n.{0,2}\n")
    write("words.txt", "a\nb\nab\n")
    Path("outputs.txt.zst").write_bytes(import_module(ZSTD).compress(Path("outputs.txt").read_bytes()))


def lattices() -> None:
    for sentence, paths in enumerate([[(4,), (5, 4)], [(6,), (4, 4)], [(5, 6, 4), (4,)]], 1):
        weighted = [(path, 0.5 * cost) for cost, path in enumerate(paths)]
        write_lattice(Path(f"lattices/{sentence}.fst"), weighted)
    zipped("lattices/2.fst")
    fst = pynini.Fst.read("lattices/2.fst")
    for kind in ("const", "compact_acceptor"):
        pywrapfst.convert(fst, kind).write(f"lattices/{kind}.fst")
    for arcs in ("log", "log64"):
        pynini.arcmap(fst, map_type=f"to_{arcs}").write(f"lattices/{arcs}.fst")
    table = pywrapfst.SymbolTable()
    for token, word in enumerate(["<eps>", "<s>", "</s>", "x", "a", "b", "c"]):
        table.add_symbol(word, token)
    fst.set_input_symbols(table)
    fst.set_output_symbols(table)
    fst.write("lattices/symbols.fst")


def networks() -> None:
    """Sentence 2 has a root in its own folder, which calls a network."""
    write("networks/ntmap", "S 1\nX 3\n")
    for name, path in {"1": "[4]", "2/1001000001": "[1003000000][5]", "2/1003000000": "[6]", "3": "[5][4]"}.items():
        Path("networks", name).parent.mkdir(exist_ok=True)
        pynini.accep(path, weight=0.5).write(f"networks/{name}.fst")


def language_models() -> None:
    shutil.copy(ROOT / "tests/data/tiny.arpa", "model.arpa")
    shutil.copy(ROOT / "tests/data/tiny.kenlm", "model.kenlm")
    zipped("model.arpa")
    write("words.map", "<unk> 0\n<s> 1\n</s> 2\n3 3\n4 4\n5 5\n")
    rng = np.random.default_rng(1)
    words = ["<unk>", "<s>", "</s>", "3", "4", "5", "6"]
    hidden = [
        StoredLayer(rng.normal(size=(3, 4)), rng.normal(size=3)),
        StoredLayer(rng.normal(size=(2, 3)), rng.normal(size=2)),
    ]
    model = NplmFile(
        3, "tanh", words, words, rng.normal(size=(7, 2)), hidden, rng.normal(size=(7, 2)), rng.normal(size=7)
    )
    write_nplm("model.nplm", model)


def scored(tokens: list[int], score: float) -> dict[str, object]:
    """A hypothesis as ``sgdec decode --output-format jsonl`` writes it."""
    return {"tokens": tokens, "text": None, "score": score, "scores": {"lm": score}, "weights": {"lm": 1.0}}


def lists() -> None:
    write("list.nbest", "0 ||| 5 4 ||| lm= -3.5 tm= -1 -2 ||| -2.5\n0 ||| 4 ||| lm= -4 tm= -1 -1 ||| -3\n"
          "1 ||| 6 ||| lm= -1 tm= -1 -1 ||| -1.5\n2 ||| 4 4 ||| lm= -2 tm= -1 -1 ||| -2\n")  # fmt: skip
    write("allowed.tsv", "5 4\t-0.5\n4\t-1.25\n4 6 5\t-2\n6\t-0.75\n")
    run(["trie", "allowed.tsv", "--output", "allowed.trie"])
    for sentence, tokens in enumerate(["5 4\n4\n", "6\n4 4\n", "4\n"], 1):
        write(f"lists/{sentence}.txt", tokens)
    rows = [
        {"id": n, "hypotheses": [scored([5, n], -n / 2), scored([4], -3.0)]} for n in (4, 5, 6)
    ]
    run([
        "decode", "--predictors", "fst,ngram", "--fst.path", "lattices/{id}.fst", "--ngram.path", "model.arpa",
        "--input-format", "ids", "--trace", "trace.jsonl", "--trace-children", "3", "in.ids",
    ])  # fmt: skip
    run([
        "diagnose", "--predictors", "fst,ngram", "--fst.path", "lattices/{id}.fst", "--ngram.path", "model.arpa",
        "--vocab-size", "7", "--input-format", "ids", "--reference", "outputs.ids", "--output", "diagnosis.jsonl",
        "in.ids",
    ])  # fmt: skip
    write("sentence.weights", "1 0.5\n0 1\n-1 2\n")
    write("list.jsonl", "".join(json.dumps({**row, "id": n}) + "\n" for n, row in enumerate(rows, 1)))
    for sentence in (1, 2, 3):
        write(f"ngrams/{sentence}.txt", f"{sentence + 3} : 0.5\n1 4 : 0.25\n4 5 2 : 0.125\n")


def lines_and_maps() -> None:
    write("rules.txt", "# LHS SOURCE TARGET SCORE...\nX 4_X1 X1_5 -0.5 0.1\nX 5 4_4 -0.3 0\nX 4 5 -1 0\n"
          "X 6 6 -0.2 0\nS 1_X1_2 1_X1_2 0 0\nX 5_X1_6 5_X1_6 -0.1 0\n")  # fmt: skip
    write("lengths.txt", "1:-0.5 2:-1.2\n1 2:-3\n2:-0.5 3\n")
    names = ("characters", "words", "punctuation", "characters_per_word", "punctuation_per_word", "bias")
    from sgdec.io.lengths import NAMES

    assert len(names) * 2 == len(NAMES)
    write("length.weights", "".join(f"{name} {0.1 * n:.1f}  # a weight\n" for n, name in enumerate(NAMES, 1)))
    write("tokens.map", "".join(f"{n} {n}\n" for n in range(3)) + "3 6\n4 5\n5 4\n6 3\n")
    write("spellings.map", "4 4 5\n5 6\n6 4\n")
    write("bags.ids", "5 4\n6 6\n4\n")


def transducers() -> None:
    fst = pynini.union(pynini.cross("[4]", "[5][5]"), pynini.cross("[5]", "[4]"), pynini.cross("[6]", "[999999998]"))
    pynini.closure(fst).optimize().write("transducer.fst")


def vocabularies() -> None:
    letters = train_vocabulary(["a b c", "abc"], 7, kind="char", normalization="identity")  # no large tables
    Path("letters.spm").write_bytes(letters.serialized)
    text = [words(number) for words in (english, german) for number in (*range(100), 100, 1000)]
    numbers = train_vocabulary(text, 40, kind="char", normalization="identity")
    Path("numbers.spm").write_bytes(numbers.serialized)
    write("numbers.en", "seven\nforty two\n")
    for kind in ("word", "mixed"):
        text = [" ".join(pair) for pair in NUMBERS.items()] * 2
        Path(f"{kind}.json").write_bytes(train(text, 14 if kind == "word" else 818, kind).serialized)


def models() -> None:
    for model, options in MODELS.items():
        folder = write_checkpoint(Path(model), model=model, options=options)
        for vocabulary in folder.glob("*.spm"):
            shutil.copy("letters.spm", vocabulary)
    torch.manual_seed(1)
    run(["quantize", "gnmt", "--output", "quantised"])
    run(["cluster", "--model", "gnmt", "--input", "in.txt", "--centroids", "2",
         "--output", "clusters", "--k", "2"])  # fmt: skip
    run(["shortlist", "in.txt", "in.txt", "--model", "gnmt", "--output", "shortlist", "--k", "3"])


def pretrained() -> None:
    """Hugging Face models, with tokenizer.json or in Marian's layout, one in two files; Marian's tokenizer alone."""
    from transformers import (
        BartConfig,
        BartForConditionalGeneration,
        GPT2Config,
        GPT2LMHeadModel,
        LlamaConfig,
        LlamaForCausalLM,
        MarianConfig,
        MarianMTModel,
        T5Config,
        T5ForConditionalGeneration,
    )

    torch.manual_seed(1)
    end = 5
    ids: dict[str, Any] = {"vocab_size": end + 1, "bos_token_id": end, "eos_token_id": end}
    sides: dict[str, Any] = {"pad_token_id": end, "decoder_start_token_id": end, "forced_eos_token_id": None}
    feed_forward: dict[str, Any] = {"encoder_ffn_dim": 4, "decoder_ffn_dim": 4}
    stacks: dict[str, Any] = {"encoder_layers": 1, "decoder_layers": 1, **feed_forward} | {
        "d_model": 4, "encoder_attention_heads": 1, "decoder_attention_heads": 1, "max_position_embeddings": 32
    }  # fmt: skip
    GPT2LMHeadModel(GPT2Config(n_positions=32, n_embd=4, n_layer=1, n_head=1, **ids)).save_pretrained("gpt2")
    llama = LlamaConfig(
        hidden_size=4, intermediate_size=4, num_hidden_layers=1, num_attention_heads=1, max_position_embeddings=32,
        **ids,
    )  # fmt: skip
    LlamaForCausalLM(llama).save_pretrained("llama", max_shard_size=400)
    BartForConditionalGeneration(BartConfig(**ids, **sides, **stacks)).save_pretrained("bart")
    small = {"d_model": 4, "d_kv": 4, "d_ff": 4, "num_layers": 1, "num_heads": 1, "relative_attention_num_buckets": 4}
    t5 = T5Config(**small, **ids, **sides)
    T5ForConditionalGeneration(t5).save_pretrained("t5")
    for folder, name in (("gpt2", "GPT2Tokenizer"), ("llama", "TokenizersBackend"), ("bart", "TokenizersBackend"),
                         ("t5", "TokenizersBackend")):  # fmt: skip
        _tokenizer(folder, name)
    pieces = ["</s>", "<unk>", "▁", "a", "b", "c", "<pad>"]
    numbers = {"vocab_size": 7, "bos_token_id": 0, "eos_token_id": 0, "forced_eos_token_id": 0}
    ends = {"pad_token_id": 6, "decoder_start_token_id": 6}
    MarianMTModel(MarianConfig(**numbers, **ends, **stacks)).save_pretrained("marian-mt")
    for folder in ("marian", "marian-mt"):
        listed = {piece: id for id, piece in enumerate(pieces)}
        write(f"{folder}/vocab.json", json.dumps(listed, ensure_ascii=False) + "\n")
        write(f"{folder}/tokenizer_config.json", '{"tokenizer_class": "MarianTokenizer"}\n')
        for side in ("source", "target"):
            shutil.copy("letters.spm", f"{folder}/{side}.spm")


def _tokenizer(folder: str, name: str) -> None:
    """Three letters and a space, in the bytes of GPT-2."""
    from tokenizers import Tokenizer, decoders, pre_tokenizers
    from tokenizers.models import BPE

    tokenizer = Tokenizer(BPE({"a": 0, "b": 1, "c": 2, "Ġ": 3, "ab": 4}, [("a", "b")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<end>"])
    tokenizer.save(f"{folder}/tokenizer.json")
    write(f"{folder}/tokenizer_config.json", f'{{"tokenizer_class": "{name}", "bos_token": "<end>", '
          '"eos_token": "<end>", "unk_token": "<end>"}\n')  # fmt: skip


def training() -> None:
    """Text, what training reads beside it, and the folder of a run."""
    words = list(NUMBERS)
    pairs = [f"{a} {b}" for a in words for b in words]
    write("train.en", "".join(f"{pair}\n" for pair in pairs))
    write("train.de", "".join(f"{' '.join(NUMBERS[w] for w in pair.split())}\n" for pair in pairs))
    for side in ("en", "de"):
        write(f"valid.{side}", "".join(Path(f"train.{side}").read_text().splitlines(keepends=True)[:3]))
    run(["tokenizer", "--input", "train.en", "--input", "train.de", "--kind", "word",
         "--vocab-size", "11", "--output", "words.vocab"])  # fmt: skip
    write("weights.txt", "1 1\n" * 15 + "0.5 1 2\n")
    write("embeddings.txt", "3 4\none 1 0 0 0.5\neins 0 1 0 0\nzwei 0 0 1e-3 0\n")
    run(["train", "--train", "train.en", "train.de", "--valid", "valid.en",
         "valid.de", "--tokenizer", "words.vocab", "--output", "run",
         "--gnmt.width", "4", "--gnmt.layers", "2", "--max-steps", "2", "--batch-tokens", "24", "--quiet",
         "--threads", "1", "--precision", "fp32"])  # fmt: skip
    run(["train", "--model", "rnnlm", "--train", "train.de", "--valid", "valid.de", "--tokenizer", "words.vocab",
         "--output", "lm", "--rnnlm.width", "4", "--rnnlm.layers", "1", "--max-steps", "1", "--quiet"])  # fmt: skip
    Path("words-lm").mkdir()
    for name in ("config.json", "model.safetensors", "tokenizer.spm"):
        shutil.copy(f"lm/best/{name}", f"words-lm/{name}")
    shutil.rmtree("lm")
    for entry in Path("run").iterdir():
        if "tfevents" in entry.name or entry.suffix == ".png":
            entry.unlink()


def configs() -> None:
    write("decode.toml", 'predictors = "wc"\nvocab-size = 7\ninput-format = "ids"\nmax-length = 4\n\n[beam]\n'
          'size = 2\nalpha = 0.5\n\n[wc]\ntoken = -1\nweight = 0.5\n')  # fmt: skip
    write("score.toml", 'predictors = "wc"\nvocab-size = 7\ninput-format = "ids"\n\n[wc]\ntoken = -1\n')


def corpora() -> None:
    pulse = {"starter": "a", "counter": 3, "lines": 4, "underway": 1, "seconds": 2.0, "workers": {"1": 4}}
    write_corpus("work", failing=False).write("starters/a.json", json.dumps(pulse).encode())


def write(name: str, text: str) -> None:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def zipped(name: str) -> None:
    Path(f"{name}.gz").write_bytes(gzip.compress(Path(name).read_bytes(), mtime=0))


def run(args: list[str]) -> None:
    status = main(args)
    assert status == 0, f"sgdec {' '.join(args)}: exit status {status}"


if __name__ == "__main__":
    shutil.rmtree(CORPUS, ignore_errors=True)
    CORPUS.mkdir()
    os.chdir(CORPUS)  # so that no file says where it was made
    for make in (
        sources, lattices, networks, language_models, lists, lines_and_maps, transducers, vocabularies, models,
        pretrained, training, configs, corpora,
    ):  # fmt: skip
        make()
