"""What the tree holds, read from its files: layers, versions, problems; and what a word of a command line means there."""
