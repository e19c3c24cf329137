"""The most that a benchmark is asked for, by flag, configuration or file of prompts: what is above is a slip of the hand."""

MOST_TOKENS = 10_000_000
MOST_STREAMS = 65_536
MOST_SCHEDULED = 1_000_000
"""Requests of an open loop: all their times are sent to the load generator before the first one."""
