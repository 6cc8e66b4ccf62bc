"""The combination of the scores of several predictors: weighted sums, and the best tokens."""
