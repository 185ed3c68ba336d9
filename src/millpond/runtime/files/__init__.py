"""Files that tasks write and open: change logs, matches, pairs, snapshots of Query SteMs."""
