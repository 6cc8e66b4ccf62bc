"""The record of a search, and the signs of it that are shown while it runs."""
