"""Estimated, not trained: n-gram models, distributions of length, clusters of states."""
