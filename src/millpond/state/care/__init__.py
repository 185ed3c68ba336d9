"""Care of a store's directory: setting aside what is not needed, checking, repairing."""
