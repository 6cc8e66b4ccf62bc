"""Plugins: how they are found, configured, checked against the protocol, and assembled into a run."""
