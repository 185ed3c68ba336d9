"""The eddy: batches of tuples are routed through modules by tickets (CACQ, section 3)."""
