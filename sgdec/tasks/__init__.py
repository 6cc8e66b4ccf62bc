"""What is done with searches beside decoding: scoring what is given, copying unknown words, posteriors."""
