"""The demonstration behind ``sgdec demo``: a corpus that makes itself, a grammar, and a tour through the commands."""
