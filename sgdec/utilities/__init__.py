"""The bundled utilities, one file each, and the counting of n-grams and the process that they share."""
