"""Plugins: how they are found, configured, held against the protocol and put together."""
