"""Diagnosis of outputs: search errors, model errors, and what they have in common over a set of sentences."""
