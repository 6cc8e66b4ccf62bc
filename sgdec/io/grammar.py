"""The former module of `sgdec_predictors.hiero.grammar`."""

from sgdec.renamed import former_module

__getattr__ = former_module(__name__, "sgdec_predictors.hiero.grammar")
