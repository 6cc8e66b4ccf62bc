"""Models of Hugging Face transformers, one token at a time: `folder` loads them, `prefixes` keeps what they remember,
`rules` reads what their generation settings forbid."""
