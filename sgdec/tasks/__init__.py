"""Tasks other than decoding: scoring given outputs, copying unknown words, posteriors, comparing and diagnosing outputs."""
