"""What to do where `readyroom bench` could not begin."""

from typing import TYPE_CHECKING

from tui.cli.exits import Exit, Fail

if TYPE_CHECKING:
    from tui.services.benchmark import BenchmarkRefused

KEY_WANTED = ("http_401", "http_403")
NOT_NOW = ("http_429", "http_502", "http_503", "http_504")
"""Kinds of refusal that another time, and not another request, would change: the server's, or those of what stands before it."""


def refusal(name: str, error: "BenchmarkRefused", by_url: bool) -> Fail:
    """How a command ends whose benchmark the server `name` refused: an exit code, the cause, and a step."""
    if error.kind == "tls":
        return Fail(Exit.UNREACHABLE, f"{name}: {error.cause}\n  {_trust(error.cause, by_url)}")
    if error.unreachable:
        step = "is the server up, and is this its address?" if by_url else f"is the server ready? `readyroom status {name}` tells"
        return Fail(Exit.UNREACHABLE, f"{name}: {error.cause}\n  {step}")
    if error.kind in KEY_WANTED:
        given = "set VLLM_API_KEY or OPENAI_API_KEY" if by_url else "set VLLM_API_KEY, or api_key_env in the configuration"
        return Fail(Exit.REFUSED, f"{name}: an API key is missing, or is not the right one: {error.cause}\n  {given}")
    if error.kind == "too_long":
        return Fail(Exit.USAGE, f"{name}: {error.cause}: nothing was sent\n  ask for less with --input-tokens or --output-tokens")
    if error.kind in NOT_NOW:
        step = "try again when it is up, or has room" if by_url else f"`readyroom status {name}` tells which"
        return Fail(Exit.NEGATIVE, f"{name}: the server is not ready, or full ({error.kind}): {error.cause}\n  {step}")
    if error.kind.startswith("http_5"):
        step = "its own log says more" if by_url else f"`readyroom status {name}` tells more, and its log"
        return Fail(Exit.NEGATIVE, f"{name}: the server failed ({error.kind}): {error.cause}\n  {step}")
    return Fail(Exit.NEGATIVE, f"{name}: the server takes no such request ({error.kind}): {error.cause}")


def _trust(cause: str, by_url: bool) -> str:
    if "certificate" not in cause.lower():
        return "does it speak TLS? Where it doesn't, its address begins with http://"
    named = "--ca-file FILE, or SSL_CERT_FILE in the environment," if by_url else "ca_file in the configuration"
    return f"{named} names the authority to trust; --insecure trusts whoever answers"
