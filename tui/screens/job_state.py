"""The screen's values of what the model is at work on: the chat, the smoke run, the benchmark, and the record of them."""

from typing import TYPE_CHECKING

from textual import getters
from textual.reactive import var
from textual.screen import Screen

from tui.actions import BY_ID, shown_key
from tui.core.presentation import counted
from tui.messages import (
    BenchmarkRequested,
    BenchmarkStopped,
    CompareRequested,
    GenerationStopped,
    ReportRequested,
    SmokeRequested,
    SmokeStopped,
)
from tui.screens.room_app import RoomApp

if TYPE_CHECKING:
    from tui.core.bench_result import BenchProgress, Plan, Point, Result
    from tui.core.conversation import Conversation
    from tui.core.smoke_prompts import SmokeRun
    from tui.widgets.chat_pane import ChatPane
    from tui.widgets.runs_pane import Compared, RunsPane, StoredRun


class JobScreen(Screen[None]):
    """Hold the values that the app's workers assign, and name what runs in `activity`."""

    app = getters.app(RoomApp)
    own_keys: dict[str, str]
    """Action -> key, if the user chose another one."""
    tab: var[str] = var("load", init=False)

    activity: var[str] = var("", init=False)
    """What runs, for the status line: `◐ sweep 8 of 9`."""
    # chat
    conversation: "var[Conversation]" = var(None, init=False)  # type: ignore[arg-type]
    streaming: var[bool] = var(False, init=False)
    model: var[str | None] = var(None, init=False)
    api_ready: var[bool] = var(False, init=False)
    why_not_ready: var[str] = var("", init=False)
    # smoke
    smoke: "var[SmokeRun | None]" = var(None, init=False)
    smoking: var[bool] = var(False, init=False)
    # benchmarks
    benching: var[bool] = var(False, init=False)
    plan: "var[Plan | None]" = var(None, init=False)
    progress: "var[BenchProgress | None]" = var(None, init=False)
    points: "var[tuple[Point, ...]]" = var((), init=False)
    result: "var[Result | None]" = var(None, init=False)
    previous: "var[Result | None]" = var(None, init=False)
    """What the benchmark on the screen is compared with."""
    bench_problem: var[str | None] = var(None, init=False)
    # record
    runs: "var[tuple[StoredRun, ...]]" = var((), init=False)
    opened: "var[StoredRun | None]" = var(None, init=False)
    opened_result: "var[Result | None]" = var(None, init=False)
    compared: "var[Compared | None]" = var(None, init=False)

    # panes whose modules the first paint can do without

    @property
    def chat(self) -> "ChatPane":
        from tui.widgets.chat_pane import ChatPane

        return self.query_one("#tab-chat", ChatPane)

    @property
    def record(self) -> "RunsPane":
        from tui.widgets.runs_pane import RunsPane

        return self.query_one("#tab-runs", RunsPane)

    def begin_benchmark(self, plan: "Plan") -> None:
        """Begin a benchmark: the tab's previous result becomes what it is compared with."""
        if self.result is not None and self.result.points:
            self.previous = self.result
        self.plan, self.points, self.result, self.progress, self.bench_problem = plan, (), None, None, None
        self.benching = True

    def end_benchmark(self) -> None:
        """End the benchmark, whatever came of it."""
        self.benching, self.progress = False, None

    def ended_by_leaving(self) -> str:
        """Say what becomes of the running benchmark when the user leaves."""
        progress, plan = self.progress, self.plan
        several = progress is not None and progress.points > 1
        how_far = f", point {progress.point + 1} of {progress.points}" if progress is not None and several else ""
        name = {"single": "single-stream benchmark"}.get(plan.kind, plan.kind) if plan is not None else "benchmark"
        whole = f" ({counted(len(self.points), 'whole point')})" if self.points else ""
        stop = shown_key(BY_ID["stop"], self.own_keys)
        kept = f"keeps what was measured{whole}"
        return f"The {name} is still running{how_far}. Quitting stops it and {kept}; {stop} stops it without quitting."

    def _name_activity(self) -> None:
        doing = []
        if self.benching:
            progress = self.progress
            kind = self.plan.kind if self.plan else "benchmark"
            doing.append(f"◐ {kind} {progress.point + 1} of {progress.points}" if progress and progress.points > 1 else f"◐ {kind}")
        if self.smoking:
            doing.append(f"◐ smoke {len(self.smoke.results) + 1} of {self.smoke.planned}" if self.smoke else "◐ smoke")
        if self.streaming:
            doing.append("◐ reply")
        self.activity = "  ".join(doing)

    def watch_streaming(self) -> None:
        self._name_activity()

    def watch_smoking(self) -> None:
        self._name_activity()

    def watch_smoke(self) -> None:
        self._name_activity()

    def watch_benching(self) -> None:
        self._name_activity()

    def watch_progress(self) -> None:
        self._name_activity()

    def stop_asking(self) -> None:
        """Stop the reply and the smoke run: what can be asked again at once."""
        if self.streaming:
            self.post_message(GenerationStopped())
        if self.smoking:
            self.post_message(SmokeStopped())

    def action_stop(self) -> None:
        self.stop_asking()
        if self.benching:
            self.post_message(BenchmarkStopped())

    def action_show(self, tab: str) -> None:
        raise NotImplementedError

    def action_smoke(self) -> None:
        self.post_message(SmokeRequested())

    def action_bench(self, kind: str) -> None:
        self.post_message(BenchmarkRequested(kind))

    def action_compare(self) -> None:
        """Compare the run selected in the record or, from another tab, the newest benchmark: the one just run, or stopped."""
        if self.tab == "runs":
            self.record.compare()
        else:
            self.action_show("runs")
            self.post_message(CompareRequested())

    def action_export(self) -> None:
        if self.tab == "runs":
            self.record.export()
        else:
            self.post_message(ReportRequested())

    def action_thoughts(self) -> None:
        self.chat.toggle_thoughts()

    def action_new_chat(self) -> None:
        self.action_show("chat")
        self.chat.clear_conversation()

    def action_system_prompt(self) -> None:
        self.action_show("chat")
        self.chat.edit_system()

    def action_copy_reply(self) -> None:
        self.chat.copy_reply()
