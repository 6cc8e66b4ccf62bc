"""The settings of three papers as data, for ``sgdec train --recipe`` and ``sgdec recipes``.

The papers: Wu et al. 2016 (GNMT), Junczys-Dowmunt et al. 2018 (Marian), Ono et al. 2019 (HybridNMT). Each `Value`
says where it comes from: the paper itself, a source that the paper refers to, or sgdec, where both are silent. All
values that are not listed here are defaults. `Recipe.besides` has the parts of an experiment that options of
``sgdec train`` do not cover, such as the size of the vocabulary, and the departures from the paper.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

from sgdec.errors import UsageError
from sgdec.suggest import suggest
from sgdec.training.config import BATCH_SIZES, DEFAULTS, IDLE_WITHOUT

Source: TypeAlias = Literal["paper", "cited", "ours"]
LENGTHS = ("epochs", "max_steps")
"""Settings that each define the length of a run."""


class Value(NamedTuple):
    """One value of a recipe."""

    option: str
    """``model``, a setting of `TrainConfig`, or an option of the model with its name: ``gnmt.width``."""
    value: Any
    """None: the default, which depends on other options."""
    source: Source
    place: str = ""
    """The place in the paper, or in the source that it refers to."""
    note: str = ""

    @property
    def origin(self) -> str:
        """The source in words.

        >>> Value("lr", 0.0002, "paper", "section 8.3").origin, Value("lr", 0.1, "ours").origin
        ('section 8.3', 'silent: ours')
        """
        return {"paper": self.place, "cited": f"cited: {self.place}", "ours": "silent: ours"}[self.source]


@dataclass(frozen=True)
class Recipe:
    """The architecture and the training schedule of one experiment in a paper."""

    paper: str
    about: str
    values: tuple[Value, ...]
    besides: tuple[str, ...]
    """Parts of the experiment that the values do not cover, with their commands, and departures, with reasons."""

    @property
    def model(self) -> str:
        """The name of the model plugin."""
        return str(self.settings["model"])

    @property
    def settings(self) -> dict[str, Any]:
        """The values of the settings of training, by name; with ``model``."""
        return {value.option: value.value for value in self.values if "." not in value.option}

    @property
    def options(self) -> dict[str, Any]:
        """The values of the model's options, by name."""
        own = (value for value in self.values if "." in value.option)
        return {value.option.partition(".")[2]: value.value for value in own}

    def under(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The given settings, completed by those of the recipe.

        A given size of batches replaces the recipe's, even if it is another option, and so does a given length of the
        run. Values of the recipe that do nothing without a setting that was switched off are left out.
        """
        replaced = [name for group in (BATCH_SIZES, LENGTHS) if any(map(given.get, group)) for name in group]
        own = {name: value for name, value in self.settings.items() if name not in ("model", *replaced)}
        useless = idle({**own, **given})
        return {**{name: value for name, value in own.items() if name not in useless}, **given}


def idle(settings: Mapping[str, Any]) -> set[str]:
    """The settings that do nothing beside these, because all settings that use them are off."""
    everything = {**DEFAULTS, **settings}
    return {
        name for name, others in IDLE_WITHOUT.items() if all(everything[other] == DEFAULTS[other] for other in others)
    }


def find(name: str) -> Recipe:
    """The recipe of this name. Raises `UsageError` if there is none."""
    if name not in RECIPES:
        raise UsageError(f"no recipe named {name!r}. {suggest(name, RECIPES)}")
    return RECIPES[name]


KINGMA, VASWANI, LUONG = "Kingma and Ba 2015", "Vaswani et al. 2017", "Luong et al. 2015"
SCRIPTS = "scripts of footnote 3"
"""The examples of Marian for the experiments of section 3.1, by the authors of the paper."""

GNMT = Recipe(
    "Wu et al. 2016, Google's Neural Machine Translation System",
    "the maximum likelihood stage of WMT'14 English-French",
    (
        Value("model", "gnmt", "paper", "section 3"),
        Value("gnmt.layers", 8, "paper", "section 8", "the bottom layer of the encoder has two directions"),
        Value("gnmt.width", 1024, "paper", "section 8"),
        Value("gnmt.attention", None, "paper", "section 8", "as --gnmt.width: 1024"),
        Value("gnmt.embedding", None, "ours", note="as --gnmt.width"),
        Value("gnmt.dropout", 0.2, "paper", "section 8.3", "0.3 for English-German"),
        Value("gnmt.init", 0.04, "paper", "section 8.3"),
        Value("gnmt.constrained", True, "paper", "section 6", "all models are trained for quantised inference"),
        Value("gnmt.anneal_updates", None, "ours", note="section 6: towards the end; here 80 % of the run"),
        Value("objective", "ml", "paper", "section 5"),
        Value("batch_pairs", 128, "paper", "section 8.3", "of each replica"),
        Value("max_steps", 2_000_000, "paper", "section 8.3", "1.2 M, and 0.8 M at falling rates"),
        Value("lr", 0.0002, "paper", "section 8.3"),
        Value("beta1", 0.9, "cited", f"{KINGMA}, Algorithm 1"),
        Value("beta2", 0.999, "cited", f"{KINGMA}, Algorithm 1"),
        Value("adam_epsilon", 1e-8, "cited", f"{KINGMA}, Algorithm 1"),
        Value("sgd_after", 60_000, "paper", "section 8.3"),
        Value("sgd_lr", 0.5, "paper", "section 8.3"),
        Value("anneal_after", 1_200_000, "paper", "section 8.3"),
        Value("halve_every", 200_000, "paper", "section 8.3"),
        Value("clip", 5.0, "paper", "section 8.3"),
        Value("label_smoothing", 0.0, "ours", note="equation 7 has none"),
        Value("precision", "fp32", "paper", "section 6"),
    ),
    (
        "One vocabulary of 32,000 wordpieces for both sides (section 8.4): sgdec tokenizer --vocab-size 32000.",
        "Twelve replicas with asynchronous updates (section 8.3) are not built: an asynchronous run depends on "
        "timing and cannot be repeated. --parallel data is the synchronous counterpart.",
        "The refinement (section 5) is a second run: --objective expected-reward --start-from RUN, without --recipe.",
    ),
)

_OF_MARIAN = (
    Value("lr", 0.0003, "paper", "section 3.1.3"),
    Value("inverse_sqrt", 16_000, "paper", "section 3.1.3"),
    Value("ema", 0.0001, "cited", SCRIPTS, "Marian's default; none in section 3.1.3"),
    Value("max_line", 100, "cited", SCRIPTS),
    Value("patience", 5, "cited", SCRIPTS),
)
_DEEP = (
    Value("workspace", 9500, "cited", SCRIPTS, "MiB of a GPU; section 3.1.3 fills its memory"),
    Value("validate_every", 5000, "cited", SCRIPTS),
    Value("metric", "perplexity", "cited", SCRIPTS, "one of three; they choose left-to-right models by BLEU"),
)
_MARIAN = "Junczys-Dowmunt et al. 2018, Marian: Fast Neural Machine Translation in C++"
_OF_ALL_MARIAN = (
    "One vocabulary of 36,000 joint BPE units for both sides (section 3.1.3), which tied embeddings need: "
    "sgdec tokenizer --kind bpe --vocab-size 36000.",
    "The size of batches is that of a GPU's memory: on a smaller machine give a smaller --workspace, or "
    "--batch-tokens.",
)
_OF_DEEP_MARIAN = (
    *_OF_ALL_MARIAN,
    "Eight GPUs with synchronous updates (section 3.1.3): torchrun --nproc-per-node 8, and --parallel data.",
    "Four models in each direction (section 3.1.3): further runs with other values of --seed, and with --right-left "
    "true.",
)

MARIAN_SHALLOW = Recipe(
    _MARIAN,
    "the model for back-translation in section 3.1.3, with one block in the encoder's cells",
    (
        Value("model", "shallow", "paper", "section 3.1.3"),
        Value("shallow.embedding", 512, "cited", SCRIPTS, "Marian's default"),
        Value("shallow.width", 1024, "cited", SCRIPTS, "Marian's default"),
        Value("shallow.layer_norm", True, "cited", SCRIPTS),
        Value("shallow.dropout", 0.0, "cited", SCRIPTS, "Marian's default"),
        Value("shallow.tied", "all", "paper", "section 3.1.3"),
        Value("shallow.encoder", "gru", "cited", SCRIPTS, "Marian's default"),
        Value("epochs", 10.0, "cited", SCRIPTS),
        Value("workspace", 3500, "cited", SCRIPTS, "MiB of a GPU; section 3.1.3 fills its memory"),
        *_OF_MARIAN,
        Value("validate_every", 10_000, "cited", SCRIPTS),
        Value("warmup", 0, "paper", "section 3.1.3", "only the Transformer has one"),
        Value("clip", 1.0, "cited", SCRIPTS, "Marian's default"),
        Value("label_smoothing", 0.0, "cited", SCRIPTS, "Marian's default"),
    ),
    (
        *_OF_ALL_MARIAN,
        "The learning rate is that of all models in section 3.1.3; in the scripts this model has Marian's default, "
        "0.0001 throughout.",
        "Asynchronous updates on eight GPUs (section 3.1.3) are not built: an asynchronous run depends on timing and "
        "cannot be repeated. --parallel data is the synchronous counterpart.",
    ),
)

MARIAN_DEEP_TRANSITION = Recipe(
    _MARIAN,
    "the deep RNN of section 3.1.1, WMT'17 English-German",
    (
        Value("model", "deep-transition", "paper", "section 3.1.1"),
        Value("deep-transition.encoder_depth", 4, "paper", "section 3.1.1"),
        Value("deep-transition.decoder_depth", 8, "paper", "section 3.1.1"),
        Value("deep-transition.embedding", 512, "paper", "section 3.1.1"),
        Value("deep-transition.width", 1024, "paper", "section 3.1.1"),
        Value("deep-transition.layer_norm", True, "paper", "section 3.1.1"),
        Value("deep-transition.dropout", 0.1, "paper", "section 3.1.1"),
        Value("deep-transition.tied", "all", "paper", "section 3.1.3"),
        Value("deep-transition.encoder", "gru", "paper", "section 3.1.1"),
        Value("epochs", 7.0, "paper", "section 3.1.3", "8 in the scripts"),
        *_DEEP,
        *_OF_MARIAN,
        Value("warmup", 0, "paper", "section 3.1.3", "only the Transformer has one"),
        Value("beta1", 0.9, "cited", SCRIPTS),
        Value("beta2", 0.98, "cited", SCRIPTS),
        Value("adam_epsilon", 1e-9, "cited", SCRIPTS),
        Value("clip", 5.0, "cited", SCRIPTS),
        Value("label_smoothing", 0.1, "cited", SCRIPTS),
    ),
    _OF_DEEP_MARIAN,
)

MARIAN_TRANSFORMER = Recipe(
    _MARIAN,
    "the Transformer of section 3.1.2, WMT'17 English-German",
    (
        Value("model", "transformer", "paper", "section 3.1.2"),
        Value("transformer.layers", 6, "cited", f"{VASWANI}, Table 3"),
        Value("transformer.width", 512, "cited", f"{VASWANI}, Table 3"),
        Value("transformer.heads", 8, "cited", f"{VASWANI}, Table 3"),
        Value("transformer.feed_forward", 2048, "cited", f"{VASWANI}, Table 3"),
        Value("transformer.norm", "post", "cited", f"{VASWANI}, section 3.1"),
        Value("transformer.dropout", 0.1, "cited", f"{VASWANI}, Table 3"),
        Value("transformer.attention_dropout", 0.0, "cited", f"{VASWANI}, section 5.4"),
        Value("transformer.feed_forward_dropout", 0.0, "cited", f"{VASWANI}, section 5.4"),
        Value("transformer.tied", "all", "paper", "section 3.1.3"),
        Value("transformer.encoder", "transformer", "paper", "section 3.1.2"),
        Value("epochs", 7.0, "paper", "section 3.1.3"),
        *_DEEP,
        *_OF_MARIAN,
        Value("warmup", 16_000, "paper", "section 3.1.3"),
        Value("beta1", 0.9, "cited", f"{VASWANI}, section 5.3"),
        Value("beta2", 0.98, "cited", f"{VASWANI}, section 5.3"),
        Value("adam_epsilon", 1e-9, "cited", f"{VASWANI}, section 5.3"),
        Value("clip", 5.0, "cited", SCRIPTS),
        Value("label_smoothing", 0.1, "cited", f"{VASWANI}, section 5.4"),
    ),
    _OF_DEEP_MARIAN,
)


def _hybrid(about: str, *, input_feeding: bool, place: str, besides: str) -> Recipe:
    return Recipe(
        "Ono et al. 2019, Hybrid Data-Model Parallel Training for Sequence-to-Sequence Recurrent Neural Network "
        "Machine Translation",
        about,
        (
            Value("model", "luong", "paper", "section 3.1"),
            Value("luong.layers", 4, "paper", "Table 2"),
            Value("luong.width", 1024, "paper", "Table 2"),
            Value("luong.embedding", 512, "paper", "Table 2"),
            Value("luong.encoder", "lstm", "paper", "Table 2"),
            Value("luong.input_feeding", input_feeding, "paper", place),
            Value("luong.bridge", True, "ours", note="the decoder starts from the encoder's last states"),
            Value("luong.tied", "none", "ours", note="131.7 M and 135.9 M; section 4.3 counts 138 M and 142 M"),
            Value("luong.dropout", 0.3, "paper", "section 4.2"),
            Value("luong.init", 0.1, "cited", f"{LUONG}, section 4.1"),
            Value("batch_pairs", 224, "paper", "Table 3", "on four GPUs; 64 on one"),
            Value("lr", 0.001, "paper", "Table 2"),
            Value("beta1", 0.9, "paper", "section 4.2"),
            Value("beta2", 0.999, "paper", "section 4.2"),
            Value("adam_epsilon", 1e-8, "paper", "section 4.2"),
            Value("validate_every", 5000, "paper", "section 4.2", "20,000 for WMT'17"),
            Value("plateau", 1, "paper", "section 4.2"),
            Value("plateau_factor", 0.7, "paper", "Table 2"),
            Value("decay_rule", "previous", "paper", "section 4.2"),
            Value("metric", "perplexity", "paper", "section 4.5"),
            Value("clip", 5.0, "cited", f"{LUONG}, section 4.1"),
            Value("label_smoothing", 0.0, "ours", note="the paper mentions none"),
        ),
        (
            "One vocabulary of 32,000 joint BPE units for both sides (section 4.1): sgdec tokenizer --kind bpe "
            "--vocab-size 32000.",
            besides,
        ),
    )


HYBRIDNMT = _hybrid(
    "HybridNMT on WMT'14 English-German",
    input_feeding=False,
    place="section 3.2",
    besides="Four GPUs (section 4.2): torchrun --nproc-per-node 4, and --parallel hybrid.",
)
HYBRIDNMT_INPUT_FEEDING = _hybrid(
    "HybridNMTIF on WMT'14 English-German: HybridNMT with input feeding",
    input_feeding=True,
    place="section 4",
    besides="Four GPUs (section 4.2): torchrun --nproc-per-node 4, and --parallel hybrid. The baseline of Figure 1 "
    "is the same model; it has --batch-pairs 64 on one GPU, and 224 with --parallel model (Table 3).",
)

RECIPES: Mapping[str, Recipe] = {
    "gnmt": GNMT,
    "marian-shallow": MARIAN_SHALLOW,
    "marian-deep-transition": MARIAN_DEEP_TRANSITION,
    "marian-transformer": MARIAN_TRANSFORMER,
    "hybridnmt": HYBRIDNMT,
    "hybridnmt-input-feeding": HYBRIDNMT_INPUT_FEEDING,
}
