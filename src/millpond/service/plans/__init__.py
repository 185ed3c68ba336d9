"""Plans as documents: exported, edited, compared, adopted, and taken back."""
