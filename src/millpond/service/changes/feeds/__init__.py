"""Feeds: the changes of many queries through one reader, with one cursor."""
