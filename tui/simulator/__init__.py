"""A simulated GPU host in a process of its own."""
