"""The former module of `sgdec.Constellation`."""

from sgdec.renamed import former_names

__getattr__ = former_names(__name__, {"Constellation": "sgdec"})
