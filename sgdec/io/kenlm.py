"""The former module of `sgdec_predictors.ngrams.kenlm_file`."""

from sgdec.renamed import former_module

__getattr__ = former_module(__name__, "sgdec_predictors.ngrams.kenlm_file")
