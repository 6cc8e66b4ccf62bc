"""Automata of predictors: states as numbers, lattices, networks, and bounds on scores that depend on a count."""
