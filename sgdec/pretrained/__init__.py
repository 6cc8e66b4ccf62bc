"""Models of Hugging Face transformers, one token at a time.

`folder` and `loading` load them, `prefixes` keeps what they remember, `probe` compares their scores with those for
all tokens at once, and `rules` reads what their generation settings forbid.
"""
