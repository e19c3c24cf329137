"""The configuration: the example is true, and every mistake is listed at once."""

import dataclasses
import json
import os
import threading
from pathlib import Path

import msgspec
import pytest
import tomli

from tui.actions import ACTIONS, BY_ID, is_key, key_problems, shown_key, types_text
from tui.settings import Deployment, EngineSettings, Expect, Settings, SettingsError, load_settings, parse_settings, redacted

EXAMPLE = Path(__file__).parents[2] / "config.toml.example"


def test_the_example_is_valid() -> None:
    settings = load_settings(EXAMPLE)
    assert settings.default == "kimi"
    assert settings.deployments["kimi"].engines[0].log == "file:/var/log/vllm.log"


def test_the_example_shows_every_key_with_its_default() -> None:
    text = EXAMPLE.read_text()
    document = tomli.loads(text)
    for kind in (Settings, Deployment, EngineSettings, Expect):
        for field in msgspec.structs.fields(kind):
            assert f"{field.encode_name} = " in text or f"{field.encode_name}]" in text or f"[{field.encode_name}." in text, (
                f"{kind.__name__}.{field.encode_name}"
            )
    for section in ("smoke", "bench", "ui"):
        defaults = msgspec.to_builtins(getattr(Settings(), section))
        assert document[section] == defaults


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        ("[ui]\ntheem = 'dark'", ["ui.theem: no such key; did you mean 'theme'?"]),
        (
            "[ui]\ngpu_hz = 'fast'\nascii = 1",
            ['ui.gpu_hz: must be a finite number, not "fast"', "ui.ascii: must be true or false, not 1"],
        ),
        ("[ui]\ngpu_hz = 50", ["ui.gpu_hz: must be between 0.2 and 10 samples a second, not 50"]),
        ("default = 'x'", ["default: there is no deployment 'x' (none is configured)"]),
        ("deployments = 3", ["deployments: must be a table, not 3"]),
        ("[deployments.a]\nengines = 3", ["deployments.a.engines: must be a list of tables ([[deployments.a.engines]]), not 3"]),
        (
            "[deployments.a]\napi = 'gpu-box:8000'",
            ["deployments.a.api: must be a URL such as \"http://127.0.0.1:8000\", not 'gpu-box:8000'"],
        ),
        (
            "[deployments.a]\napi_key_env = 'sk-123'",
            ["deployments.a.api_key_env: must be the name of an environment variable, not the key itself"],
        ),
        (
            "[[deployments.a.engines]]\nlog = '/var/log/x'\ngpus = 'some'",
            [
                "deployments.a.engines[0].log: must be auto, none or one of file:… journal:… docker:… podman:… compose:… kubectl:…"
                " tmux:… command:…, not '/var/log/x'",
                'deployments.a.engines[0].gpus: must be "all", indices such as "0-3,6" or UUIDs, not \'some\'',
            ],
        ),
        (
            "[deployments.a]\napi = 'http://box:8000/v1?api_key=geheim'",
            [
                "deployments.a.api: must be a URL that ends with its path, not 'http://box:8000/v1' and more: a query"
                " string is not sent with requests: give a key by api_key_env or headers"
            ],
        ),
        (
            '[deployments.a.headers]\nX-A = "geheim\\nEvil: yes"\n"X B" = "c"',
            [
                "deployments.a.headers.X-A: its value has a line break or a NUL, which no header may have",
                "deployments.a.headers.X B: that is no name of a header",
            ],
        ),
        ("[bench]\noutput_tokens = 10_000_001", ["bench.output_tokens: must be 10,000,000 at most"]),
        ("[bench]\nsweep_top = 65_537", ["bench.sweep_top: must be 65,536 at most"]),
        ("[deployments.a.expect]\ngpus = 0", ["deployments.a.expect.gpus: must be above 0"]),
        ("x = [", ["not valid TOML: Invalid value (at end of document)"]),
        (f"x = {'[' * 5000}{']' * 5000}", ["its tables or lists are nested too deeply"]),
        (f"bench.input_tokens = {'9' * 5000}", ["a number in it has too many digits"]),
        (f"bench.input_tokens = 0x{'f' * 5000}", ["bench.input_tokens: must be a whole number, not one so large"]),
        (f"ui.theme = {'9' * 40}", ["ui.theme: must be a text in quotes, not one so large"]),
        (f"bench.min_seconds = {'9' * 400}", ["bench.min_seconds: must be a finite number, not one so large"]),
        ("bench.min_seconds = inf", ["bench.min_seconds: must be a finite number, not inf"]),
        ("bench.min_seconds = 86_401", ["bench.min_seconds: must be 86,400 at most"]),
        ("smoke.timeout_s = nan", ["smoke.timeout_s: must be a finite number, not nan"]),
        ("smoke.timeout_s = 1e9", ["smoke.timeout_s: must be 86,400 at most"]),
        ("ui.gpu_hz = -inf", ["ui.gpu_hz: must be a finite number, not -inf"]),
        (
            "[deployments.a.expect]\nload_minutes = nan\ntokens_per_s = inf",
            [
                "deployments.a.expect.load_minutes: must be a finite number, not nan",
                "deployments.a.expect.tokens_per_s: must be a finite number, not inf",
            ],
        ),
        *(
            (f'[deployments.a]\n{key} = "~a\\u0000b"', [f"deployments.a.{key}: must not have a NUL character in it"])
            for key in ("api", "ca_file", "api_key_command", "api_key_env", "model")
        ),
        (
            '[[deployments.a.engines]]\nlog = "file:/a\\u0000b"',
            ["deployments.a.engines[0].log: must not have a NUL character in it"],
        ),
    ],
)
def test_every_problem_is_named(text: str, problems: list[str]) -> None:
    with pytest.raises(SettingsError) as caught:
        parse_settings(text, Path("config.toml"))
    assert caught.value.problems == [f"config.toml: {problem}" for problem in problems]


def test_a_missing_file_that_was_asked_for_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="there is no such file"):
        load_settings(tmp_path / "nothing.toml")


def test_a_missing_default_file_means_the_defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("READYROOM_CONFIG", raising=False)
    assert load_settings() == Settings()


def test_secrets_are_hidden() -> None:
    settings = parse_settings(
        "[deployments.a]\napi = 'http://me:pw@h:1/x'\napi_key_command = 'pass vllm'\nheaders = { Authorization = 'Bearer abc' }",
        Path("c"),
    )
    shown = str(redacted(settings))
    assert not any(secret in shown for secret in ("pw", "pass vllm", "abc"))
    assert "h:1/x" in shown


def test_settings_are_frozen() -> None:
    with pytest.raises((AttributeError, dataclasses.FrozenInstanceError)):
        Settings().default = "x"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("keys", "problems"),
    [
        ({}, []),
        ({"bench-sweep": "f10"}, []),
        ({"bench-sweeep": "f10"}, ["keys.bench-sweeep: there is no such action; did you mean 'bench-sweep'?"]),
        ({"help": "q"}, ["keys.help: 'q' is the key of 'help' and of 'quit'"]),
        ({"show-load": "q"}, ["keys.show-load: 'q' is the key of 'show-load' and of 'quit'"]),
        ({"show-load": "?"}, ["keys.show-load: 'question_mark' is the key of 'show-load' and of 'help'"]),
        ({"help": "?"}, []),
        ({"smoke": "f5, ctrl+r", "zoom": "+", "find": "slash,comma", "help": "shift+tab"}, []),
        ({"quit": ""}, ["keys.quit: must name a key, such as 'q'"]),
        ({"help": " "}, ["keys.help: must name a key, such as 'question_mark'"]),
        ({"help": "notakey"}, ["keys.help: there is no key 'notakey': write it as in q, f5, ctrl+t, enter, question_mark"]),
        ({"help": "escap"}, ["keys.help: there is no key 'escap'; did you mean 'escape'?"]),
        ({"help": "ctlr+h"}, ["keys.help: there is no key 'ctlr+h'; did you mean 'ctrl+h'?"]),
        ({"zoom": "shift+q"}, ["keys.zoom: there is no key 'shift+q'; did you mean 'Q'?"]),
        ({"zoom": "Ctrl+G"}, ["keys.zoom: there is no key 'Ctrl+G'; did you mean 'ctrl+g'?"]),
        ({"zoom": "shift+ctrl+x"}, ["keys.zoom: there is no key 'shift+ctrl+x'; did you mean 'ctrl+shift+x'?"]),
        ({"gpu_order": "x", "help": "s"}, ["keys.help: 's' is the key of 'overview-sort' on the screen of all deployments"]),
        ({"find": "x", "retry": "/"}, ["keys.retry: '/' is the key of 'overview-filter' on the screen of all deployments"]),
        ({"smoke": "f5,"}, ["keys.smoke: a comma separates two keys; the comma key itself is called 'comma'"]),
        (
            {"quit": "", "help": "f99", "zoom": "1"},
            [
                "keys.quit: must name a key, such as 'q'",
                "keys.help: there is no key 'f99'; did you mean 'f9'?",
                "keys.zoom: '1' is the key of 'show-load' and of 'zoom'",
            ],
        ),
    ],
)
def test_keys_name_actions_and_are_used_once(keys: dict[str, str], problems: list[str]) -> None:
    assert key_problems(keys) == problems


def test_every_key_of_the_table_is_one() -> None:
    assert all(is_key(key) for action in ACTIONS for key in action.keys.split(","))


@pytest.mark.parametrize(
    ("key", "sent", "types", "shown"),
    [
        ("q", True, True, "q"),
        ("Q", True, True, "Q"),
        ("ä", True, True, "ä"),
        ("?", True, True, "?"),
        ("question_mark", True, True, "?"),
        ("plus", True, True, "+"),
        ("+", True, True, "+"),
        ("minus", True, True, "-"),
        ("comma", True, True, ","),
        ("full_stop", True, True, "."),
        ("space", True, True, "space"),
        ("escape", True, False, "esc"),
        ("tab", True, False, "tab"),
        ("f5", True, False, "f5"),
        ("ctrl+t", True, False, "^t"),
        ("ctrl+1", True, False, "^1"),  # by terminals with kitty's protocol
        ("ctrl+plus", True, False, "^plus"),
        ("alt+x", True, False, "alt+x"),
        ("shift+f5", True, False, "shift+f5"),
        ("ctrl+shift+x", True, False, "^shift+x"),
        ("shift+q", False, False, "shift+q"),  # comes as Q
        ("ctrl+Q", False, False, "^Q"),  # comes as ctrl+q
        ("shift+ctrl+x", False, False, "shift+^x"),  # comes as ctrl+shift+x
        ("return", False, False, "return"),  # comes as enter
        ("solidus", False, False, "solidus"),  # comes as slash
        ("ctrl+", False, False, "^"),
    ],
)
def test_what_a_key_is(key: str, sent: bool, types: bool, shown: str) -> None:
    assert is_key(key) is sent
    assert types_text(BY_ID["zoom"], {"zoom": key}) is types
    assert shown_key(BY_ID["zoom"], {"zoom": key}) == shown


@pytest.mark.parametrize(
    ("host", "problem"),
    [
        ("local", ""),
        ("me@gpu-box:2222", ""),
        ("[2001:db8::1]:22", ""),
        ("exec:docker exec -i vllm", ""),
        ("-oProxyCommand=touch /tmp/pwn", "is not a host"),
        ("me@-oProxyCommand=x", "is not a host"),
        ("-x@box", "no valid user name"),
        ("two words", "is not a host"),
        ("box:notaport", "the port must be a number"),
        ("box\nother", "is not a host"),
        ("@box", "no user before the @"),
        ("exec:", "needs a command"),
        ("exec:docker 'exec", "can't be split"),
        (" ", "must name a host"),
    ],
)
def test_a_host_that_is_none_is_a_problem(host: str, problem: str) -> None:
    text = f"[deployments.a]\n[[deployments.a.engines]]\nhost = {json.dumps(host)}\n"
    if not problem:
        parse_settings(text, Path("c.toml"))
        return
    with pytest.raises(SettingsError) as caught:
        parse_settings(text, Path("c.toml"))
    (said,) = caught.value.problems
    assert said.startswith("c.toml: deployments.a.engines[0].host: ")
    assert problem in said


def test_the_file_of_authorities_lies_at_home_and_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    text = '[deployments.k]\nca_file = "~/ca.pem"'
    with pytest.raises(SettingsError) as caught:
        parse_settings(text, Path("c.toml"))
    assert caught.value.problems == [f"c.toml: deployments.k.ca_file: {tmp_path}/ca.pem can't be read: No such file or directory"]
    (tmp_path / "ca.pem").write_text("")
    assert parse_settings(text, Path("c.toml")).deployments["k"].ca_file == f"{tmp_path}/ca.pem"


def test_a_mistaken_address_is_named_without_its_password() -> None:
    with pytest.raises(SettingsError) as caught:
        parse_settings('[deployments.k]\napi = "ftp://me:geheim@gpu-box"', Path("c.toml"))
    assert "ftp://gpu-box" in str(caught.value)
    assert "geheim" not in str(caught.value)


def test_types_and_meanings_are_told_at_once() -> None:
    text = """
default = "b"
[deployments.a]
api = "ftp://x"
modell = "m"
[[deployments.a.engines]]
host = 3
log = "what"
[[deployments.a.engines]]
gpus = "zero"
[ui]
theme = "pink"
gpu_hz = "fast"
[keys]
zoom = "q"
"""
    with pytest.raises(SettingsError) as caught:
        parse_settings(text, Path("c.toml"))
    told = [problem.removeprefix("c.toml: ").partition(": ")[0] for problem in caught.value.problems]
    assert told == [
        "deployments.a.modell",
        "deployments.a.engines[0].host",
        "ui.gpu_hz",
        "default",
        "deployments.a.api",
        "deployments.a.engines[0].log",
        "deployments.a.engines[1].gpus",
        "ui.theme",
    ]
    assert caught.value.fitting is not None
    assert caught.value.fitting.keys == {"zoom": "q"}


def test_a_default_that_does_not_fit_itself_is_not_called_missing() -> None:
    with pytest.raises(SettingsError) as caught:
        parse_settings('default = "b"\n[deployments]\nb = 4\n', Path("c.toml"))
    assert [problem.partition(" must")[0] for problem in caught.value.problems] == ["c.toml: deployments.b:"]


SECRETS = [
    'headers = "Authorization: Bearer SEKRET"',
    'headers = ["SEKRET"]',
    'headers = { Authorization = ["SEKRET"] }',
    'headers = { X-A = "SEKRET模" }',
    'headers = { X-A = "SEKRET\\u0001" }',
    'api_key_command = ["SEKRET"]',
    "api_key_env = 12345671",
    'api = ["http://me:SEKRET@box"]',
    'api = "http://box:8000\\r\\nX: SEKRET"',
    'api = "unix:SEKRET"',
    'headers = { X-A = "SEKRET\\u0000" }',
    'headers = { X-A = { X-B = "SEKRET" } }',
    'api_key_command = { command = "SEKRET" }',
]


@pytest.mark.parametrize("line", SECRETS)
def test_no_problem_repeats_what_may_be_secret(tmp_path: Path, line: str) -> None:
    file = tmp_path / "config.toml"
    file.write_text(f'[deployments.a]\n{line}\n[[deployments.a.engines]]\nhost = "local"\nlog = "none"\n')
    with pytest.raises(SettingsError) as caught:
        load_settings(file)
    assert "SEKRET" not in str(caught.value)
    assert "1234567" not in str(caught.value)


def test_a_pipe_is_read_like_a_file_and_waited_for_a_limited_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in `--config <(make-config)`."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    monkeypatch.setattr("tui.settings.PATIENCE_S", 0.4)
    with pytest.raises(SettingsError, match="it is a pipe, and nothing more came out of it within 0 s"):
        load_settings(pipe)
    writer = threading.Thread(target=pipe.write_text, args=('default = "a"\n[deployments.a]\n',))
    writer.start()
    assert load_settings(pipe).default == "a"
    writer.join()
