"""The former module of some names of `sgdec.arrays`."""

from sgdec.renamed import former_names

__getattr__ = former_names(__name__, {name: f"sgdec.arrays:{name}" for name in ("Copies", "Put", "namespace")})
