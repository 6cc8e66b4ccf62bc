"""Helpers of several wrappers: other tokens of an inner predictor, sets of tokens, and normalised rows."""
