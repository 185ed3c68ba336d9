"""What gives way when followed queries need too much: ladders, and reductions while they run."""
