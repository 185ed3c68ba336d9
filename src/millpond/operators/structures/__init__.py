"""What operators keep rows in."""
