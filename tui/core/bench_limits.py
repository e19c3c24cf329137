"""The most that a benchmark may be asked for, by flag, configuration or file of prompts: anything above is a slip of the hand.

Apart from the plans, since the configuration is read before the first paint.
"""

MOST_TOKENS = 10_000_000
MOST_STREAMS = 65_536
MOST_SCHEDULED = 1_000_000
"""Requests of an open loop: all their times are sent to the load generator before the first one."""
