"""Predictors of bytes from predictors of tokens that spell them."""
