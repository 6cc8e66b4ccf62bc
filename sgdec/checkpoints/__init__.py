"""Checkpoints: what lies in their folders, written whole, checked, and made models again. Decoding reads them too."""
