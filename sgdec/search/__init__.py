"""The search: nodes, search spaces, and the constellation of predictors that serves them in batches of sentences."""

from sgdec.renamed import former_names

__getattr__ = former_names(__name__, {"SearchSpace": "sgdec"})
