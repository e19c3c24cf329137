"""What the user can do on the main screen, in one table: footer, help, command palette and the README's keys come from it."""

import difflib
import re
from collections.abc import Iterable, Mapping
from functools import cache

from msgspec import Struct
from textual.binding import Binding
from textual.keys import KEY_NAME_REPLACEMENTS, Keys, key_to_character

from tui.panes import EVERYWHERE, TAB

MODIFIERS = frozenset({"ctrl", "shift", "alt", "super", "hyper", "meta"})
SENT = frozenset(key.value for key in Keys if not key.value.startswith("<")) - {"return", "ctrl-at"}
"""Keys that are no characters, alone and with modifiers; the two that are left out are names that nothing sends."""
SHORT_NAMES = {short: key_to_character(long) for long, short in KEY_NAME_REPLACEMENTS.items()}
"""Characters whose key Textual calls by a name of its own: `slash` for `/`."""


@cache
def typed_by(key: str) -> str | None:
    """Return the character that a key types: `q`, `?` by question_mark; None for `f5`, `enter`, `ctrl+t`."""
    if len(key) > 1 and "+" in key:
        return None
    character = key if len(key) == 1 else SHORT_NAMES.get(key) or key_to_character(key)
    if character is None or not character.isprintable() or key_name(character) != key_name(key):
        return None  # its Unicode name, say, by which no key is known
    return character


def is_key(name: str) -> bool:
    """Return whether a terminal can send a key that Textual calls so: `q`, `?`, `question_mark`, `f5`, `ctrl+t`.

    Those of modern terminals count, too: `ctrl+1`, `alt+ctrl+x`. With shift a character is another one: `shift+q` comes as `Q`.
    """
    *modifiers, base = name.split("+") if name != "+" else [name]
    if modifiers != sorted(MODIFIERS.intersection(modifiers)):  # in this order they come
        return False
    if name in SENT or base in SENT:
        return True
    if typed_by(base) is None:
        return False
    return not modifiers or (modifiers != ["shift"] and base == base.lower())


def key_name(key: str) -> str:
    """Return the one name of a key that may be written as its character: `?` is `question_mark`."""
    if key in (",", " "):
        return {",": "comma", " ": "space"}[key]  # between two keys these are no keys
    return next(iter(Binding.make_bindings([(key, "", "")]))).key if len(key) == 1 else key


def like(key: str) -> str:
    """Return what to write in place of a key that does not exist, to follow its name in a message."""
    *modifiers, base = key.split("+")
    meant = base.upper() if modifiers == ["shift"] else "+".join([*sorted(map(str.lower, modifiers)), base.lower()])
    near = [meant] if is_key(meant) else difflib.get_close_matches(key, SENT | SHORT_NAMES.keys(), 1)
    return f"; did you mean {near[0]!r}?" if near else ": write it as in q, f5, ctrl+t, enter, question_mark"


OF_THE_APP = frozenset({"retry", "copy_cause", "load_report", "keep", "servers", "deployments", "look", "commands", "help", "quit"})
"""These are done by the app, the others by the screen."""


class Action(Struct, frozen=True):
    """One thing to do. `id` is also the name of the key in the configuration's [keys]."""

    id: str
    keys: str
    """Textual's names, alternatives with commas."""
    shown: str
    """The key as the footer writes it."""
    text: str
    """One or two words, for the footer."""
    help: str
    """Another action's id in braces stands for that one's key; see `help_of`."""
    group: str
    tabs: frozenset[str] = frozenset()
    """Tabs in whose footer it stands."""
    palette: bool = True
    bound: bool = True
    """False if a widget handles the key itself."""
    needs: str = ""
    """What must be so for it to work; see `screens.availability`."""
    argument: str = ""

    @property
    def action(self) -> str:
        """Return the name of the action method, with its argument: the screen's, or the app's."""
        if self.id in OF_THE_APP:
            return f"app.{self.id}"
        return f"{self.id.partition('-')[0]}({self.argument!r})" if self.argument else self.id


ACTIONS: tuple[Action, ...] = (
    *(
        Action(f"show-{pane.id}", pane.key, pane.key, pane.title, pane.help, "Navigation", argument=pane.id)
        for pane in TAB.values()
    ),
    Action(
        "send",
        "enter",
        "enter",
        "send",
        "Send the prompt; ctrl+j starts a new line",
        "Chat",
        frozenset({"chat"}),
        palette=False,
        bound=False,
        needs="typing",
    ),
    Action(
        "type",
        "enter",
        "enter",
        "type",
        "Focus the prompt to type; {leave} leaves it",
        "Chat",
        frozenset({"chat"}),
        palette=False,
        needs="prompt",
    ),
    Action(
        "leave",
        "escape",
        "esc",
        "leave",
        "Leave the prompt or the filter; stop the reply or the smoke run",
        "Chat",
        frozenset({"chat"}),
        palette=False,
        needs="leave",
    ),
    Action(
        "log_there",
        "l",
        "l",
        "show in log",
        "Show the cause of the failure in the log",
        "Load",
        frozenset({"load"}),
        needs="failed",
    ),
    Action(
        "copy_cause",
        "y",
        "y",
        "copy cause",
        "Copy the cause of the failure to the clipboard",
        "Load",
        frozenset({"load"}),
        needs="failed",
    ),
    Action(
        "load_report",
        "i",
        "i",
        "report",
        "Show the load as a report: verdict, cause, advice, timeline, facts",
        "Load",
        frozenset({"load"}),
        needs="load",
    ),
    Action("retry", "r", "r", "try now", "Retry the connection now", "Connection", EVERYWHERE, needs="offline"),
    Action("find", "slash", "/", "find", "Filter the log; {leave} clears the filter", "Log", frozenset({"load", "log"})),
    Action("follow", "f", "f", "follow", "Follow the end of the log, or pause", "Log", frozenset({"log"}), needs="log"),
    Action(
        "smoke", "f5", "f5", "smoke", "Send the smoke prompts and judge the replies", "Tests", frozenset({"chat"}), needs="ready"
    ),
    Action(
        "bench-single",
        "f6",
        "f6",
        "single",
        "Benchmark with a single stream",
        "Tests",
        frozenset({"chat", "bench"}),
        needs="bench",
        argument="single",
    ),
    Action(
        "bench-sweep",
        "f7",
        "f7",
        "sweep",
        "Benchmark with increasing concurrency",
        "Tests",
        frozenset({"chat", "bench"}),
        needs="bench",
        argument="sweep",
    ),
    Action(
        "stop",
        "f8",
        "f8",
        "stop",
        "Stop the reply, the smoke run or the benchmark",
        "Tests",
        frozenset({"chat", "bench"}),
        needs="busy",
    ),
    Action("thoughts", "f9", "f9", "thoughts", "Show or hide the model's reasoning", "Chat", frozenset({"chat"})),
    Action("new_chat", "ctrl+n", "^n", "new chat", "Start a new conversation", "Chat"),
    Action("system_prompt", "f3", "f3", "system prompt", "Set the system prompt", "Chat"),
    Action("copy_reply", "f4", "f4", "copy reply", "Copy the last reply to the clipboard", "Chat"),
    Action(
        "compare",
        "c",
        "c",
        "compare",
        "Compare this run with the one before it",
        "Runs",
        frozenset({"bench", "runs"}),
        needs="benchmark",
    ),
    Action(
        "export",
        "e",
        "e",
        "export",
        "Write a report of this load or run to a file",
        "Runs",
        frozenset({"load", "runs"}),
        needs="settled",
    ),
    Action(
        "gpu_order",
        "s",
        "s",
        "sort",
        "Sort the GPUs by number, memory, utilisation, temperature or power",
        "GPUs",
        frozenset({"gpus"}),
        needs="gpus",
    ),
    Action(
        "gpu_kind",
        "o",
        "o",
        "only",
        "Show all GPUs, those in use, or those with findings",
        "GPUs",
        frozenset({"gpus"}),
        needs="gpus",
    ),
    Action(
        "zoom",
        "z",
        "z",
        "zoom",
        "Zoom the focused pane to the whole screen, and back",
        "Screen",
        frozenset({"load", "gpus", "log"}),
    ),
    Action(
        "deployments",
        "d",
        "d",
        "deployments",
        "Show all configured deployments, worst first; {overview-back} goes back",
        "Navigation",
        EVERYWHERE,
        needs="several",
    ),
    Action("overview-open", "enter", "enter", "open", "Open the selected deployment", "Deployments", palette=False, bound=False),
    Action("overview-filter", "slash", "/", "filter", "Filter the list of deployments", "Deployments", palette=False, bound=False),
    Action(
        "overview-sort",
        "s",
        "s",
        "sort",
        "Sort worst first, by name, by host or as configured",
        "Deployments",
        palette=False,
        bound=False,
    ),
    Action("overview-back", "escape", "esc", "back", "Go back to the open deployment", "Deployments", palette=False, bound=False),
    Action(
        "servers",
        "v",
        "v",
        "servers",
        "Choose which of this host's servers to watch",
        "Navigation",
        EVERYWHERE,
        needs="servers",
    ),
    Action(
        "keep",
        "w",
        "w",
        "keep",
        "Save the server found here in the configuration, under a name you choose",
        "Navigation",
        frozenset({"load"}),
        needs="unkept",
    ),
    Action("look", "ctrl+t", "^t", "theme", "Next theme: dark, light, 16 colours, 16 colours on a light background", "Screen"),
    Action("commands", "ctrl+p", "^p", "commands", "Search all commands", "Screen", EVERYWHERE, palette=False),
    Action("help", "question_mark", "?", "help", "Show the keys", "Screen", EVERYWHERE),
    Action("quit", "q", "q", "quit", "Quit; nothing on the host changes", "Screen", EVERYWHERE),
)
BY_ID = {action.id: action for action in ACTIONS}
BY_CALL = {action.action: action for action in ACTIONS if action.bound}
"""By what a key or the palette calls."""
OVERVIEW_TOO = ("retry", "deployments", "look", "commands", "help", "quit")
"""What the screen of all deployments does, too; `deployments` leads back from there."""
NO_KEYS: Mapping[str, str] = {}


def binding(action: Action, calls: str = "") -> Binding:
    """Return a binding that follows the user's own keys by its id; `calls` is what it does on another screen than the main one."""
    return Binding(action.keys, calls or action.action, action.text, show=False, id=action.id, tooltip=help_of(action, NO_KEYS))


def bindings(own: Mapping[str, str] = NO_KEYS) -> list[Binding]:
    """Return the main screen's bindings; `own` is the user's [keys].

    Keys that don't type anything go before the focused widget's own: a TextArea takes f6 and f7 for itself. Only what is left is
    the widget's first: it may be inside of something itself. The user's keys are in
    here, and not put into Textual's keymap: there a key has the precedence of the one whose place it takes, and an action whose
    usual key types a character could not be had by its own one while a text is typed.
    """
    return [
        Binding(
            key,
            action.action,
            action.text,
            show=False,
            tooltip=help_of(action, own),
            priority=action.id != "leave" and _goes_first(key),
        )
        for action in ACTIONS
        if action.bound
        for key in map(str.strip, own.get(action.id, action.keys).split(","))
    ]


def _goes_first(key: str) -> bool:
    return (key[0] == "f" and key[1:].isdigit()) or key.startswith(("ctrl+", "alt+"))


def shown_key(action: Action, own: Mapping[str, str]) -> str:
    """Return the key to write in footer and help; `own` is the user's [keys]."""
    if action.id not in own:
        return action.shown
    key = own[action.id].partition(",")[0].strip()
    return "esc" if key == "escape" else "space" if key == "space" else typed_by(key) or key.replace("ctrl+", "^")


def help_of(action: Action, own: Mapping[str, str]) -> str:
    """Return what the action does, with the user's keys in it if it names others."""
    return re.sub(r"\{([\w-]+)\}", lambda found: shown_key(BY_ID[found[1]], own), action.help)


def types_text(action: Action, own: Mapping[str, str] | None = None) -> bool:
    """Return whether the key would be typed into a focused prompt."""
    return typed_by((own or {}).get(action.id, action.keys).partition(",")[0].strip()) is not None


def in_footer(tab: str) -> list[Action]:
    """Return the actions of the footer on that tab, the most special ones first."""
    return [action for action in ACTIONS if tab in action.tabs]


def groups(actions: Iterable[Action] = ACTIONS) -> dict[str, list[Action]]:
    """Return the actions by group, in the order of the table."""
    out: dict[str, list[Action]] = {}
    for action in actions:
        out.setdefault(action.group, []).append(action)
    return out


def markdown_table() -> str:
    """Return the table of keys as the README has it."""
    lines = ["| key | does |", "| --- | --- |"]
    lines += [f"| `{action.shown}` | {help_of(action, NO_KEYS)} |" for action in ACTIONS]
    return "\n".join(lines)


def key_problems(keys: Mapping[str, str]) -> list[str]:
    """Return what is wrong with the configuration's [keys], one `key: reason` each: no such action or key, one key for two."""
    known = {action.id: action for action in ACTIONS if action.bound}
    problems = []
    for name, key in keys.items():
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            problems.append(f"keys.{name}: there is no such action" + (f"; did you mean {near[0]!r}?" if near else ""))
        elif not key.strip():
            problems.append(f"keys.{name}: must name a key, such as {known[name].keys.partition(',')[0]!r}")
        else:
            unknown = [part.strip() for part in key.split(",") if not is_key(part.strip())]
            problems += [f"keys.{name}: there is no key {part!r}{like(part)}" for part in unknown if part]
            if "" in unknown:
                problems.append(f"keys.{name}: a comma separates two keys; the comma key itself is called 'comma'")
    taken: dict[str, str] = {}
    for name, action in known.items():
        for key in keys.get(name, action.keys).split(","):
            if not key.strip():
                continue
            other = taken.setdefault(key_name(key.strip()), name)
            if other != name and keys.keys() & {name, other}:
                where = name if name in keys else other
                problems.append(f"keys.{where}: {key.strip()!r} is the key of {other!r} and of {name!r}")
    there = {key: action.id for action in ACTIONS if action.group == "Deployments" for key in action.keys.split(",")}
    for name in OVERVIEW_TOO:
        for key in keys.get(name, "").split(","):
            clash = there.get(key_name(key.strip()))
            if clash is not None and not any(f"keys.{name}: " in problem for problem in problems):
                problems.append(f"keys.{name}: {key.strip()!r} is the key of {clash!r} on the screen of all deployments")
    return problems
