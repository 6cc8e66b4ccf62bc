"""The bundled engines, which run the work of ``sgdec corpus``."""
