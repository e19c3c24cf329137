"""The command `readyroom`."""


def main() -> None:
    raise SystemExit(0)
