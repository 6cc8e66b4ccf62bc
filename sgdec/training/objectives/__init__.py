"""What an update makes smaller."""
