"""`python -m tui`: the same as the command `readyroom`."""

from tui.cli.main import main

if __name__ == "__main__":
    main()
