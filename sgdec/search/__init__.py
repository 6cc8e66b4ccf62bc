"""The search: nodes, search spaces, and the constellation of predictors that serves them in batches of sentences."""
