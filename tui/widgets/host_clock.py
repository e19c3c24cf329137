"""The host's clock, as far as the log tells it: no two machines' clocks are ever subtracted."""

from tui.core.deployment import DeploymentState


def host_now(state: DeploymentState) -> float | None:
    """The host's clock as far as the log tells: its last line and the silence since."""
    if state.load is None or state.load.last_line_at is None:
        return None
    return state.load.last_line_at + (state.outlook.silent_s or 0.0)
