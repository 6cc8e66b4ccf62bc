"""The objectives of training: the losses that an update minimises."""
