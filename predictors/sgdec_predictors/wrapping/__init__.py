"""Helpers of several wrappers: other tokens of an inner predictor, and normalised rows."""
