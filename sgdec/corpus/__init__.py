"""A corpus decoded or scored by many workers: a folder holds the order and the state, engines only run the work."""
