"""Tasks other than decoding: scoring outputs, copying unknown words, posteriors, comparison, diagnosis."""
