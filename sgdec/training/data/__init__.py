"""From files to the batches of a step: lines are read, checked, tokenised, shuffled and cut into batches."""
