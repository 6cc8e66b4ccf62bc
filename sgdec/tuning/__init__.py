"""Weights for a metric: re-ranking of lists, exact line search, margins; sweeps over settings, rounds of decoding."""
