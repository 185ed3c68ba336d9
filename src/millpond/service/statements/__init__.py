"""From one parsed statement to its one effect."""
