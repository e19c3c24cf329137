"""A management library and an `nvidia-smi` for hosts without GPUs, which play a scenario file."""
