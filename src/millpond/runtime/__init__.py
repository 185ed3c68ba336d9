"""What workers do to a batch (`tasks`), and the runtimes that decide where and when."""
