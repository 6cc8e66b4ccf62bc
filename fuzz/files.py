"""Every file that sgdec reads, in a command that reads it, with the promises that must hold for a damaged file.

A test compares this list with the plugins and commands: it fails if an option names a file and no target damages that
file.
"""

from __future__ import annotations

import gzip
import re
import zlib
from codecs import BOM_UTF8
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st

from fuzz.case import CORPUS, Case, from_corpus
from fuzz.mutations import MOST_UNPACKED, damaged, rearranged
from fuzz.running import Runner

SENTENCES = 3
TORCH = re.compile(
    r"(model|model\.nplm)( |$)|^(train|average|cluster|evaluate|export|fit-length|quantize|shortlist) "
)
"""Commands that import torch."""


OTHER_MARKS = (b"\xff\xfe", b"\xfe\xff", b"\0\0\xfe\xff")
"""The byte order marks of UTF-16 and UTF-32: input in these encodings is refused as a whole."""


@dataclass(frozen=True)
class FileTarget:
    """A command, and the files that are damaged."""

    name: str
    args: tuple[str, ...]
    files: Mapping[str, str]
    """The file or folder of the corpus, by path in the command's folder."""
    damaged: Mapping[str, str]
    """One of these files (or of the files in these folders) is damaged, according to its kind
    (`fuzz.mutations.KINDS`)."""
    others: Sequence[str] = ()
    """Files of the corpus that may replace the damaged file before the damage: the same content in other formats."""
    rows: int | None = None
    """The number of lines of the complete output."""
    sentence: int | None = None
    """The only sentence that the damaged file affects."""
    source: bool = False
    """Whether the damaged file is the source text: a damaged sentence affects only itself, and equal sentences have
    equal outputs."""
    statuses: tuple[int, ...] = (0, 1)
    writes: tuple[str, ...] = ()
    stdin: str = ""
    folder: str = ""
    """A folder whose files are also left out, exchanged, linked and so on."""
    before: tuple[str, ...] = ()
    """A command that writes more files into the case's folder."""

    @property
    def light(self) -> bool:
        return not TORCH.search(" ".join(self.args))

    def base(self) -> Case:
        """The undamaged case, without what ``before`` writes."""
        return Case(self.name, self.args, from_corpus(self.files), self.stdin, rows=self.rows, writes=self.writes)

    def undamaged(self, runner: Runner) -> Case:
        base = self.base()
        if not self.before:
            return base
        written = runner.written(replace(base, args=self.before, rows=None))
        return replace(base, files={path: written[path] for path in written if "/starters/" not in path})

    def cases(self, base: Case, rows: Sequence[str]) -> st.SearchStrategy[Case]:
        """A strategy for cases. ``rows`` is the output of the undamaged run."""
        forms = [(CORPUS / name).read_bytes() for name in self.others]

        @st.composite
        def case(draw: st.DrawFn) -> Case:
            files = dict(base.files)
            whole = bool(self.folder) and draw(st.booleans())
            if whole:
                files = rearranged(draw, files, self.folder)
            path, kind = draw(st.sampled_from(list(self.damaged.items())))
            content = base.files[path]
            assert isinstance(content, bytes)
            data = draw(st.sampled_from([content, *forms])) if forms else content
            if not whole:
                files[path] = data = draw(damaged(data, kind))
            count, kept = self.rows, {}
            if self.sentence is not None:
                kept = {n: row for n, row in enumerate(rows, 1) if n != self.sentence}
            if self.source:
                lines = _lines(data, path)
                before = dict(zip(_lines(content, path) or [], rows, strict=False))
                count = None if lines is None else len(lines)
                kept = {n: before[line] for n, line in enumerate(lines or [], 1) if line in before}
            elsewhere = self.source and data.startswith(OTHER_MARKS)  # then not even the lines are known
            survives = self.sentence is not None or (self.source and count != 0 and not elsewhere)
            return Case(
                self.name, self.args, files, self.stdin, rows=count, kept=kept, survives=survives,
                statuses=self.statuses, writes=self.writes,
            )  # fmt: skip

        return case()


def _lines(data: bytes, path: str) -> list[bytes] | None:
    """The lines of a text, which may be packed; None if it cannot be unpacked, or is very large unpacked."""
    if path.endswith(".gz"):
        if len(data) > MOST_UNPACKED:
            return None
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error):
            return None
    lines = data.removeprefix(BOM_UTF8).split(b"\n")  # the mark belongs to no line
    return [line.removesuffix(b"\r") for line in (lines[:-1] if lines[-1] == b"" else lines)]


def target(name: str, command: str, files: str, **more: Any) -> FileTarget:
    """``files`` has words ``PATH``, or ``PATH=CORPUS`` if the name in the corpus differs; ``:KIND`` follows the files
    that are damaged.

    A word with a kind that is not the name of a corpus file names a part of an earlier folder.
    """
    found, damaged = {}, {}
    for word in files.split():
        named, _, kind = word.partition(":")
        path, _, origin = named.partition("=")
        if (CORPUS / (origin or path)).exists():
            found[path] = origin or path
        if kind:
            damaged[path] = kind
    more["before"] = tuple(more.get("before", "").split())
    return FileTarget(name, tuple(command.split(" ")), found, damaged, **more)


def decode(name: str, predictors: str, files: str, **more: Any) -> FileTarget:
    """Three sentences of token ids, over 7 tokens."""
    vocabulary = "" if "--tokenizer" in predictors or "nmt" in predictors else " --vocab-size 7"
    command = f"decode --predictors {predictors}{vocabulary} --input-format ids --max-length 4 in.ids"
    return target(name, command, files if "in.ids" in files else f"in.ids {files}", rows=SENTENCES, **more)


def folder(name: str) -> str:
    """Three files; the second one is damaged."""
    return f"{name.format(1)} {name.format(2)}:{{}} {name.format(3)}"


LATTICES = folder("lattices/{}.fst").format("binary")
LISTS, NGRAMS = (folder(f"{name}/{{}}.txt").format("text") for name in ("lists", "ngrams"))
FORMS = ("lattices/symbols.fst", "lattices/log.fst", "lattices/log64.fst", "lattices/const.fst",
         "lattices/compact_acceptor.fst", "lattices/2.fst.gz")  # fmt: skip
MODEL = "model/config.json:json model/model.safetensors:safetensors model/tokenizer.spm:binary"
RUN = (
    "run run/metrics.jsonl:json run/step-2/metrics.jsonl:json run/step-2/config.json:json "
    "run/step-2/progress.json:json run/step-2/model.safetensors:safetensors "
    "run/step-2/optimizer.safetensors:safetensors run/step-2/tokenizer.spm:json"
)
CONFIG = "model/config.json:config model/generation_config.json:config model/tokenizer_config.json:config"
TOKENIZER = f"{CONFIG} model/tokenizer.json:tokenizer"
MARIAN = "model/source.spm:spm model/vocab.json:json model/tokenizer_config.json:config"
PARALLEL = "train.en train.de valid.en valid.de words.vocab"
TRAIN = (
    "train --train train.en train.de --valid valid.en valid.de --tokenizer words.vocab --output run --gnmt.width 4 "
    "--gnmt.layers 2 --batch-tokens 24 --quiet --threads 1 --max-steps 1"
)
CORPUS_FOLDER = (
    "{0}/manifest.json:json {0}/chunks.npy:binary {0}/results/000000/000000001.zip:zip "
    "{0}/leases/000000/000000001:json"
)
CORPUS_START = (
    "corpus in.ids --output done --chunk 1 -- --predictors fst --fst.path lattices/{id}.fst --vocab-size 7 "
    "--input-format ids --max-length 3"
)
SCORES_START = (
    "corpus in.ids --score list.nbest --output done --output-format jsonl --chunk 1 -- --predictors wc "
    "--vocab-size 7 --input-format ids --nbest-list --old-weight 1"
)
ANY = {"statuses": (0, 1, 2)}
"""A file error may also be reported as a wrong call."""

TARGETS: tuple[FileTarget, ...] = (
    # Sources.
    decode("source ids", "nmt --nmt.model model", "in.ids:text model=gnmt", source=True),
    target("source text", "decode --predictors nmt --nmt.model model in.txt", "in.txt:text model=gnmt",
           source=True, rows=SENTENCES),
    target("source gz", "decode --predictors wc --wc.weight -1 --vocab-size 7 --input-format ids in.ids.gz",
           "in.ids.gz:gzip-text", source=True, rows=SENTENCES),
    decode("source of two", "nmt --nmt.model model", "in.ids=two.ids:text model=multi-source", source=True),
    # Lattices.
    decode("fst", "fst --fst.path lattices/{id}.fst", LATTICES, others=FORMS, sentence=2),
    decode("nfst", "nfst --nfst.path lattices/{id}.fst", LATTICES, others=FORMS, sentence=2),
    decode("fst of all", "fst --fst.path lattices/1.fst", "lattices/1.fst:binary", others=FORMS),
    decode("fst gz", "fst --fst.path lattices/2.fst.gz", "lattices/2.fst.gz:gzip-binary"),
    decode("rtn", "rtn --rtn.path networks",
           "networks networks/2/1001000001.fst:binary networks/2/1003000000.fst:binary", sentence=2),
    decode("rtn map", "rtn --rtn.path networks", "networks networks/ntmap:text"),
    decode("fsttok", "fsttok:wc --fsttok.path transducer.fst", "transducer.fst:binary"),
    target("bytes", "decode --predictors bytes:temperature:ngram --bytes.tokenizer letters.spm --temperature.value 1 "
           "--ngram.path model.arpa --input-format ids --max-length 3 in.ids", "in.ids letters.spm:spm model.arpa",
           rows=SENTENCES),
    target("aligned", "decode --predictors wc,aligned:temperature:ngram --tokenizer letters.spm "
           "--temperature.value 1 --aligned.tokenizer letters.spm --ngram.path model.arpa --input-format ids "
           "--max-length 3 in.ids",
           "in.ids letters.spm:spm model.arpa", rows=SENTENCES),
    target("interpolate", "decode --predictors interpolate:topk:ngram+nmt --topk.k 3 --ngram.path model.arpa "
           "--nmt.model model --ledger --output-format jsonl --input-format ids --max-length 3 in.ids",
           f"in.ids model.arpa:text model=transformer {MODEL}", rows=SENTENCES),
    # Language models.
    decode("ngram", "ngram --ngram.path model.arpa", "model.arpa:text"),
    decode("srilm gz", "srilm --srilm.path model.arpa.gz", "model.arpa.gz:gzip-text"),
    decode("ngram words", "ngram --ngram.path model.arpa --ngram.words words.map", "model.arpa words.map:text",
           **ANY),
    decode("kenlm", "kenlm --kenlm.path model.kenlm", "model.kenlm:binary"),
    decode("fst and kenlm", "fst,kenlm --fst.path lattices/{id}.fst --kenlm.path model.kenlm",
           "lattices/1.fst lattices/2.fst lattices/3.fst model.kenlm:binary"),
    decode("nplm text", "nplm --nplm.model model.nplm", "model.nplm:text"),
    decode("nplm", "nplm --nplm.model model --tokenizer model/tokenizer.spm", f"model=nplm {MODEL}"),
    decode("rnnlm", "rnnlm --rnnlm.model model --tokenizer model/tokenizer.spm", f"model=rnnlm {MODEL}"),
    # Translation models.
    decode("nmt", "nmt --nmt.model model", f"model=gnmt {MODEL}"),
    decode("nmt transformer", "nmt --nmt.model model", f"model=transformer {MODEL}"),
    decode("nmt of two sources", "nmt --nmt.model model", f"in.ids=two.ids model=multi-source {MODEL}"),
    decode("nmt in 8 bits", "nmt --nmt.model model --precision int8", f"model=quantised {MODEL}"),
    decode("clusternmt", "clusternmt --clusternmt.model model --clusternmt.clusters clusters",
           "model=gnmt clusters clusters/clusters.json:json clusters/clusters.safetensors:safetensors"),
    decode("clusternmt model", "clusternmt --clusternmt.model model --clusternmt.clusters clusters",
           f"clusters model=gnmt {MODEL}"),
    decode("shortlist", "shortlist --shortlist.model model --shortlist.path shortlist --shortlist.frequent 2",
           "model=gnmt shortlist shortlist/shortlist.json:json shortlist/shortlist.safetensors:safetensors"),
    decode("shortlist model", "shortlist --shortlist.model model --shortlist.path shortlist --shortlist.frequent 2",
           f"shortlist model=gnmt {MODEL}"),
    *(target(f"hf {name}", "decode --predictors hf --hf.model model --max-length 3 in.txt",
             f"in.txt model={name} {TOKENIZER} model/model.safetensors:safetensors", rows=SENTENCES)
      for name in ("gpt2", "bart", "t5")),
    target("hf marian", "decode --predictors hf --hf.model model --max-length 3 in.txt",
           f"in.txt model=marian-mt {CONFIG} {MARIAN} model/model.safetensors:safetensors", rows=SENTENCES),
    target("hf in two files", "decode --predictors hf --hf.model model --max-length 3 in.txt",
           f"in.txt model=llama {TOKENIZER} model/model.safetensors.index.json:index "
           "model/model-00001-of-00002.safetensors:safetensors", folder="model", rows=SENTENCES, **ANY),
    target("hf prompt", "decode --predictors hf --hf.model model --hf.prompt a{source}b --max-length 3 in.txt",
           f"in.txt model=llama {TOKENIZER}", rows=SENTENCES),
    # Files of other predictors.
    decode("lrhiero", "lrhiero --lrhiero.path rules.txt", "rules.txt:text"),
    decode("forcedlst", "forcedlst --forcedlst.path list.nbest", "list.nbest:text"),
    decode("forcedlst lines", "forcedlst --forcedlst.path lists/{id}.txt", LISTS, sentence=2),
    decode("trie", "trie --trie.path allowed.trie", "allowed.trie:binary"),
    decode("trie of lines", "trie --trie.path allowed.tsv", "allowed.tsv:text"),
    decode("trie of each sentence", "trie --trie.path lists/{id}.txt", LISTS, sentence=2),
    decode("forced", "forced,wc --forced.path outputs.ids", "outputs.ids:text"),
    target("phrases", "decode --predictors phrases,wc --phrases.path phrases.tsv --phrases.avoid avoided.tsv "
           "--tokenizer letters.spm --beam.size 12 --max-length 3 in.txt",
           "in.txt letters.spm phrases.tsv:words avoided.tsv:words", rows=SENTENCES),
    target("grammar", "decode --predictors grammar,wc --grammar.path grammar.lark --tokenizer mixed.json "
           "--max-length 4 in.txt", "in.txt mixed.json grammar.lark:lark", rows=SENTENCES),
    target("grammar of a schema", "decode --predictors grammar,wc --grammar.path schema.json --tokenizer mixed.json "
           "--grammar.whitespace compact --max-length 8 in.txt", "in.txt mixed.json schema.json:schema",
           rows=SENTENCES),
    target("regex", "decode --predictors regex,wc --regex.path patterns.txt --regex.cache none "
           "--tokenizer letters.spm --max-length 4 in.txt", "in.txt letters.spm patterns.txt:patterns",
           rows=SENTENCES),
    target("wordlist", "decode --predictors wordlist,wc --wordlist.path words.txt --wordlist.cache none "
           "--tokenizer letters.spm --max-length 4 in.txt", "in.txt letters.spm words.txt:words", rows=SENTENCES),
    decode("bow", "bow --bow.path bags.ids", "bags.ids:text"),
    decode("altsrc", "altsrc:nmt --altsrc.path outputs.ids --nmt.model model", "outputs.ids:text model=gnmt"),
    decode("ngramc", "ngramc,wc --ngramc.path ngrams/{id}.txt", NGRAMS, sentence=2),
    decode("extlength", "extlength,wc --extlength.path lengths.txt", "lengths.txt:text"),
    target("length", "decode --predictors length,wc --length.weights length.weights --tokenizer letters.spm in.txt",
           "in.txt letters.spm length.weights:text", rows=SENTENCES),
    target("length of ids", "decode --predictors length,wc --length.weights length.weights --length.text in.txt "
           "--vocab-size 9 --input-format ids in.ids", "in.ids length.weights in.txt:text", rows=SENTENCES),
    decode("idxmap", "idxmap:wc --idxmap.path tokens.map --idxmap.src_path source.map",
           "tokens.map:text source.map=tokens.map:text"),
    decode("word2char", "word2char:wc --word2char.path spellings.map", "spellings.map:text"),
    # Vocabularies and configurations.
    *(target(f"vocabulary {name}", f"decode --predictors wc --wc.weight -1 --max-length 2 --tokenizer {name} in.txt",
             f"in.txt {name}:{kind}", rows=SENTENCES)
      for name, kind in (("letters.spm", "spm"), ("word.json", "json"), ("mixed.json", "json"))),
    target("vocabulary of Marian",
           "decode --predictors wc --wc.weight -1 --max-length 2 --tokenizer model in.txt",
           f"in.txt model=marian {MARIAN}", rows=SENTENCES),
    target("vocabulary of a folder",
           "decode --predictors wc --wc.weight -1 --max-length 2 --tokenizer model in.txt",
           f"in.txt model=llama {TOKENIZER}", rows=SENTENCES),
    target("vocabulary", "vocabulary letters.spm --output out", "letters.spm:spm"),
    target("vocabulary of pieces", "vocabulary numbers.spm --output out", "numbers.spm:spm"),
    target("vocabulary of a model", "vocabulary model --output out", f"model=gpt2 {TOKENIZER}"),
    target("config", "decode --config decode.toml in.ids", "in.ids decode.toml:text", **ANY),
    target("score config", "score --config score.toml in.ids outputs.ids", "in.ids outputs.ids score.toml:text",
           **ANY),
    # Lists and scores.
    target("score", "score --predictors nmt --nmt.model model --target-format ids --input-format ids in.ids "
           "outputs.ids", "in.ids model=gnmt outputs.ids:text"),
    target("score list", "score --predictors wc --vocab-size 7 --input-format ids --nbest-list --old-weight 1 in.ids "
           "list.nbest", "in.ids list.nbest:text"),
    target("score text", "score --predictors wc --tokenizer letters.spm in.txt outputs.txt",
           "in.txt:text letters.spm:binary outputs.txt"),
    target("ngrams of lattices", "ngrams lattices/{id}.fst --output out/{id}.txt", LATTICES, others=FORMS),
    target("ngrams of a list", "ngrams list.nbest --output out/{id}.txt", "list.nbest:text"),
    target("ngrams of results", "ngrams list.jsonl --output out/{id}.txt", "list.jsonl:json"),
    target("ngrams of text", "ngrams list.nbest --output out/{id}.txt --tokenizer letters.spm",
           "list.nbest letters.spm:binary"),
    target("evaluate", "evaluate --reference outputs.txt in.txt", "outputs.txt:text in.txt:text"),
    target("evaluate zst", "evaluate --reference outputs.txt.zst in.txt", "in.txt outputs.txt.zst:packed"),
    target("compare", "compare in.txt outputs.txt --reference outputs.txt --source in.txt --samples 3 --html out",
           "in.txt:text outputs.txt:text", **ANY),
    target("compare lists", "compare list.nbest list.jsonl --json out", "list.nbest:text list.jsonl:json", **ANY),
    target("weights", "decode --predictors wc,trie --trie.path allowed.tsv --vocab-size 9 --max-length 2 "
           "--input-format ids --weights sentence.weights in.ids", "in.ids sentence.weights:text allowed.tsv", **ANY),
    target("weights of scores", "score --predictors wc,trie --trie.path allowed.tsv --vocab-size 9 "
           "--input-format ids --weights sentence.weights in.ids outputs.ids",
           "in.ids outputs.ids sentence.weights:text allowed.tsv", **ANY),
    target("sweep", "sweep --lists list.jsonl --axis alpha=0,1 --reference outputs.txt --html out",
           "list.jsonl:json outputs.txt:text", **ANY),
    target("sweep config", "sweep --config decode.toml --axis alpha=0,1 --reference outputs.ids --max-length 2 "
           "in.ids", "in.ids:text outputs.ids decode.toml:text", **ANY),
    target("sweep text", "sweep --predictors wc --tokenizer letters.spm --max-length 2 --axis alpha=0,1 "
           "--reference outputs.txt in.txt", "in.txt outputs.txt letters.spm:binary", **ANY),
    target("tune text", "tune --predictors wc,length --length.weights length.weights --tokenizer letters.spm "
           "--max-length 2 --seeds 1 --rounds 1 --reference outputs.txt --held-out other.txt held.txt --folder out "
           "in.txt",
           "in.txt outputs.txt length.weights letters.spm:binary other.txt=in.txt:text held.txt=outputs.txt:text",
           **ANY),
    target("tune config", "tune --config decode.toml --alphas 0,1 --seeds 1 --rounds 1 --reference outputs.ids "
           "--folder out in.ids", "in.ids outputs.ids decode.toml:text", **ANY),
    target("tune", "tune --predictors wc,trie --trie.path allowed.tsv --vocab-size 9 --max-length 2 "
           "--input-format ids --seeds 1 --rounds 1 --reference outputs.ids --folder out in.ids",
           "in.ids:text outputs.ids:text allowed.tsv", **ANY),
    target("diagnose", "diagnose --predictors wc --vocab-size 9 --max-length 2 --input-format ids --html out "
           "--witness list.nbest --reference outputs.ids in.ids",
           "in.ids:text outputs.ids:text list.nbest:text", **ANY),
    target("diagnose config", "diagnose --config decode.toml --reference outputs.ids --max-length 2 in.ids",
           "in.ids outputs.ids decode.toml:text", **ANY),
    target("diagnose text", "diagnose --predictors wc --tokenizer letters.spm --max-length 2 --reference outputs.txt "
           "--json out in.txt", "in.txt outputs.txt:text letters.spm:binary", **ANY),
    target("view", "view trace.jsonl --output out", "trace.jsonl:json", **ANY),
    target("view of two", "view trace.jsonl other.jsonl --output out",
           "trace.jsonl other.jsonl=trace.jsonl:json", **ANY),
    target("view figure", "view trace.jsonl --sentence 2 --svg out", "trace.jsonl:json", **ANY),
    target("view of a diagnosis", "view trace.jsonl --diagnosis diagnosis.jsonl --output out",
           "trace.jsonl diagnosis.jsonl:json", **ANY),
    target("corpus-status", "corpus-status work --json out",
           f"work {CORPUS_FOLDER.format('work')} work/starters/a.json:json", folder="work", writes=("work",), **ANY),
    target("corpus-merge", "corpus-merge work --output out", f"work {CORPUS_FOLDER.format('work')}", folder="work",
           writes=("work",), **ANY),
    target("corpus-merge of a run", "corpus-merge done --output out",
           f"in.ids lattices lattices/2.fst:binary {CORPUS_FOLDER.format('done')}", before=CORPUS_START,
           folder="done", writes=("done",), **ANY),
    target("corpus", CORPUS_START, f"in.ids:text lattices {CORPUS_FOLDER.format('done')}",
           before=CORPUS_START, folder="done", writes=("done",), **ANY),
    target("corpus of scores", "corpus in.ids --score outputs.ids --output done --chunk 2 -- --predictors wc "
           "--vocab-size 7 --input-format ids", "in.ids:text outputs.ids:text", writes=("done",), **ANY),
    target("corpus of a list", SCORES_START, f"in.ids list.nbest:text {CORPUS_FOLDER.format('done')}",
           before=SCORES_START, folder="done", writes=("done",), **ANY),
    target("corpus-merge of a list", "corpus-merge done --output out",
           f"in.ids list.nbest {CORPUS_FOLDER.format('done')}", before=SCORES_START,
           folder="done", writes=("done",), **ANY),
    target("course zip", "course zip bag --output out --wheels wheels",
           "wheels/sgdec-1-py3-none-any.whl=in.txt:text", **ANY),
    # Commands that make models.
    target("lm", "lm --input train.de --output out --order 3 --discount-fallback", "train.de:text", **ANY),
    target("lm of tokens", "lm --input train.de --output out --order 2 --discount-fallback --tokenizer words.vocab",
           "train.de words.vocab:json", **ANY),
    *(target(f"tokenizer {kind}", f"tokenizer --input train.de --kind {kind} --vocab-size {size} --output out",
             "train.de:text", **ANY)
      for kind, size in (("bpe", 20), ("unigram", 17), ("word", 9), ("mixed", 820))),
    target("transducer", "transducer --from word.json --to words.vocab --output out",
           "word.json:json words.vocab:json", **ANY),
    target("transducer of text", "transducer --from words.vocab --to letters.spm --text train.de --output out",
           "words.vocab letters.spm train.de:text"),
    target("trie of ids", "trie allowed.tsv --output out", "allowed.tsv:text"),
    target("trie of text", "trie train.de --output out --tokenizer words.vocab", "train.de:text words.vocab:json"),
    target("fit-length", "fit-length train.en train.de --output out", "train.en:text train.de:text"),
    target("fit-length of tokens", "fit-length train.en train.de --output out --tokenizer words.vocab",
           "train.en train.de words.vocab:json"),
    target("average", "average model run --output out",
           "model=run/step-2 model/config.json:json model/model.safetensors:safetensors run "
           "run/step-2/config.json:json run/step-2/model.safetensors:safetensors", **ANY),
    target("quantize", "quantize model --output out --calibrate in.txt outputs.txt",
           f"in.txt:text outputs.txt:text model=gnmt {MODEL}"),
    target("export", "export model --to hf --output out --no-tokenizer",
           "model=transformer model/config.json:json model/model.safetensors:safetensors", **ANY),
    target("cluster", "cluster --model model --input in.txt --held-out outputs.txt --centroids 2 --k 2 "
           "--output out", f"in.txt:text outputs.txt:text model=gnmt {MODEL}"),
    target("shortlist", "shortlist in.txt out.txt --model model --held-out in.txt out.txt --output out",
           f"in.txt:text out.txt=in.txt:text model=gnmt {MODEL}"),
    target("demo lattices", "demo lattices --tokenizer numbers.spm --output out/{id}.fst numbers.en",
           "numbers.spm:binary numbers.en:text"),
    # Training.
    target("train", TRAIN, "train.en:text train.de:text valid.en:text valid.de:text words.vocab"),
    target("train tokenizer", TRAIN, f"{PARALLEL}:json"),
    target("train weights", f"{TRAIN} --token-weights weights.txt", f"{PARALLEL} weights.txt:text"),
    target("train embeddings", f"{TRAIN} --embeddings-source source.txt --embeddings-target target.txt",
           f"{PARALLEL} source.txt=embeddings.txt:text target.txt=embeddings.txt:text"),
    target("train output layer", f"{TRAIN} --embeddings-output output.txt",
           f"{PARALLEL} output.txt=embeddings.txt:text"),
    target("train decoder", f"{TRAIN} --start-decoder model",
           f"{PARALLEL} model=words-lm {MODEL.replace('binary', 'json')}", **ANY),
    target("train start", f"{TRAIN} --start model", f"{PARALLEL} model=run/step-2 model/config.json:json "
           "model/model.safetensors:safetensors model/tokenizer.spm:json", **ANY),
    target("train resume", f"{TRAIN.removesuffix('1')}3 --resume", f"{PARALLEL} {RUN}", writes=("run",), **ANY),
)  # fmt: skip

NOT_READ = frozenset({"plugin_file", "plugin_files", "submissions"})
"""Parameters of commands that name code, which is trusted, or graded behind a boundary."""
NO_PATHS = frozenset({
    ("command", "command"), ("corpus", "engine"), ("corpus", "input"), ("corpus", "ray_address"), ("ray", "address"),
    ("bucket", "selector"), ("cluster", "device"), ("compare", "metrics"), ("course grade", "assignment"),
    ("course zip", "assignment"), ("decode", "decoder"),
    ("decode", "device"), ("decode", "predictors"), ("decode", "range"), ("decode", "trace_sentences"),
    ("diagnose", "decoder"), ("diagnose", "device"), ("diagnose", "predictors"), ("diagnose", "range"),
    ("diagnose", "trace_sentences"), ("diagnose", "viewer"), ("forcedlst", "feature"), ("hf", "prompt"),
    ("hf", "source_language"), ("hf", "target_language"), ("maskvocab", "tokens"), ("new-plugin", "name"),
    ("ngrams", "range_"), ("particles", "propose"), ("particles", "twist"), ("plugins", "name"),
    ("regex", "cache"), ("regex", "pattern"), ("score", "device"),
    ("score", "predictors"), ("skipvocab", "tokens"), ("sweep", "axis"), ("sweep", "decoder"), ("sweep", "device"),
    ("sweep", "predictors"), ("syncbeam", "symbol"), ("tokenizer", "normalization"), ("tune", "alphas"),
    ("tune", "bounds_of"), ("tune", "decoder"), ("tune", "device"), ("tune", "predictors"),
    ("train", "device"), ("train", "model"), ("train", "preset"), ("train", "threads"), ("view", "sentences"),
    ("wordlist", "cache"),
})  # fmt: skip
"""Parameters of plugins and commands that can be any text, and name no file. (Damaged files of a cache are tested in
`tests.predictors.test_regex`.)"""
