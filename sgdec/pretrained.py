"""The former package of some modules of `sgdec_predictors.pretrained`."""

from sgdec.renamed import former_modules

NAMES = (
    "causal",
    "counterparts",
    "folder",
    "layers",
    "loading",
    "packing",
    "prefixes",
    "probe",
    "prompts",
    "rules",
    "seq2seq",
    "weights",
)
former_modules(__name__, {name: f"sgdec_predictors.pretrained.{name}" for name in NAMES})
