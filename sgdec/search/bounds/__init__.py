"""Upper bounds on what a prefix can still gain: declared sums, and products of automata with relaxations."""
