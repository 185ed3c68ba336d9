"""The query-data join: grouped filters, the Query SteM, kernels, and the Results Structure."""
