"""Plugins: how they are found, configured, checked against the protocol, and assembled into a run."""

from sgdec.renamed import former_names

__getattr__ = former_names(__name__, {"Host": "sgdec.plugins.host"})
