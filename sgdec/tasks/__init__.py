"""Tasks beside decoding: scoring given outputs, copying unknown words, posteriors."""
