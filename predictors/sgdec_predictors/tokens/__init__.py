"""Tokens as options and files give them: lists, sets, and what is forbidden of them."""
