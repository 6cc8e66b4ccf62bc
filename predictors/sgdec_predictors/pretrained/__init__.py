"""Models of Hugging Face transformers, one token at a time.

`folder` and `loading` load them; `prefixes` keeps what they remember, `causal` and `seq2seq` take steps; `probe`
compares their scores with those for all tokens at once; `rules` reads what their generation settings forbid.
"""
