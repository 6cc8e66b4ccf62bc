"""Models that are estimated without neural training: n-gram models, length distributions, clusters of states."""
