"""Developers' tools: formatters, compiler launchers, disassembly, the constants of golden tests."""
