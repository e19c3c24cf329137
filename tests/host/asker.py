"""A person for tests, who answers as told and remembers what was asked."""


class Person:
    def __init__(self, *, trust: bool = False, secrets: list[str | None] | None = None) -> None:
        self.trust = trust
        self.secrets = secrets or []
        self.asked: list[tuple[str, ...]] = []

    async def trust_host_key(self, host: str, key_type: str, fingerprint: str) -> bool:
        self.asked.append((host, key_type, fingerprint))
        return self.trust

    async def secret(self, host: str, prompt: str, echo: bool) -> str | None:
        self.asked.append((host, prompt, "shown" if echo else "hidden"))
        return self.secrets.pop(0) if self.secrets else None
