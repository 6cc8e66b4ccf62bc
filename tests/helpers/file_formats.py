"""Every file that a bundled predictor reads, in every format that it reads: what `test_every_format` runs.

All cases share V = 7 tokens: 3 to 6 are ordinary, and spell "▁", "a", "b", "c" where a model brings a vocabulary.
Cases with the same ``says`` are one model in several formats: they have to score alike.
"""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from sgdec.io.entries import read_entries
from sgdec.io.nplm import write_nplm
from sgdec.io.trie import build_trie
from tests.helpers.lattice_files import Arc, automaton_bytes, paths_bytes
from tests.helpers.lm_case import random_file, write_lm
from tests.helpers.places import DATA
from tests.helpers.tiny_models import write_checkpoint

V = 7
SENTENCES = ("3 4 5", "6 4")
"""``tiny.arpa``, and what KenLM makes of it: a probing hash table (``tiny.kenlm``), and tries, plain, with compressed
pointers (``a``), quantised to 8 bits (``q``), and both."""


@dataclass(frozen=True)
class Case:
    """One predictor in one format."""

    entry: str
    """As ``--predictors`` has it; every name in it is a plugin's own."""
    format: str
    files: Callable[[Path], Mapping[str, object]]
    """Writes what is read into an empty folder; the options, ``NAME.OPTION``."""
    says: str = ""
    """What the scores depend on; empty = on this case alone."""
    vocabulary: Literal["brings", "needs", "none", "any"] = "any"
    """Whether the case brings a vocabulary, needs somebody else's, works only without one, or does not care."""

    @property
    def plugin(self) -> str:
        """The predictor whose file it is: the outermost."""
        return self.entry.partition(":")[0]

    @property
    def id(self) -> str:
        return f"{self.entry}-{self.format}".replace(" ", "-")


def packed(data: bytes, name: str) -> bytes:
    """Of a file called so."""
    if name.endswith(".zst"):
        from backports import zstd

        return zstd.compress(data)
    return gzip.compress(data) if name.endswith(".gz") else data


def text(plugin: str, lines: str, name: str = "file", option: str = "path") -> Callable[[Path], Mapping[str, object]]:
    """One text file, packed as its name says; ``{id}`` in the name: the same for each sentence."""

    def write(folder: Path) -> Mapping[str, object]:
        for number in range(1, len(SENTENCES) + 1):
            place = folder / name.replace("{id}", str(number))
            place.write_bytes(packed(lines.encode(), name))
        return {f"{plugin}.{option}": folder / name}

    return write


def texts(
    entry: str, lines: str, says: str = "", *, stem: str = "file", option: str = "path", **more: Any
) -> list[Case]:
    """One text file plain, gzipped, and packed by zstd."""
    plugin = entry.partition(":")[0]
    says = says or entry
    return [
        Case(entry, f"{stem}{suffix}", text(plugin, lines, f"{stem}{suffix}", option), says, **more)
        for suffix in ("", ".gz", ".zst")
    ]


@cache
def lattice(arc: str = "standard") -> bytes:
    """A deterministic acceptor of 3 4, 3 4 5, 4, 5 4 and 6, in OpenFst's binary format."""
    arcs = [
        (0, 3, 0.5, 1), (0, 4, 1.0, 4), (0, 5, 0.25, 3), (0, 6, 1.5, 4), (1, 4, 0.5, 2), (2, 5, -0.25, 4),
        (3, 4, 1.0, 4),
    ]  # fmt: skip
    return automaton_bytes(arcs, {2: 0.75, 4: 0.0}, arc)


def lattices(plugin: str, name: str, **made: str) -> Case:
    def write(folder: Path) -> Mapping[str, object]:
        for number in range(1, len(SENTENCES) + 1):
            data = lattice(**made)
            (folder / name.replace("{id}", str(number))).write_bytes(packed(data, name))
        return {f"{plugin}.path": folder / name}

    return Case(plugin, "-".join([name, *made.values()]), write, says=plugin)


def network(suffix: str) -> Callable[[Path], Mapping[str, object]]:
    def write(folder: Path) -> Mapping[str, object]:
        call = 1_003_001_002
        part = paths_bytes([((3,), -0.5), ((4, 5), 1.0)])
        root = paths_bytes([((call, 4), 0.0), ((5, call), 1.0), ((3,), 0.0)])
        for number in range(1, len(SENTENCES) + 1):
            (folder / str(number)).mkdir()
            for data, name in ((part, f"{number}/{call}.fst"), (root, f"{number}.fst")):
                (folder / (name + suffix)).write_bytes(packed(data, suffix))
        return {"rtn.path": folder}

    return write


def segments(name: str) -> Callable[[Path], Mapping[str, object]]:
    """A transducer that reads each token as itself, and 6 as 4 5 too."""

    def write(folder: Path) -> Mapping[str, object]:
        arcs: list[Arc] = [*((0, token, 0.0, 0) for token in (3, 4, 5, 6)), (0, (6, 4), 0.5, 1), (1, (0, 5), 0.0, 0)]
        (folder / name).write_bytes(packed(automaton_bytes(arcs, {0: 0.0}), name))
        return {**wrapped(folder), "fsttok.path": folder / name}

    return write


def wrapped(folder: Path) -> dict[str, object]:
    """What is inside wrappers here: an n-gram model."""
    return {"ngram.path": DATA / "tiny.arpa"}


def around(write: Callable[[Path], Mapping[str, object]]) -> Callable[[Path], Mapping[str, object]]:
    return lambda folder: {**wrapped(folder), **write(folder)}


def around_nmt(write: Callable[[Path], Mapping[str, object]]) -> Callable[[Path], Mapping[str, object]]:
    return lambda folder: {"nmt.model": write_checkpoint(folder / "model"), **write(folder)}


def arpa(plugin: str, name: str, **options: str) -> Callable[[Path], Mapping[str, object]]:
    def write(folder: Path) -> Mapping[str, object]:
        (folder / name).write_bytes(packed((DATA / "tiny.arpa").read_bytes(), name))
        given: dict[str, object] = {f"{plugin}.path": folder / name}
        if "words" in options:
            (folder / "words").write_text(options["words"])
            given[f"{plugin}.words"] = folder / "words"
        return given

    return write


def binary(plugin: str, name: str) -> Callable[[Path], Mapping[str, object]]:
    return lambda folder: {f"{plugin}.path": shutil.copy(DATA / name, folder)}


def built_trie(name: str) -> Callable[[Path], Mapping[str, object]]:
    def write(folder: Path) -> Mapping[str, object]:
        for number in range(1, len(SENTENCES) + 1):
            trie = build_trie(read_entries(ALLOWED.splitlines(), name))
            trie.write(folder / name.replace("{id}", str(number)))
        return {"trie.path": folder / name}

    return write


def nplm(name: str) -> Callable[[Path], Mapping[str, object]]:
    def write(folder: Path) -> Mapping[str, object]:
        plain = folder / "plain"
        write_nplm(plain, random_file(["<unk>", "<s>", "</s>", "3", "4", "5", "6"]))
        (folder / name).write_bytes(packed(plain.read_bytes(), name))
        return {"nplm.model": folder / name}

    return write


def language_model(plugin: str, model: str, **options: object) -> Callable[[Path], Mapping[str, object]]:
    return lambda folder: {f"{plugin}.model": write_lm(folder, model, options)}


def translation_model(model: str, **options: object) -> Callable[[Path], Mapping[str, object]]:
    return lambda folder: {"nmt.model": write_checkpoint(folder, model=model, options=options)}


def hugging_face(family: str) -> Callable[[Path], Mapping[str, object]]:
    """Ids 0 to 5 have the numbers 6 and 1 to 5: nothing is ``<unk>``."""

    def write(folder: Path) -> Mapping[str, object]:
        from tests.helpers.pretrained import tiny_model

        roles = {"bos_token_id": 1, "eos_token_id": 2, "forced_bos_token_id": None, "decoder_start_token_id": 2}
        tiny_model(family, vocab_size=6, **roles).save_pretrained(folder)
        return {"hf.model": folder}

    return write


def clusters(folder: Path) -> Mapping[str, object]:
    import torch

    from sgdec.checkpoints.clusters import checksum, save_clusters
    from sgdec.context import EOS
    from sgdec.models.clusters import Clusters

    model = write_checkpoint(folder / "model")
    active = [(EOS, 3, 4, 5), (EOS, 3, 4, 6)]
    made = Clusters(
        torch.randn(2, 8, generator=torch.Generator().manual_seed(1)), torch.tensor([0, 4, 8]),
        torch.tensor([token for row in active for token in row]), torch.ones(8, dtype=torch.uint8),
        torch.ones(2).long(), V,
    )  # fmt: skip
    save_clusters(folder / "clusters", made, model=checksum(model), about={})
    return {"clusternmt.model": model, "clusternmt.clusters": folder / "clusters"}


def shortlist(folder: Path) -> Mapping[str, object]:
    import torch

    from sgdec.checkpoints.layout import load_vocabularies
    from sgdec.checkpoints.shortlists import save_shortlist
    from sgdec.models.shortlists import Shortlist

    model = write_checkpoint(folder / "model")
    vocabularies = load_vocabularies(model)
    assert vocabularies.source is not None
    starts = torch.arange(vocabularies.source.size + 1) * 2
    made = Shortlist(starts, torch.arange(int(starts[-1])) % V, torch.tensor([3, 4]), V)
    save_shortlist(folder / "shortlist", made, vocabularies, about={})
    return {"shortlist.model": model, "shortlist.path": folder / "shortlist", "shortlist.frequent": 2}


def lengths(name: str) -> Callable[[Path], Mapping[str, object]]:
    """The text of the sources, for weights of its features."""
    write = text("length", "two words\n" * len(SENTENCES), name, option="text")
    return lambda folder: {"length.weights": LENGTH, **write(folder)}


LENGTH = "0.1,0.2,0,0,0,0,0.3,0,0,0,1.5,0.2"
MOSES = "".join(f"{n} ||| 3 4 ||| lm= -3.5 ||| -2.5\n{n} ||| 5 ||| lm= -1 ||| -3\n" for n in range(len(SENTENCES)))
OURS = MOSES.replace("1 |||", "2 |||").replace("0 |||", "1 |||")
ALLOWED = "3 4\t-0.5\n3 4 5\t-1\n4\t-0.25\n5 4\t-2\n6\t-1.5\n"
ARPA_WORDS = "3 3\n4 4\n5 5\n"

CASES: list[Case] = [
    *(
        Case("altsrc:nmt", name, around_nmt(text("altsrc", "a b\nc\n", name)), "altsrc", "brings")
        for name in ("text", "text.gz", "text.zst")
    ),
    *texts("bow", "3 4\n5 4 4\n", vocabulary="none"),
    *texts("bow", "a b\nc\n", "bow-text", stem="text", vocabulary="needs"),
    Case("clusternmt", "folder", clusters, vocabulary="brings"),
    Case("shortlist", "folder", shortlist, vocabulary="brings"),
    Case("canonical", "vocabulary", lambda folder: {}, vocabulary="needs"),
    *texts("extlength", "1:-0.5 3:-1\n2\n"),
    *texts("forced", "3 4\n5 4 4\n", vocabulary="none"),
    *texts("forced", "a b\nc\n", "forced-text", stem="text", vocabulary="needs"),
    *texts("forcedlst", MOSES, vocabulary="none"),
    Case("forcedlst", "ours", text("forcedlst", OURS), "forcedlst", vocabulary="none"),
    Case("forcedlst", "{id}", text("forcedlst", MOSES[: len(MOSES) // 2], "{id}"), "forcedlst", vocabulary="none"),
    *texts("forcedlst", "3 4\n5\n", "forcedlst-lines", stem="lines", vocabulary="none"),
    Case("forcedlst", "lines-{id}", text("forcedlst", "3 4\n5\n", "{id}"), vocabulary="none"),
    *texts("forcedlst", "0 ||| a b ||| ||| -2.5\n1 ||| c ||| ||| -3\n", "list-text", stem="text", vocabulary="needs"),
    *(lattices(fst, name) for fst in ("fst", "nfst") for name in ("1.fst", "1.fst.gz", "{id}.fst", "{id}.fst.gz")),
    *(lattices(plugin, "1.fst", arc="log") for plugin in ("fst", "nfst")),
    *(Case("fsttok:ngram", name, segments(name), "fsttok") for name in ("t.fst", "t.fst.gz")),
    *texts("grammar", 'start: /[ab]+/ | "c"\n', vocabulary="needs"),
    Case("grammar", "{id}", text("grammar", 'start: /[ab]+/ | "c"\n', "{id}"), "grammar", vocabulary="needs"),
    *(Case("hf", family, hugging_face(family)) for family in ("bart", "gpt2", "mamba")),
    *(
        Case("idxmap:ngram", name, around(text("idxmap", "0 0\n1 1\n2 2\n3 4\n4 5\n5 3\n6 6\n", name)), "idxmap")
        for name in ("map", "map.gz", "map.zst")
    ),
    *(
        Case(plugin, name, arpa(plugin, name), "tiny.arpa")
        for plugin in ("ngram", "kenlm", "srilm")
        for name in ("lm.arpa", "lm.arpa.gz")
    ),
    *(
        Case("kenlm", name, binary("kenlm", name), "tiny.arpa" if "q" not in name else "")
        for name in ("tiny.kenlm", "tiny.trie.kenlm", "tiny.atrie.kenlm", "tiny.qtrie.kenlm", "tiny.qatrie.kenlm")
    ),
    Case("ngram", "word map", arpa("ngram", "lm.arpa", words=ARPA_WORDS), "tiny.arpa"),
    *(Case("length", name, lengths(name), "length") for name in ("raw", "raw.gz", "raw.zst")),
    *texts("lrhiero", "S 1_X1_2 1_X1_2 0\nX X1_X2 X1_X2 -0.5\n" + "".join(f"X {t} {t} -1\n" for t in (3, 4, 5, 6))),
    Case("maxlength", "number", lambda folder: {"maxlength.tokens": "4"}),
    Case("minlength", "number", lambda folder: {"minlength.tokens": "2"}),
    *texts("ngramc", "3 4 : 0.25\n5 : 0.5\n4 2 : -0.25\n"),
    Case("ngramc", "{id}", text("ngramc", "3 4 : 0.25\n5 : 0.5\n4 2 : -0.25\n", "{id}"), "ngramc"),
    *(
        Case("nmt", model, translation_model(model, **options), vocabulary="brings")
        for model, options in {
            "gnmt": {"layers": 3, "width": 8},
            "luong": {"layers": 2, "width": 8},
            "shallow": {"width": 8},
            "deep-transition": {"width": 8},
            "transformer": {"layers": 1, "width": 8, "heads": 2, "feed_forward": 8},
        }.items()
    ),
    Case("norepeat", "order", lambda folder: {"norepeat.order": "2", "norepeat.prompt": "true"}),
    *texts("phrases", "a a\tb\n", option="avoid", vocabulary="needs"),
    *texts("regex", "a( b)*|b?\n" * 9, vocabulary="needs"),
    *texts("wordlist", "a\nb\n", vocabulary="needs"),
    *(Case("nplm", name, nplm(name), "nplm") for name in ("model", "model.gz")),
    Case(
        "nplm",
        "checkpoint",
        language_model("nplm", "nplm", order=3, embedding=4, hidden=6, output=5),
        vocabulary="brings",
    ),
    Case("rank:ngram", "nothing", wrapped),
    Case("repetition:ngram", "penalty", lambda folder: {**wrapped(folder), "repetition.penalty": "1.5"}),
    Case(
        "repetition:nmt",
        "seen",
        around_nmt(lambda folder: {"repetition.penalty": "0.5", "repetition.seen": "3,4"}),
        vocabulary="brings",
    ),
    *(
        Case("rnnlm", model, language_model("rnnlm", model, **options), vocabulary="brings")
        for model, options in {
            "rnnlm": {"width": 8},
            "grulm": {"width": 8, "embedding": 4},
            "transformer-lm": {"layers": 1, "width": 8, "heads": 2, "feed_forward": 8},
        }.items()
    ),
    *(Case("rtn", f"folder{suffix}", network(suffix), "rtn") for suffix in ("", ".gz")),
    Case("skipvocab:ngram", "tokens", lambda folder: {**wrapped(folder), "skipvocab.tokens": "5"}),
    Case("temperature:ngram", "value", lambda folder: {**wrapped(folder), "temperature.value": "1.5"}),
    Case("maskvocab:ngram", "tokens", lambda folder: {**wrapped(folder), "maskvocab.tokens": "5"}),
    *texts("trie", ALLOWED, vocabulary="none"),
    Case("trie", "{id}", text("trie", ALLOWED, "{id}"), "trie", vocabulary="none"),
    *(Case("trie", f"built {name}", built_trie(name), "trie") for name in ("all", "{id}")),
    *texts("trie", "a b\t-0.5\nb\t-1\nc c\t-2\n", "trie-text", stem="text", vocabulary="needs"),
    Case("unkc", "numbers", lambda folder: {"unkc.lambdas": "0.3,1.7"}),
    Case("wc", "numbers", lambda folder: {"wc.token": "4"}),
    *(
        Case("word2char:ngram", name, around(text("word2char", "3 4\n4 4 5\n5 5\n", name)), "word2char")
        for name in ("map", "map.gz", "map.zst")
    ),
]
