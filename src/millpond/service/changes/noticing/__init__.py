"""What is noticed of streams and of plans that run, by which plans are made, and made anew."""
