"""Every file that sgdec reads, in a command that reads it: what is damaged, and what must come of it all the same.

A test holds this list against the plugins and commands: an option that names a file, and that no target here gives a
damaged one, fails it.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hypothesis import strategies as st

from fuzz.case import CORPUS, Case, from_corpus
from fuzz.mutations import damaged

SENTENCES = 3


@dataclass(frozen=True)
class FileTarget:
    """A command, and which of its files are damaged."""

    name: str
    args: tuple[str, ...]
    files: Mapping[str, str]
    """By path where the command runs, the file or folder of the corpus."""
    damaged: Mapping[str, str]
    """Of these (or of files in these folders) one is damaged, according to its kind (`fuzz.mutations.KINDS`)."""
    others: Sequence[str] = ()
    """Files of the corpus that may take the place of the damaged one first: the same in other forms."""
    rows: int | None = None
    """Lines of the complete output."""
    sentence: int | None = None
    """The only one that the damaged file concerns."""
    source: bool = False
    """The damaged file is the source text: a sentence costs itself alone, and equal sentences have equal output."""
    statuses: tuple[int, ...] = (0, 1)
    writes: tuple[str, ...] = ()

    def undamaged(self) -> Case:
        return Case(self.name, self.args, from_corpus(self.files), rows=self.rows, writes=self.writes)

    def cases(self, rows: Sequence[str]) -> st.SearchStrategy[Case]:
        """``rows``: the output of the undamaged run."""
        base = self.undamaged()
        forms = [(CORPUS / name).read_bytes() for name in self.others]

        @st.composite
        def case(draw: st.DrawFn) -> Case:
            path, kind = draw(st.sampled_from(list(self.damaged.items())))
            content = base.files[path]
            assert isinstance(content, bytes)
            data = draw(st.sampled_from([content, *forms])) if forms else content
            data = draw(damaged(data, kind))
            files = {**base.files, path: data}
            count, kept = self.rows, {}
            if self.sentence is not None:
                kept = {n: row for n, row in enumerate(rows, 1) if n != self.sentence}
            if self.source:
                lines = _lines(data, path)
                before = dict(zip(_lines(content, path) or [], rows, strict=False))
                count = None if lines is None else len(lines)
                kept = {n: before[line] for n, line in enumerate(lines or [], 1) if line in before}
            survives = self.sentence is not None or (self.source and count != 0)
            return Case(
                self.name, self.args, files, rows=count, kept=kept, survives=survives,
                statuses=self.statuses, writes=self.writes,
            )  # fmt: skip

        return case()


def _lines(data: bytes, path: str) -> list[bytes] | None:
    """Of a text, which may be packed; None for what cannot be unpacked, or only to something very large."""
    if path.endswith(".gz"):
        try:
            data = zlib.decompressobj(wbits=31).decompress(data, 1 << 16) if len(data) > 10_000 else gzip.decompress(data)
        except (OSError, EOFError, zlib.error):
            return None
        if len(data) >= 1 << 16:
            return None
    lines = data.split(b"\n")
    return [line.removesuffix(b"\r") for line in (lines[:-1] if lines[-1] == b"" else lines)]


def _decode(name: str, options: str, files: Mapping[str, str], damage: Mapping[str, str], **more: object) -> FileTarget:
    """Three sentences of token ids over 7 tokens, decoded with some predictors."""
    given = [word for word in options.split(" ") if word]
    size = [] if "--tokenizer" in given or "nmt" in options else ["--vocab-size", "7"]
    common = ["--input-format", "ids", "--max-length", "4", *size]
    args = ("decode", "--predictors", *given, *common, "in.ids")
    return FileTarget(name, args, {"in.ids": "in.ids", **files}, damage, rows=SENTENCES, **more)  # type: ignore[arg-type]


def _command(name: str, command: str, files: Mapping[str, str] | str, damage: Mapping[str, str], **more: object) -> FileTarget:
    """A command by itself; ``files`` may be names that are the same in the corpus."""
    if isinstance(files, str):
        files = {word: word for word in files.split()}
    return FileTarget(name, tuple(command.split(" ")), files, damage, **more)  # type: ignore[arg-type]


LATTICES = {f"lattices/{n}.fst": f"lattices/{n}.fst" for n in (1, 2, 3)}
FORMS = [f"lattices/{form}.fst" for form in ("symbols", "log", "log64", "const", "compact_acceptor")] + ["lattices/2.fst.gz"]
LISTS = {f"lists/{n}.txt": f"lists/{n}.txt" for n in (1, 2, 3)}
NGRAMS = {f"ngrams/{n}.txt": f"ngrams/{n}.txt" for n in (1, 2, 3)}
OF_A_MODEL = {"model/config.json": "json", "model/model.safetensors": "safetensors", "model/tokenizer.spm": "binary"}
RUN = {
    "run/step-2/config.json": "json", "run/step-2/progress.json": "json", "run/metrics.jsonl": "json",
    "run/step-2/metrics.jsonl": "json", "run/step-2/optimizer.safetensors": "safetensors",
    "run/step-2/model.safetensors": "safetensors", "run/step-2/tokenizer.spm": "json",
}  # fmt: skip
PARALLEL = {name: name for name in ("train.en", "train.de", "valid.en", "valid.de", "words.vocab")}
TRAIN = (
    "train --train train.en train.de --valid valid.en valid.de --tokenizer words.vocab --output run --gnmt.width 4 "
    "--gnmt.layers 2 --batch-tokens 24 --quiet --threads 1 --max-steps "
)

TARGETS: tuple[FileTarget, ...] = (
    # Sources.
    _decode("source ids", "nmt --nmt.model model", {"model": "gnmt"}, {"in.ids": "text"}, source=True),
    _command("source text", "decode --predictors nmt --nmt.model model --max-length 4 in.txt",
             {"in.txt": "in.txt", "model": "gnmt"}, {"in.txt": "text"}, source=True, rows=SENTENCES),
    _command("source gz", "decode --predictors wc --wc.weight -1 --vocab-size 7 --input-format ids --max-length 4 in.ids.gz",
             "in.ids.gz", {"in.ids.gz": "gzip text"}, source=True, rows=SENTENCES),
    _command("two sources", "decode --predictors nmt --nmt.model model --input-format ids --max-length 4 two.ids",
             {"two.ids": "two.ids", "model": "multi-source"}, {"two.ids": "text"}, source=True, rows=SENTENCES),
    # Lattices.
    _decode("fst", "fst --fst.path lattices/{id}.fst", LATTICES, {"lattices/2.fst": "binary"}, others=FORMS, sentence=2),
    _decode("nfst", "nfst --nfst.path lattices/{id}.fst", LATTICES, {"lattices/2.fst": "binary"}, others=FORMS, sentence=2),
    _decode("fst of all", "fst --fst.path 1.fst", {"1.fst": "lattices/1.fst"}, {"1.fst": "binary"}, others=FORMS),
    _decode("fst gz", "fst --fst.path lattices/2.fst.gz", {"lattices/2.fst.gz": "lattices/2.fst.gz"},
            {"lattices/2.fst.gz": "gzip binary"}),
    _decode("rtn", "rtn --rtn.path networks", {"networks": "networks"},
            {"networks/2/1001000001.fst": "binary", "networks/2/1003000000.fst": "binary"}, sentence=2),
    _decode("rtn map", "rtn --rtn.path networks", {"networks": "networks"}, {"networks/ntmap": "text"}),
    _decode("fsttok", "fsttok:wc --fsttok.path transducer.fst", {"transducer.fst": "transducer.fst"},
            {"transducer.fst": "binary"}),
    # N-gram models and networks of language.
    _decode("ngram", "ngram --ngram.path model.arpa", {"model.arpa": "model.arpa"}, {"model.arpa": "text"}),
    _decode("srilm gz", "srilm --srilm.path model.arpa.gz", {"model.arpa.gz": "model.arpa.gz"},
            {"model.arpa.gz": "gzip text"}),
    _decode("ngram words", "ngram --ngram.path model.arpa --ngram.words words.map",
            {"model.arpa": "model.arpa", "words.map": "words.map"}, {"words.map": "text"}, statuses=(0, 1, 2)),
    _decode("kenlm", "fst,kenlm --fst.path lattices/{id}.fst --kenlm.path model.kenlm",
            {**LATTICES, "model.kenlm": "model.kenlm"}, {"model.kenlm": "binary"}),
    _decode("kenlm alone", "kenlm --kenlm.path model.kenlm", {"model.kenlm": "model.kenlm"}, {"model.kenlm": "binary"}),
    _decode("nplm text", "nplm --nplm.model model.nplm", {"model.nplm": "model.nplm"}, {"model.nplm": "text"}),
    _decode("nplm", "nplm --nplm.model model --tokenizer model/tokenizer.spm", {"model": "nplm"}, OF_A_MODEL),
    _decode("rnnlm", "rnnlm --rnnlm.model model --tokenizer model/tokenizer.spm", {"model": "rnnlm"}, OF_A_MODEL),
    # Translation models.
    _decode("nmt", "nmt --nmt.model model", {"model": "gnmt"}, OF_A_MODEL),
    _decode("nmt transformer", "nmt --nmt.model model", {"model": "transformer"}, OF_A_MODEL),
    _decode("nmt two sources", "nmt --nmt.model model", {"in.ids": "two.ids", "model": "multi-source"}, OF_A_MODEL),
    _decode("nmt int8", "nmt --nmt.model model --precision int8", {"model": "quantised"}, OF_A_MODEL),
    _decode("clusternmt", "clusternmt --clusternmt.model model --clusternmt.clusters clusters",
            {"model": "gnmt", "clusters": "clusters"},
            {"clusters/clusters.json": "json", "clusters/clusters.safetensors": "safetensors"}),
    _decode("clusternmt model", "clusternmt --clusternmt.model model --clusternmt.clusters clusters",
            {"model": "gnmt", "clusters": "clusters"}, OF_A_MODEL),
    # What other predictors read.
    _decode("lrhiero", "lrhiero --lrhiero.path rules.txt", {"rules.txt": "rules.txt"}, {"rules.txt": "text"}),
    _decode("forcedlst", "forcedlst --forcedlst.path list.nbest", {"list.nbest": "list.nbest"}, {"list.nbest": "text"}),
    _decode("forcedlst lines", "forcedlst --forcedlst.path lists/{id}.txt", LISTS, {"lists/2.txt": "text"}, sentence=2),
    _decode("forced", "forced,wc --forced.path outputs.ids", {"outputs.ids": "outputs.ids"}, {"outputs.ids": "text"}),
    _decode("bow", "bow --bow.path bags.ids", {"bags.ids": "bags.ids"}, {"bags.ids": "text"}),
    _decode("altsrc", "altsrc:nmt --altsrc.path outputs.ids --nmt.model model",
            {"outputs.ids": "outputs.ids", "model": "gnmt"}, {"outputs.ids": "text"}),
    _decode("ngramc", "ngramc,wc --ngramc.path ngrams/{id}.txt", NGRAMS, {"ngrams/2.txt": "text"}, sentence=2),
    _decode("extlength", "extlength,wc --extlength.path lengths.txt", {"lengths.txt": "lengths.txt"},
            {"lengths.txt": "text"}),
    _command("length", "decode --predictors length,wc --length.weights length.weights --tokenizer letters.spm "
             "--max-length 4 in.txt",
             "in.txt length.weights letters.spm", {"length.weights": "text"}, rows=SENTENCES),
    _decode("idxmap", "idxmap:wc --idxmap.path tokens.map --idxmap.src_path source.map",
            {"tokens.map": "tokens.map", "source.map": "tokens.map"}, {"tokens.map": "text", "source.map": "text"}),
    _decode("word2char", "word2char:wc --word2char.path spellings.map", {"spellings.map": "spellings.map"},
            {"spellings.map": "text"}),
    # Vocabularies, configurations.
    *(_command(f"tokenizer {kind}", f"decode --predictors wc --wc.weight -1 --max-length 2 --tokenizer {kind} in.txt",
               f"in.txt {kind}", {kind: "binary" if kind.endswith(".spm") else "json"}, rows=SENTENCES)
      for kind in ("letters.spm", "word.json", "mixed.json")),
    _command("config", "decode --config decode.toml in.ids", "in.ids decode.toml", {"decode.toml": "text"},
             rows=None, statuses=(0, 1, 2)),
    # Lists and scores.
    _command("score", "score --predictors nmt --nmt.model model --target-format ids --input-format ids in.ids outputs.ids",
             {"in.ids": "in.ids", "outputs.ids": "outputs.ids", "model": "gnmt"}, {"outputs.ids": "text"}),
    _command("score list", "score --predictors wc --vocab-size 7 --input-format ids --nbest-list --old-weight 1 in.ids "
             "list.nbest", "in.ids list.nbest", {"list.nbest": "text"}),
    _command("score config", "score --config decode.toml in.ids outputs.ids", {"in.ids": "in.ids",
             "decode.toml": "score.toml", "outputs.ids": "outputs.ids"}, {"decode.toml": "text"}, statuses=(0, 1, 2)),
    _command("ngrams of lattices", "ngrams lattices/{id}.fst --output out/{id}.txt", LATTICES,
             {"lattices/2.fst": "binary"}, others=FORMS),
    _command("ngrams of a list", "ngrams list.nbest --output out/{id}.txt", "list.nbest", {"list.nbest": "text"}),
    _command("ngrams of results", "ngrams list.jsonl --output out/{id}.txt", "list.jsonl", {"list.jsonl": "json"}),
    _command("ngrams tokenizer", "ngrams list.nbest --output out/{id}.txt --tokenizer letters.spm",
             "list.nbest letters.spm", {"letters.spm": "binary"}),
    _command("evaluate", "evaluate --reference outputs.txt in.txt", "outputs.txt in.txt",
             {"outputs.txt": "text", "in.txt": "text"}),
    # What makes models.
    _command("lm", "lm --input train.de --output out.arpa --order 3 --discount-fallback", "train.de", {"train.de": "text"},
             statuses=(0, 1, 2)),
    _command("lm tokenizer", "lm --input train.de --output out.arpa --order 2 --discount-fallback --tokenizer words.vocab",
             "train.de words.vocab", {"words.vocab": "json"}, statuses=(0, 1, 2)),
    *(_command(f"train a {kind} tokenizer", f"tokenizer --input train.de --kind {kind} --vocab-size {size} --output out",
               "train.de", {"train.de": "text"}, statuses=(0, 1, 2))
      for kind, size in (("bpe", 20), ("unigram", 17), ("word", 9), ("mixed", 820))),
    _command("transducer", "transducer --from word.json --to words.vocab --output out.fst", "word.json words.vocab",
             {"word.json": "json", "words.vocab": "json"}, statuses=(0, 1, 2)),
    _command("fit-length", "fit-length train.en train.de --output out", "train.en train.de",
             {"train.en": "text", "train.de": "text"}),
    _command("fit-length tokenizer", "fit-length train.en train.de --output out --tokenizer words.vocab",
             "train.en train.de words.vocab", {"words.vocab": "json"}),
    _command("average", "average model run --output out", {"model": "run/step-2", "run": "run"},
             {"model/config.json": "json", "model/model.safetensors": "safetensors", "run/step-2/config.json": "json",
              "run/step-2/model.safetensors": "safetensors"}),
    _command("quantize", "quantize model --output out --calibrate in.txt outputs.txt",
             {"model": "gnmt", "in.txt": "in.txt", "outputs.txt": "outputs.txt"},
             {**OF_A_MODEL, "in.txt": "text", "outputs.txt": "text"}),
    _command("cluster", "cluster --model model --input in.txt --held-out outputs.txt --centroids 2 --k 2 --backend torch "
             "--output out", {"model": "gnmt", "in.txt": "in.txt", "outputs.txt": "outputs.txt"},
             {**OF_A_MODEL, "in.txt": "text", "outputs.txt": "text"}),
    _command("demo lattices", "demo lattices --tokenizer numbers.spm --output out/{id}.fst numbers.en",
             "numbers.spm numbers.en", {"numbers.spm": "binary", "numbers.en": "text"}),
    # Training.
    _command("train text", f"{TRAIN}1", PARALLEL, {name: "text" for name in PARALLEL if name != "words.vocab"}),
    _command("train tokenizer", f"{TRAIN}1", PARALLEL, {"words.vocab": "json"}),
    _command("train weights", f"{TRAIN}1 --token-weights weights.txt", {**PARALLEL, "weights.txt": "weights.txt"},
             {"weights.txt": "text"}),
    _command("train embeddings", f"{TRAIN}1 --embeddings-source source.txt --embeddings-target target.txt",
             {**PARALLEL, "source.txt": "embeddings.txt", "target.txt": "embeddings.txt"},
             {"source.txt": "text", "target.txt": "text"}),
    _command("train start", f"{TRAIN}1 --start model", {**PARALLEL, "model": "run/step-2"},
             {"model/config.json": "json", "model/model.safetensors": "safetensors", "model/tokenizer.spm": "json"},
             statuses=(0, 1, 2)),
    _command("resume", f"{TRAIN}3 --resume", {**PARALLEL, "run": "run"}, RUN, writes=("run",), statuses=(0, 1, 2)),
)  # fmt: skip

NOT_DAMAGED = frozenset(
    {
        "output", "signature", "directory",  # written
        "plugin_file", "plugin_files",  # code, which is trusted
    }
)  # fmt: skip
"""Parameters of commands that name files which nothing reads as data."""
