"""Pure: no Textual, asyncssh, httpx, asyncio or clock reads."""
