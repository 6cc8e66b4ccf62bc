"""Checks of what predictors claim about their scores (``--check-bounds``)."""
