"""The chat: turns above, the prompt below. It shows the conversation that it is given and posts what the user wants."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.events import MouseScrollDown
from textual.message import Message
from textual.reactive import var
from textual.widgets import Static, TextArea

from tui.actions import BY_ID, binding
from tui.core.conversation import Conversation
from tui.core.presentation import counted
from tui.core.smoke_prompts import SmokeRun
from tui.messages import ConversationCleared, GenerationStopped, PromptSubmitted, SystemPromptChanged, TextCopied
from tui.widgets.draw import B, W, label, line, middle
from tui.widgets.key_bar import key_of
from tui.widgets.smoke_panel import SmokeStrip

if TYPE_CHECKING:
    from tui.widgets.turn_view import TurnView


HISTORY = 200


class Prompt(TextArea):
    """Grows with its text up to a third of the screen. Nothing is taken away from the user: what can't be sent now stays."""

    DEFAULT_CSS = """
    Prompt {
        height: auto; min-height: 3; max-height: 33vh; border: round $rule; background: $background; padding: 0 1;
        scrollbar-size: 0 1; border-title-color: $foreground; border-subtitle-color: $foreground;
    }
    Prompt:focus { border: round $primary; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+j", "new_line", "new line", show=False)]

    @dataclass
    class Entered(Message):
        """The user pressed enter; the prompt keeps its text until `clear` or `sent`."""

        text: str

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__("", id=id, show_line_numbers=False, highlight_cursor_line=False, soft_wrap=True, tab_behavior="focus")
        self.cursor_blink = False  # at the end of a slow link even that is traffic, and it wakes the screen twice a second
        self._sent: list[str] = []
        self._place = 0
        """Where in the history the text shown stands; its length means the draft."""
        self._draft = ""

    async def _on_key(self, event: events.Key) -> None:
        if event.key == "enter":
            event.stop()
            event.prevent_default()
            if self.text.strip():
                self.post_message(self.Entered(self.text.strip("\n")))
            return
        if event.key == "up" and self.cursor_location[0] == 0 and self._walk(-1):
            event.stop()
            event.prevent_default()
            return
        if event.key == "down" and self.cursor_location[0] == self.document.line_count - 1 and self._walk(1):
            event.stop()
            event.prevent_default()
            return
        await super()._on_key(event)

    def action_new_line(self) -> None:
        self.insert("\n")

    def sent(self, text: str) -> None:
        """Add the sent text to the history as its newest entry, and empty the prompt."""
        if not self._sent or self._sent[-1] != text:
            self._sent = [*self._sent, text][-HISTORY:]
        self._place, self._draft = len(self._sent), ""
        self.text = ""

    def _walk(self, step: int) -> bool:
        """Show the previous or next entry; False at the ends, if the key keeps its usual meaning."""
        place = self._place + step
        if not 0 <= place <= len(self._sent):
            return False
        if self._place == len(self._sent):
            self._draft = self.text
        self._place = place
        self.text = self._draft if place == len(self._sent) else self._sent[place]
        self.move_cursor(self.document.end)
        return True


KEPT_TURNS = 60
"""Turns that stay on the screen; older ones are still sent to the model."""
TALL = 32
"""Rows of the screen from which there is air between a prompt and its reply."""
BROAD = 110
"""Columns of the screen from which the smoke run has a panel of its own beside the chat."""
NEAR = 2
"""Rows from the end within which the reader follows the text as it grows."""


class Turns(VerticalScroll):
    """Follows its end while text grows, unless the reader scrolled away from it."""

    DEFAULT_CSS = """
    Turns { height: 1fr; scrollbar-size: 0 1; scrollbar-color: $rule; scrollbar-background: $background; }
    """

    def follow_again_if_near(self) -> None:
        if self.max_scroll_y - self.scroll_y <= NEAR:
            self.anchor()

    def on_mouse_scroll_down(self, event: MouseScrollDown) -> None:
        self.call_after_refresh(self.follow_again_if_near)

    def action_scroll_down(self) -> None:
        super().action_scroll_down()
        self.call_after_refresh(self.follow_again_if_near)

    def action_page_down(self) -> None:
        super().action_page_down()
        self.set_timer(0.3, self.follow_again_if_near)  # paging is animated where animations are on

    def action_scroll_end(self) -> None:
        self.anchor()


class ChatPane(Vertical):
    """`reason` says why nothing can be sent now ("" when it can); typing is always allowed."""

    DEFAULT_CSS = """
    ChatPane { height: 1fr; }
    ChatPane > #chat-system { height: auto; max-height: 3; padding: 0 1; }
    ChatPane > #chat-empty { height: 1fr; padding: 1 2; }
    ChatPane.-talking > #chat-empty { display: none; }
    ChatPane > Turns { display: none; }
    ChatPane.-talking > Turns { display: block; }
    ChatPane.-alone.-smoked > SmokeStrip { display: block; margin: 0 1; }
    ChatPane.-tight TurnView > Markdown { margin: 0; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        binding(BY_ID["leave"], "stop_or_leave"),
        Binding("pageup", "page(-1)", "earlier", show=False),
        Binding("pagedown", "page(1)", "later", show=False),
        Binding("ctrl+end", "end", "end", show=False),
    ]

    conversation: var[Conversation] = var(Conversation(), init=False)
    streaming: var[bool] = var(False, init=False)
    model: var[str | None] = var(None, init=False)
    ready: var[bool] = var(False, init=False)
    reason: var[str] = var("", init=False)
    folded: var[bool] = var(True, init=False)
    smoke: var[SmokeRun | None] = var(None, init=False)
    smoking: var[bool] = var(False, init=False)

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._editing_system = False
        self._draft = ""
        self._refused = False

    def compose(self) -> ComposeResult:
        yield Static(id="chat-system", markup=False)
        yield Static(id="chat-empty", markup=False)
        yield Turns(can_focus=True)
        yield SmokeStrip(id="chat-smoke")
        yield Prompt(id="prompt")

    def on_mount(self) -> None:
        self._tell()
        self._show_system()

    def on_resize(self) -> None:
        width, height = self.app.size
        self.set_class(height < TALL, "-tight")
        self.set_class(height < TALL or width < BROAD, "-alone")
        self._tell()

    # -- values --------------------------------------------------------------------------------------------------------------------

    async def watch_conversation(self, before: Conversation, after: Conversation) -> None:
        """Give each view its turn; draw a different conversation anew."""
        if not before.turns and not after.turns:
            self._show_system()
            return
        from tui.widgets.turn_view import TurnView

        turns = self.query_one(Turns)
        self.set_class(bool(after.turns), "-talking")
        if before.system != after.system:
            self._show_system()
        views = list(turns.query(TurnView))
        shown = after.turns[-KEPT_TURNS:]
        shift = max(0, len(after.turns) - KEPT_TURNS) - max(0, len(before.turns) - KEPT_TURNS)
        other = len(after.turns) < len(before.turns) or any(
            old.asked != new.asked for old, new in zip(before.turns, after.turns, strict=False)
        )
        if other:
            await turns.remove_children(TurnView)
            views = []
        elif shift > 0:
            for old in views[:shift]:
                await old.remove()
            views = views[shift:]
        for view, turn in zip(views, shown, strict=False):
            if view.turn != turn:
                view.turn = turn
        new = [TurnView(turn, folded=self.folded) for turn in shown[len(views) :]]
        if new:
            await turns.mount(*new)
            turns.anchor()

    def watch_streaming(self) -> None:
        self._tell()

    def watch_model(self) -> None:
        self._tell()

    def watch_ready(self) -> None:
        self._refused = False
        self._tell()

    def watch_reason(self) -> None:
        self._tell()

    def on_descendant_focus(self) -> None:
        self._tell()

    def on_descendant_blur(self) -> None:
        self._tell()

    def watch_folded(self) -> None:
        for view in self._views():
            view.folded = self.folded

    def _views(self) -> "list[TurnView]":
        from tui.widgets.turn_view import TurnView

        return list(self.query(TurnView)) if self.conversation.turns else []

    def watch_smoke(self) -> None:
        self.query_one(SmokeStrip).run = self.smoke
        self.set_class(self.smoke is not None, "-smoked")

    def watch_smoking(self) -> None:
        self.query_one(SmokeStrip).running = self.smoking

    # -- words ---------------------------------------------------------------------------------------------------------------------

    @property
    def why(self) -> str:
        """Why enter does not send now."""
        if self._editing_system:
            return ""
        if self.streaming:
            return f"a reply is streaming: {key_of(self, 'leave')} stops it"
        return "" if self.ready else self.reason or "the model is not up yet"

    def _tell(self) -> None:
        if not self.is_mounted:
            return
        prompt = self.query_one(Prompt)
        why = self.why
        room = max(10, self.size.width - 8) if self.size.width else 60
        if self._editing_system:
            prompt.border_title = line(("system prompt", B), label(f"  enter keeps it, {key_of(self, 'leave')} leaves it"))
            prompt.border_subtitle = None
            prompt.placeholder = "You are …"
        else:
            prompt.border_title = None
            words = middle(f"not sent: {why}" if self._refused and why else why, room)
            prompt.border_subtitle = line((words, W) if self._refused or not self.streaming else label(words)) if why else None
            ask = f"Ask {middle(self.model, 40)}" if self.model else "Ask the model"
            prompt.placeholder = Content(ask if prompt.has_focus else f"{ask} ({key_of(self, 'type')}: type here)")
        self.query_one("#chat-empty", Static).update(self._welcome())

    def _welcome(self) -> Content:
        if self.ready:
            or_else = f" something, or press {key_of(self, 'smoke')} for the smoke prompts."
            return line(label("Ask "), (self.model or "the model", B), label(or_else))
        why = self.reason or "the model is not up yet"
        more = key_of(self, "show-load")
        return line(
            (why[:1].upper() + why[1:], B),
            label(f".\n{more} shows more. You can type a prompt now and send it once the server answers."),
        )

    def _show_system(self) -> None:
        shown = self.query_one("#chat-system", Static)
        system = self.conversation.system
        shown.display = bool(system)
        shown.update(line(label("system  "), Content(system)))

    # -- sending -------------------------------------------------------------------------------------------------------------------

    @on(Prompt.Entered)
    def _entered(self, entered: Prompt.Entered) -> None:
        entered.stop()
        if self._editing_system:
            self._leave_system(keep=True)
            return
        if self.why:
            self._refused = True
            self._tell()
            return
        self._refused = False
        self.query_one(Prompt).sent(entered.text)
        self.query_one(Turns).anchor()
        self.set_class(self.smoking, "-smoked")  # a finished run has been seen
        self.post_message(PromptSubmitted(entered.text))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "stop_or_leave":
            return self.streaming or self._editing_system  # else the screen's own escape
        return True

    def action_stop_or_leave(self) -> None:
        if self._editing_system:
            self._leave_system(keep=False)
        else:
            self.post_message(GenerationStopped())

    def action_page(self, step: int) -> None:
        turns = self.query_one(Turns)
        if step < 0:
            turns.scroll_page_up(animate=False)
        else:
            turns.scroll_page_down(animate=False)
            self.call_after_refresh(turns.follow_again_if_near)

    def action_end(self) -> None:
        self.query_one(Turns).anchor()

    # -- what the screen's keys call -----------------------------------------------------------------------------------------------

    def focus_prompt(self) -> None:
        self.query_one(Prompt).focus()

    def toggle_thoughts(self) -> None:
        """Show or fold the reasoning of all turns."""
        self.folded = not self.folded

    def clear_conversation(self) -> None:
        """Begin a new conversation after stopping the streaming reply; the system prompt stays."""
        if self.streaming:
            self.post_message(GenerationStopped())
        self.post_message(ConversationCleared())
        self.focus_prompt()

    def copy_reply(self) -> None:
        """Copy the last reply, as the model wrote it, to the terminal's clipboard (OSC 52)."""
        reply = next((turn.reply for turn in reversed(self.conversation.turns) if turn.reply.strip()), None)
        if reply is None:
            self.notify("There is no reply to copy yet.", markup=False)
            return
        self.post_message(TextCopied(reply, f"the reply, {counted(len(reply), 'character')}"))

    def edit_system(self) -> None:
        """Turn the prompt into the editor of the system prompt."""
        prompt = self.query_one(Prompt)
        if not self._editing_system:
            self._editing_system = True
            self._draft = prompt.text
            prompt.text = self.conversation.system
            prompt.move_cursor(prompt.document.end)
        prompt.focus()
        self._tell()

    def _leave_system(self, *, keep: bool) -> None:
        prompt = self.query_one(Prompt)
        text = prompt.text.strip()
        self._editing_system = False
        prompt.text, self._draft = self._draft, ""
        self._tell()
        if keep and text != self.conversation.system:
            self.post_message(SystemPromptChanged(text))
