"""Registry of the tree, read from its files: layers, versions, problems; and the resolution of command-line words to
them."""
