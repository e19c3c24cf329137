"""Shared by the client and the GPU host: standard library only, Python 3.8."""
