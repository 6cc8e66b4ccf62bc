"""The former package of some modules of `sgdec_predictors.texts`."""

from sgdec.renamed import former_modules

NAMES = (
    "characters",
    "grammars",
    "matchers",
    "regexes",
    "segmentation",
    "spelling",
    "stored",
    "token_automata",
    "word_automata",
)
former_modules(__name__, {name: f"sgdec_predictors.texts.{name}" for name in NAMES})
