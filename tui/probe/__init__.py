"""Runs on the GPU host, shipped over the connection: standard library only, Python 3.8. Reports raw facts, judges nothing."""
