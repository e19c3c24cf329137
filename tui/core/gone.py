"""How an error tells that nobody is at the other end any more."""

import errno

GONE = frozenset({errno.EIO, errno.EPIPE, errno.EBADF, errno.ENXIO})
"""What writing fails with to a terminal that was closed, a pipe whose reader left, or a stream that never was open."""
