"""Constraints on the text of outputs: what tokens spell, and automata over bytes and over tokens."""
