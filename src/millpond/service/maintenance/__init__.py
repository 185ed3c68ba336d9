"""Behind the scenes, changing no answer: backfill, merges, retention, shared joins."""
