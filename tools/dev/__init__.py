"""For whoever changes the tree: formatters, compiler launchers, the constants of golden tests."""
