"""Constraints on the text of outputs: what tokens spell, automata over bytes and over tokens, phrases, grammars."""
