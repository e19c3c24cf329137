"""What widgets tell the app. A widget posts one of these; only the app opens connections and runs services.

Panes are given their values by the screen (assigning their `var`s) and never fetch anything themselves:

    ChatPane    conversation: Conversation (the last turn grows while it streams) · streaming: bool · model: str | None ·
                ready: bool (the API takes prompts) · reason: str (why it doesn't, "" when it does)
    SmokePanel  run: SmokeRun | None · running: bool
    BenchPane   points: tuple[Point, ...] · progress: Progress | None · plan: Plan | None · result: Result | None ·
                running: bool · problem: str | None · previous: Result | None (what to compare with)
    RunsPane    runs: tuple (as the record lists them) · opened: the run that is shown below the list, or None ·
                result: Result | None (the benchmark in it) · compared: Compared | None (two benchmarks, in its place)
"""

from dataclasses import dataclass

from textual.message import Message


class ScreenFurnished(Message):
    """The main screen is painted and has all its parts: now there is somewhere to show what comes."""


@dataclass
class PromptSubmitted(Message):
    """The user sent a prompt to the model."""

    text: str


class GenerationStopped(Message):
    """The user wants the reply that streams now to end, on the server too."""


class ConversationCleared(Message):
    """The user starts a new conversation."""


@dataclass
class SystemPromptChanged(Message):
    """The user set the system prompt of the conversation ("" for none)."""

    text: str


class SmokeRequested(Message):
    """The user wants the smoke prompts to run."""


class SmokeStopped(Message):
    """The user wants the smoke run to end."""


@dataclass
class BenchmarkRequested(Message):
    """The user wants a benchmark."""

    kind: str
    """"single" or "sweep"."""


class BenchmarkStopped(Message):
    """The user wants the running benchmark to end, with every request of it."""


class RunsShown(Message):
    """The tab of the record was opened: its list should be the newest."""


@dataclass
class RunOpened(Message):
    """The user opened a recorded run."""

    run: str


@dataclass
class CompareRequested(Message):
    """The user wants two recorded runs side by side; `second` None is the newest run of the same kind before the first."""

    first: str
    second: str | None = None


@dataclass
class ReportRequested(Message):
    """The user wants a recorded run as a report file; None is the load on the screen."""

    run: str | None = None


class RetryRequested(Message):
    """The user wants the next connection attempt now."""


@dataclass
class OverviewShown(Message):
    """All deployments are on the screen: all of them should be watched."""


@dataclass
class OverviewLeft(Message):
    """The user goes back to the deployment that was open before."""


@dataclass
class DeploymentChosen(Message):
    """The user opens one of the configured deployments."""

    name: str


@dataclass
class GpuOpened(Message):
    """The user wants the details of one GPU; `host` names it where a deployment has several hosts."""

    index: int
    host: str = ""


@dataclass
class TextCopied(Message):
    """Text to put into the terminal's clipboard; `what` names it for the toast."""

    text: str
    what: str
