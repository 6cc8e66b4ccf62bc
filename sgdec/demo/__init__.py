"""The demonstration behind ``sgdec demo``: a generated corpus, a grammar, and a tour of the commands."""
