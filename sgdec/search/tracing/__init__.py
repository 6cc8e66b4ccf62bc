"""What is recorded and shown of a search while it runs."""
