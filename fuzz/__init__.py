"""Fuzzing: damaged files and wrong calls, made at random from small correct ones, each in a separate process."""
