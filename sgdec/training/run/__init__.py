"""What a run is made of, how it begins and goes on, and what it tells."""
