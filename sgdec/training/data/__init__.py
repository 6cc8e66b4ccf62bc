"""From files to batches: lines are read, checked, tokenised, shuffled and cut; what one step sees."""
