"""The records of results/: how one is read, which are missing, and which version they promote."""
