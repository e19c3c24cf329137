"""The commands: one lazily imported module a group."""
