"""Run the command `readyroom`; `python -m tui` is the same."""

import os
import signal
from typing import NoReturn


def _leave(number: int, frame: object) -> None:
    """End at once, without a traceback: nothing has begun yet."""
    try:
        os.write(2, b"readyroom: interrupted\n")
    finally:
        os._exit(130)


if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, _leave)  # until the imports, most of a second on a slow disk, are done


def main() -> NoReturn:
    """Import the command line and run it."""
    from tui.cli.main import main as run

    run()


if __name__ == "__main__":
    main()
