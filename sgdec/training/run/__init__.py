"""One run of training: its inputs, its initial weights, its progress, resuming, and its logs."""
