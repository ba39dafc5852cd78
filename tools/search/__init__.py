"""The log of a search for faster kernels: what was tried, from what, and what came of it."""
