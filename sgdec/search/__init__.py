"""The search: nodes, spaces, and the constellation that answers their questions, batched for many sentences."""
