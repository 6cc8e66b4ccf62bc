"""Parts of predictors with models of ``sgdec train``."""
