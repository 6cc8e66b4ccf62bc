"""Text and tokens: lines of files, vocabularies of every kind, and the two sides of a model.

`vocabulary` reads a vocabulary of any kind, and `sides` makes those of a model. All code but a model sees one source
and one target: `two_sources` joins two sources, `steps` adds the steps of monotone attention to targets, and
`right_left` reverses lines. The ids of a Hugging Face model are renumbered (`numbering`) by their roles (`roles`), so
that 0, 1 and 2 mean the same everywhere; a predictor and its vocabulary find the roles by the same function.
"""
