"""Checkpoints: writing, checking and loading their folders, for training and for decoding."""
