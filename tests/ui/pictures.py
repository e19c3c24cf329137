"""Writes a picture of each state at each size: `python tests/ui/pictures.py FOLDER [PART-OF-NAME]`."""

import asyncio
import sys
import time
from pathlib import Path

import scenes
from room import room

from tui.settings import Settings, UiSettings

SIZES = ((80, 24), (120, 35), (200, 60), (20, 5), (160, 45), (80, 40))


async def shoot(
    folder: Path, name: str, scene: str, size: tuple[int, int], theme: str, tab: str = "", ascii_only: bool = False
) -> None:
    app, _ = room(scenes.SCENES[scene](time.monotonic()), Settings(ui=UiSettings(theme=theme, ascii=ascii_only)))
    async with app.run_test(size=size) as pilot:
        await pilot.pause(0.7)
        for key in tab.split():
            await pilot.press(key)
            await pilot.pause(0.3)
        app.save_screenshot(f"{name}.svg", str(folder))


async def main(folder: Path, only: str = "") -> None:
    for scene in scenes.SCENES:
        for size in SIZES:
            for theme in ("dark", "16", "light", "16-light"):
                name = f"{scene}-{size[0]}x{size[1]}-{theme}"
                if (theme == "dark" or size in ((120, 35), (80, 24))) and (only in name):
                    await shoot(folder, name, scene, size, theme)
    for scene, key, title in (
        ("loading", "4", "gpus"),
        ("failed", "5", "log"),
        ("loading", "question_mark", "help"),
        ("ready", "1", "load"),
        ("ready", "4 enter", "gpu"),
    ):
        for size in SIZES[:3]:
            name = f"{scene}-{title}-{size[0]}x{size[1]}"
            if only in name:
                await shoot(folder, name, scene, size, "dark", key)
    if only in "ascii":
        await shoot(folder, "ascii-120x35", "loading", (120, 35), "16", ascii_only=True)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), *sys.argv[2:3]))
