"""Changes: derivations, when and how they are advanced, change logs, and who follows them."""
