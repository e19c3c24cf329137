"""The parts of the main screen that its first paint can do without: importing and mounting them takes longer than the rest."""

from textual.containers import Horizontal
from textual.widget import Widget
from textual.widgets import ContentSwitcher

from tui.screens.main_screen import MainScreen
from tui.screens.pane import Pane
from tui.widgets.bench_pane import BenchPane
from tui.widgets.chat_pane import ChatPane
from tui.widgets.facts_panes import DeploymentPane, HostPane, PastLoadsPane, ServingPane, ServingStrip
from tui.widgets.gpu_panel import GpuPanel
from tui.widgets.gpu_strip import GpuStrip
from tui.widgets.log_pane import LogPane
from tui.widgets.runs_pane import RunsPane
from tui.widgets.smoke_panel import SmokePanel
from tui.widgets.status_line import Banner
from tui.widgets.tiny import Tiny


async def furnish(screen: MainScreen) -> None:
    """Mounts everything that the first paint left out, bound to the screen's values."""
    mine = MainScreen
    screen.chat = ChatPane(id="tab-chat").data_bind(
        conversation=mine.conversation,
        streaming=mine.streaming,
        model=mine.model,
        ready=mine.api_ready,
        reason=mine.why_not_ready,
        smoke=mine.smoke,
        smoking=mine.smoking,
    )
    screen.bench = BenchPane(id="tab-bench").data_bind(
        points=mine.points,
        progress=mine.progress,
        plan=mine.plan,
        result=mine.result,
        running=mine.benching,
        problem=mine.bench_problem,
        previous=mine.previous,
    )
    screen.record = RunsPane(id="tab-runs").data_bind(
        runs=mine.runs, opened=mine.opened, result=mine.opened_result, compared=mine.compared
    )
    screen.log_pane = LogPane()
    gpus = screen.showing(GpuPanel(full=True, id="tab-gpus"))
    tabs: list[Widget] = [screen.chat, screen.bench, screen.record, gpus]
    for tab in tabs:
        tab.display = False
    await screen.mount(
        screen.showing(Banner(id="banner")),
        screen.showing(Tiny(id="tiny")),
        after="#status",
    )
    await screen.query_one("#log").mount(screen.log_pane)
    await screen.query_one("#stage").mount(
        screen.showing(GpuStrip(id="strip")),
        screen.showing(ServingStrip(id="serving-strip")),
        before=screen.query_one(ContentSwitcher),
    )
    await screen.query_one(ContentSwitcher).mount(*tabs)
    await screen.query_one("#machine").mount(
        Pane(screen.showing(ServingPane()), id="serving"),
        Pane(SmokePanel().data_bind(run=mine.smoke, running=mine.smoking), id="smoke"),
        Pane(screen.showing(HostPane()), id="host"),
    )
    await screen.query_one("#right").mount(
        Horizontal(
            Pane(screen.showing(DeploymentPane()), id="deployment"),
            Pane(screen.showing(PastLoadsPane()), id="past"),
            id="more",
        )
    )
