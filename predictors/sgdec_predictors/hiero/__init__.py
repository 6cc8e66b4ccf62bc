"""Synchronous grammars: their files, and the derivations of a source sentence."""
