"""Reading the logs of inference servers."""
