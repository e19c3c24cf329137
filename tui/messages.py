"""What screens and widgets ask of the app, which alone opens connections and runs services; see `tui.panes` for the other way."""

from dataclasses import dataclass

from textual.message import Message


class Request(Message):
    """The app is asked for something: each of its controllers takes the requests that it knows."""


class ScreenFurnished(Message):
    """The main screen is painted and has all its parts: now there is somewhere to show what comes."""


@dataclass
class PromptSubmitted(Request):
    """The user sent a prompt to the model."""

    text: str


class GenerationStopped(Request):
    """The user wants the reply that streams now to end, on the server too."""


class ConversationCleared(Request):
    """The user starts a new conversation."""


@dataclass
class SystemPromptChanged(Request):
    """The user set the system prompt of the conversation ("" for none)."""

    text: str


class SmokeRequested(Request):
    """The user wants the smoke prompts to run."""


class SmokeStopped(Request):
    """The user wants the smoke run to end."""


@dataclass
class BenchmarkRequested(Request):
    """The user wants a benchmark."""

    kind: str
    """"single" or "sweep"."""


class BenchmarkStopped(Request):
    """The user wants the running benchmark to end, with every request of it."""


class RunsShown(Request):
    """The tab of the record was opened: its list should be the newest."""


@dataclass
class RunOpened(Request):
    """The user opened a recorded run."""

    run: str


@dataclass
class CompareRequested(Request):
    """The user wants two recorded runs side by side.

    `first` None is the newest benchmark of the deployment on the screen, `second` None the newest of the same kind before it.
    """

    first: str | None = None
    second: str | None = None


@dataclass
class ReportRequested(Request):
    """The user wants a recorded run as a report file; None is the load on the screen."""

    run: str | None = None


class RetryRequested(Request):
    """The user wants the next connection attempt now."""


@dataclass
class OverviewShown(Request):
    """All deployments are on the screen: all of them should be watched."""


@dataclass
class OverviewLeft(Request):
    """The user goes back to the deployment that was open before."""


@dataclass
class DeploymentChosen(Request):
    """The user opens one of the configured deployments."""

    name: str


@dataclass
class GpuOpened(Message):
    """The user wants the details of one GPU; `host` names it if a deployment has several hosts."""

    index: int
    host: str = ""


@dataclass
class TextCopied(Message):
    """Text to put into the terminal's clipboard; `what` names it for the toast."""

    text: str
    what: str
