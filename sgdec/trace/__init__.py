"""The record of a search: its expansions, the fate of every child, its bounds, and why it stopped.

`sgdec.search.recording` makes these records while a search runs. This package has their form (`records`), their file
format (`files`, `schema.json`), and their settings. docs/howto/traces.md describes the format.
"""
