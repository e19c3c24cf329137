"""Questions to the user, each a modal that is dismissed with the answer."""

import time
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.await_complete import AwaitComplete
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.reactive import var
from textual.screen import ModalScreen, ScreenResultType
from textual.widgets import Button, Input, Static

from tui.actions import BY_ID, Action, binding, groups, help_of, shown_key
from tui.core.deployment import ServerSeen
from tui.core.gpu import Gpu, GpuSample
from tui.core.gpu_findings import GpuSeen
from tui.widgets.canvas import Moment
from tui.widgets.draw import BP, B, E, W, label, line, rows, short, warning
from tui.widgets.gpu_facts import gpu_facts
from tui.widgets.gpu_rows import old_words

if TYPE_CHECKING:
    from textual.widgets import OptionList


class Modal(ModalScreen[ScreenResultType]):
    """Ask something over another screen, and close once.

    A key that is pressed again before the first one took effect finds the screen closed: closing it twice would close the one
    below, too. A key that comes before the screen has its parts closes it when it has them: Textual would look for them in vain.
    """

    def dismiss(self, result: ScreenResultType | None = None) -> AwaitComplete:
        if not self.is_current:
            return AwaitComplete()
        if not self.is_mounted:
            self.call_later(self._dismiss_mounted, result)
            return AwaitComplete()
        return super().dismiss(result)

    def _dismiss_mounted(self, result: ScreenResultType | None) -> None:
        """Dismiss, and return nothing: Textual awaits what a callback returns, and a screen may not await its own end."""
        self.dismiss(result)


STYLE = """
{name} {{ align: center middle; background: $background 60%; }}
{name}:ansi {{ background: transparent; }}
{name} > .dialog {{
    width: 76; max-width: 100%; height: auto; max-height: 100%; padding: 1 2; background: $surface;
    border: round $primary; border-title-color: $foreground;
}}
{name} .answers {{ height: auto; margin: 1 0 0 0; }}
{name} Button {{ min-width: 12; margin: 0 2 0 0; height: 1; border: none; }}
{name} Button:focus {{ text-style: bold reverse; }}
{name} Input {{ margin: 1 0 0 0; border: round $rule; height: 3; background: $surface; }}
{name} Input:focus {{ border: round $primary; }}
"""


class HostKeyDialog(Modal[bool]):
    """An unknown host key: the user compares the fingerprint, and accepts or refuses. Refusing is the default."""

    AUTO_FOCUS = "#refuse"
    DEFAULT_CSS = STYLE.format(name="HostKeyDialog")
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "refuse", "refuse"),
        Binding("a", "accept", "accept"),
        Binding("r", "refuse", "refuse"),
    ]

    def __init__(self, host: str, key_type: str, fingerprint: str) -> None:
        super().__init__()
        self.told = rows(
            line(("▲ ", W), (f"{host} is not in your known hosts.", B)),
            "",
            line("It shows this key; compare it with what the host's owner told you:"),
            "",
            line(label(f"{key_type}  "), (fingerprint, BP)),
            "",
            line(label("Accepting writes it to your known_hosts file. A key that changes later is refused.")),
        )

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog") as box:
            box.border_title = "Unknown host key"
            yield Static(self.told)
            with Horizontal(classes="answers"):
                yield Button(Content("r refuse"), id="refuse", compact=True)
                yield Button(Content("a accept"), id="accept", compact=True)

    def on_button_pressed(self, event: Button.Pressed) -> None:
        self.dismiss(event.button.id == "accept")

    def action_accept(self) -> None:
        self.dismiss(True)

    def action_refuse(self) -> None:
        self.dismiss(False)


class SecretDialog(Modal[str | None]):
    """A passphrase, password or one-time code; the answer goes to the login and is kept nowhere."""

    DEFAULT_CSS = STYLE.format(name="SecretDialog")
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "cancel", "cancel")]

    def __init__(self, host: str, prompt: str, echo: bool) -> None:
        super().__init__()
        self.host, self.prompt, self.echo = host, prompt, echo

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog") as box:
            box.border_title = line(f"Login to {self.host}")
            yield Static(Content(self.prompt))
            yield Input(password=not self.echo)
            yield Static(line(label("enter sends · esc cancels the login; it is not retried by itself")), classes="answers")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value)

    def action_cancel(self) -> None:
        self.dismiss(None)


class ConfirmDialog(Modal[bool]):
    """A question with a consequence; no is the default."""

    AUTO_FOCUS = "#no"
    DEFAULT_CSS = STYLE.format(name="ConfirmDialog")
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,n", "answer(False)", "no"), Binding("y", "answer(True)", "yes")]

    def __init__(self, title: str, question: str, yes: str) -> None:
        super().__init__()
        self.name_shown, self.question, self.yes = title, question, yes

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog") as box:
            box.border_title = line(self.name_shown)
            yield Static(Content(self.question))
            with Horizontal(classes="answers"):
                yield Button(Content("n cancel"), id="no", compact=True)
                yield Button(Content(f"y {self.yes}"), id="yes", compact=True)

    def on_button_pressed(self, event: Button.Pressed) -> None:
        self.dismiss(event.button.id == "yes")

    def action_answer(self, answer: bool) -> None:
        self.dismiss(answer)


class LeaveDialog(ConfirmDialog):
    """Whether to leave though something would be ended by it; ctrl+c is an answer here, too: one that waits for nothing."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+c", "leave_at_once", "leave", priority=True)]

    def action_leave_at_once(self) -> None:
        self.app.exit()


class ServerDialog(Modal[int | None]):
    """Which of the servers of a host is meant; answers with its pid."""

    DEFAULT_CSS = (
        STYLE.format(name="ServerDialog")
        + "ServerDialog OptionList { height: auto; max-height: 20; border: none; background: $surface; }"
    )
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q", "cancel", "cancel")]

    def __init__(self, servers: tuple[ServerSeen, ...], watched: int | None) -> None:
        super().__init__()
        self.servers, self.watched = servers, watched

    def compose(self) -> ComposeResult:
        from textual.widgets import OptionList

        with Vertical(classes="dialog") as box:
            box.border_title = "Servers on this host"
            box.border_subtitle = "enter watches it · esc cancels"
            options = []
            for server in self.servers:
                at = f"port {server.where}" if isinstance(server.where, int) else server.where or "no port known"
                here = ("● ", "$success") if server.pid == self.watched else "  "
                told = label(f"  {at}  pid {server.pid}  {server.user or ''}")
                options.append(line(here, (f"{server.engine} {short(server.model or 'model unknown', 36)}", B), told))
            yield OptionList(*options)

    def on_option_list_option_selected(self, event: "OptionList.OptionSelected") -> None:
        self.dismiss(self.servers[event.option_index].pid)

    def action_cancel(self) -> None:
        self.dismiss(None)


class NameDialog(Modal[str | None]):
    """Under which name something is kept; the proposed one is there already."""

    DEFAULT_CSS = STYLE.format(name="NameDialog")
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "cancel", "cancel")]

    def __init__(self, title: str, told: str, proposed: str) -> None:
        super().__init__()
        self.name_shown, self.told, self.proposed = title, told, proposed

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog") as box:
            box.border_title = line(self.name_shown)
            yield Static(Content(self.told))
            yield Input(self.proposed)
            yield Static(line(label("enter saves it · esc cancels")), classes="answers")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        if event.value.strip():
            self.dismiss(event.value.strip())

    def action_cancel(self) -> None:
        self.dismiss(None)


class GpuDialog(Modal[None]):
    """One GPU in full, as it is now."""

    DEFAULT_CSS = STYLE.format(name="GpuDialog") + "GpuDialog VerticalScroll { height: auto; max-height: 80vh; }"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,enter,q", "close", "close")]

    seen: var[GpuSeen] = var(GpuSeen(Gpu(index=0), GpuSample()), init=False)

    def __init__(self, seen: GpuSeen, host: str = "") -> None:
        super().__init__()
        self.set_reactive(GpuDialog.seen, seen)
        self.host = host

    @property
    def gpu(self) -> Gpu:
        return self.seen.gpu

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog") as box:
            box.border_title = line(f"GPU {self.gpu.index}" + (f" of {self.host}" if self.host else ""))
            box.border_subtitle = "esc closes"
            with VerticalScroll():
                yield Static(self._told())

    def _told(self) -> Content:
        said = [part for finding in self.seen.wrong for part in warning(finding, 68)]
        old = old_words(self.seen.sample, Moment(time.time(), time.monotonic()))
        return rows(*gpu_facts(self.gpu, 68, old=old), *said)

    def watch_seen(self) -> None:
        for shown in self.query(Static):
            shown.update(self._told())

    def action_close(self) -> None:
        self.dismiss()


HELP_AT = 10
"""The column where the help on a key begins."""


class HelpDialog(Modal[None]):
    """Every key, from the one table of actions."""

    DEFAULT_CSS = (
        STYLE.format(name="HelpDialog") + "HelpDialog VerticalScroll { height: auto; max-height: 80vh; scrollbar-size: 1 1; }"
    )
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q", "close", "close"), binding(BY_ID["help"], "close")]

    def __init__(self, own: dict[str, str]) -> None:
        super().__init__()
        self.own = own

    def told(self, width: int = 69) -> Content:
        """Return the text of the help; a long line goes on below its own column."""

        def row(one: Action) -> list[Content]:
            first, *rest = Content(help_of(one, self.own)).wrap(max(20, width - HELP_AT))
            return [
                line((f"  {shown_key(one, self.own):<{HELP_AT - 2}}", BP), first),
                *(line(" " * HELP_AT, more) for more in rest),
            ]

        out: list[Content | str] = []
        for group, actions in groups().items():
            out += [line((group, B)), *(part for action in actions for part in row(action)), ""]
        out.append(line(label("Keys can be changed in the configuration, under [keys]. Colours and signs:")))
        out.append(
            line(
                ("✓", "$success"),
                label(" well  "),
                ("▲", W),
                label(" look here  "),
                ("✗", E),
                label(" failed  "),
                label("— not known  ▒ memory from others"),
            )
        )
        return rows(*out)

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog") as box:
            box.border_title = "Keys"
            box.border_subtitle = "esc closes"
            with VerticalScroll():
                yield Static(self.told())

    def on_resize(self) -> None:
        self.call_after_refresh(self._fit)

    def _fit(self) -> None:
        for told in self.query(Static):
            if told.size.width:
                told.update(self.told(told.size.width))

    def action_close(self) -> None:
        self.dismiss()
