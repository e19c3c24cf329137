"""Adapters to a GPU host: the only users of asyncssh and httpx."""
