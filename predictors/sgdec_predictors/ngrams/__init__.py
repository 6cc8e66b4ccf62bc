"""N-gram models: tables of scores, their bounds, the words that they have, and KenLM's binary files."""
