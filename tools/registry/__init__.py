"""Registry of the tree, read from its files: layers, versions, problems; resolution of command-line words to these."""
