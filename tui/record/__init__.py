"""The record of loads, smoke runs and benchmarks."""
