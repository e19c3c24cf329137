"""What the configuration expects of a deployment, and where it is not so."""

from msgspec import Struct

from tui.core.presentation import counted


class Expected(Struct, frozen=True):
    """None is "nothing is expected". `headroom_mib` is the least free memory on any GPU while it serves."""

    gpus: int | None = None
    load_minutes: float | None = None
    seconds_per_shard: float | None = None
    tokens_per_s: float | None = None
    headroom_mib: float | None = None

    @property
    def words(self) -> str:
        """Return it in one line, or "" if nothing is expected."""
        parts = []
        if self.gpus is not None:
            parts.append(counted(self.gpus, "GPU"))
        if self.load_minutes is not None:
            parts.append(f"ready in {self.load_minutes:g} min")
        if self.seconds_per_shard is not None:
            parts.append(f"{self.seconds_per_shard:g} s a shard")
        if self.tokens_per_s is not None:
            parts.append(f"{self.tokens_per_s:g} tok/s")
        if self.headroom_mib is not None:
            parts.append(f"{self.headroom_mib:,.0f} MiB free")
        return ", ".join(parts)
