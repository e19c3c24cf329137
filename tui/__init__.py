"""readyroom: the terminal control room for a large-model deployment."""

__version__ = "0.1.0"
