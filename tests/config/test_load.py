"""The config file: every bad one is refused with an exact line, and the four places that settings come from."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.config.environment import CONFIG_VARIABLES, Override, from_text
from gpumon.config.errors import ConfigError
from gpumon.config.keymap import ALLOWED
from gpumon.config.load import MOST_CONFIG_BYTES, load
from gpumon.config.schema import Config, Endpoint, General, Model
from gpumon.config.themes import load_theme
from gpumon.readings.verdict import Limit
from tests.each_row import each_row

BAD = Path(__file__).parent / "bad"
SECRET = "hunter2"

SECTIONS = (
    "general, screen, levels, goals, prices, keys, endpoint, feed, model, gpu, discovery, dcgm, sizing, triage, "
    "recorder, alert, webhook, prometheus, host, fleet, exporter"
)

SECRET_URL = (
    "webhook[0].url: is a secret: put the whole URL into a file and name that as url_file, or "
    "name a variable as url_env"
)

CODES = tuple(limit.value for limit in Limit)
ALERT_WORDS = ", ".join(sorted((*set(CODES).difference(("healthy", "evaluating")), "critical", "note", "warn")))

MESSAGES = {
    "alert_command": '3: alert[0].command = [""]: must begin with the path or the name of a program',
    "alert_when": '2: alert[0].when = "engines.kv_usage > 0.9": it has no field kv_usage; known there (docs/json.md): '
    "kv_usage_ratio, host_kv_usage_ratio, age_s",
    "alert_word": f'2: alert[0].when = "kv_full": no verdict has this word; known: {ALERT_WORDS}'
    "; or write a figure with a limit such as "
    '"engines.kv_usage_ratio > 0.95"; after the first word [NAME] narrows it down: "engines[llama*].ttft_s.p95 > 2"',
    "webhook_kind": '2: webhook[0].kind = "teams": must be "alertmanager" or "json" or "pagerduty" or "slack"',
    "webhook_none": '2: webhook[0].kind = "json": needs one of url_file, url_env and url beside it',
    "webhook_pagerduty": '2: webhook[0].kind = "pagerduty": needs the routing key: give api_key_env or api_key_file',
    "webhook_secret": f"2: {SECRET_URL}",
    "webhook_query": f"2: {SECRET_URL}",
    "webhook_slack": "3: webhook[0].url: is a secret of Slack's: put it into a file and name that as url_file, or name "
    "a variable as url_env",
    "webhook_silence": "3: webhook[0].silence = [\"hungry\"]: 'hungry' has a code that no verdict has; known: "
    + ", ".join(sorted(("*", "alert", *CODES))),
    "webhook_two": "3: webhook[0].url_file: give one: url, url_env or url_file",
    "keys_unknown": "2: keys.zooom: unknown key; did you mean zoom?",
    "keys_unquoted": "2: keys.pane.nxet: unknown key; did you mean pane.next?",
    "keys_name": f'2: keys.zoom = "z, pgup": pgup is no key: {ALLOWED}',
    "keys_control": f'2: keys.zoom = "\\u001b": \\x1b is no key: {ALLOWED}',
    "keys_default_clash": '2: keys.zoom = "o": o is a key of sort as well, by default: give that other keys here, too',
    "keys_clash": '4: keys.sort = "y, x": x is a key of zoom as well',
    "keys_needed": '3: keys.quit = "": quit needs at least one key',
    "keys_ctrl_c": '2: keys.zoom = "z,Ctrl+C": ctrl+c always quits and can do nothing else',
    "keys_same_code": '2: keys.zoom = "ctrl+i": ctrl+i is what terminals send for tab: name that',
    "keys_shift": '2: keys.zoom = "shift+y": shift+y: write the character that it gives, such as G for shift+g',
    "keys_number": "2: keys.zoom = 3: must be text in quotes",
    "keys_no_table": '1: keys = "z": must be a table: [keys]',
    "keys_twice": "3: keys.pane.next: stands here twice",
    "levels": "3: levels.kv_critical = 0.4: must be at least kv_warn",
    "levels_default": "1: levels.temperature_critical_c: must be at least temperature_warn_c",
    "sizing_factor": "2: sizing.planning_factor = 0: must be a number above 0, at most 1",
    "sizing_gpu": "2: sizing.gpu = \"V100\": GPU type 'V100' is several, give the whole name: "
    "V100 SXM2 16GB, V100 SXM2 32GB, V100 PCIe 16GB, V100 PCIe 32GB",
    "sizing_packing": '2: sizing.packing = "tight": must be "busy" or "memory"',
    "price": '2: prices.by_type.L40S = "cheap": must be a number from 1e-06 to 1e+09',
    "price_bool": "2: prices.by_type.L40S = true: must be a number from 1e-06 to 1e+09",
    "price_negative": "2: prices.by_type.L40S = -1.0: must be a number from 1e-06 to 1e+09",
    "price_twice": "3: prices.by_type.H100 SXM5 80GB = 2.5: is the same GPU as H100 SXM 80GB",
    "price_unknown": "2: prices.by_type.H200: GPU type 'H200' is several, give the whole name: "
    "H200 SXM 141GB, H200 NVL 141GB",
    "prices_no_table": "2: prices.by_type = 2.5: must be a table: [by_type]",
    "prices_moved": "1: sizing.prices: is [prices.by_type] now: write the prices there",
    "price_moved": "2: sizing.price_per_gpu_hour: is gpu_hour of [prices] now: write the price there",
    "price_hours": '2: prices.kwh_hours.night: must be hours of the day, HH:MM-HH:MM, such as "22:00-06:00"',
    "price_hours_overlap": "3: prices.kwh_hours.05:00-07:00 = 0.1: overlaps with 22:00-06:00",
    "sizing_share": "2: sizing.usable_memory_ratio = 92: must be a number above 0, at most 1",
    "sizing_unknown": "2: sizing.packin: unknown key; did you mean packing?",
    "span": "2: screen.span_s = 30: must be a number from 60 to 7200",
    "dcgm_password": '2: dcgm.url = "http://***@node-7:9400": must hold no user or password: '
    "use api_key_env or api_key_file",
    "dcgm_tls": '4: dcgm.tls_ca = "/etc/ca.pem": has no use with tls_verify = false: leave one out',
    "glyphs": '2: screen.glyphs = "dots": must be "ascii" or "auto" or "blocks" or "braille"',
    "goal_zero": "2: goals.itl_p95_ms = 0: must be a number above 0",
    "share": "2: levels.vram_warn = 95: must be a number from 0 to 1",
    "bad_port": '2: endpoint[0].url = "http://127.0.0.1:99999": is no URL: its host or port is malformed '
    "(host:port, port 1 to 65535, IPv6 in brackets)",
    "bad_scheme": '2: endpoint[0].url = "ftp://127.0.0.1/metrics": must begin with http:// or https://',
    "control_characters": '2: endpoint[0].url = "http://127.0.0.1:8000/\\u001b[31m": must be a URL such as '
    "http://127.0.0.1:8000, without spaces or control characters",
    "date": "2: general.interval_s = 2026-01-01: must be a number from 0.25 to 3600",
    "gpu_type": '3: endpoint[0].gpu_type = "H100 SXM 80GB": needs gpu_count beside it',
    "gpu_type_unknown": "3: endpoint[0].gpu_type = \"H100\": GPU type 'H100' is several, give the whole name: "
    "H100 PCIe 80GB, H100 SXM5 80GB, H100 NVL 94GB, H100 SXM5 64GB",
    "gpus": '3: endpoint[0].gpus = [0, -1]: must be "auto" or a list, each a whole number from 0 to 1023',
    "gpus_twice": "3: endpoint[0].gpus = [0, 1, 1]: names a GPU twice",
    "inline": '1: endpoint[0].tls_verify = "no": must be true or false',
    "markup": f"1: [bold]\\x1b[31m\\u202e: unknown key; known here: {SECTIONS}",
    "model_active": "4: model[0].active_params_b = 9: must be at most params_b",
    "gpu_empty": '2: gpu[0].name = "NVIDIA H20 NVL16": has no figure beside it: give bf16_tflops, fp8_tflops, '
    "bandwidth_gbs, ...",
    "gpu_zero": "3: gpu[0].bf16_tflops = 0: must be a number above 0",
    "gpu_twice": '6: gpu[1].name = "NVIDIA X": is the same as in gpu[0]',
    "model_heads": "7: model[0].kv_heads = 5: must divide heads",
    "model_incomplete": "1: model[0]: needs layers: a whole number of at least 1",
    "model_zero": "3: model[0].params_b = 0: must be a number above 0",
    "no_scheme": '2: endpoint[0].url = "127.0.0.1": needs http:// or https:// in front '
    "(host:port alone means http://host:port)",
    "no_url": "4: endpoint[1]: needs url: text in quotes",
    "not_a_number": "1: general.interval_s = nan: must be a number from 0.25 to 3600",
    "not_utf8": "2: is not UTF-8 text",
    "number_for_bool": "2: general.ascii = 1: must be true or false",
    "out_of_range": "3: general.interval_s = 0.1: must be a number from 0.25 to 3600",
    "password": '2: endpoint[0].url = "http://***@127.0.0.1:8000": must hold no user or password: '
    "use api_key_env or api_key_file",
    "password_as_key": f"1: http://***@h:1: unknown key; known here: {SECTIONS}",
    "password_as_name": '3: endpoint[0].name = "http://***@h:1": must hold no user or password: '
    "use api_key_env or api_key_file",
    "password_as_type": '3: endpoint[0].gpu_type = "http://***@h:1": must hold no user or password: '
    "use api_key_env or api_key_file",
    "password_in_list": '2: endpoint[0].url = ["http://***@127.0.0.1:8000"]: must be text in quotes',
    "query": '2: endpoint[0].url = "http://127.0.0.1:8000/?***": must have no query (?...): '
    "a key belongs in api_key_env or api_key_file",
    "same_server": '4: endpoint[1].url = "http://127.0.0.1:8000/metrics": is the same as in endpoint[0]',
    "secret": "3: endpoint[0].api_key: a secret must not stand in this file: name an environment variable with "
    "api_key_env, or a file with api_key_file",
    "secret_as_file": "3: endpoint[0].api_key_file: is no path: put the path of the file that holds the key "
    "(./name for one right here)",
    "secret_as_file_list": "3: endpoint[0].api_key_file: must be text in quotes",
    "secret_as_name": "3: endpoint[0].api_key_env: must be the name of an environment variable, never the key itself",
    "table_for_array": "1: endpoint = {...}: must be tables: [[endpoint]]",
    "text_for_number": '2: general.engine_interval_s = "2 s": must be a number from 0.25 to 3600',
    "theme_path": '2: general.theme = "../../etc/passwd": must be the name of a file in themes/, without .toml',
    "two_keys": "4: endpoint[0].api_key_file: give one: api_key_env or api_key_file",
    "unknown_key": "3: general.intervall_s: unknown key; did you mean interval_s?",
    "unknown_key_far": "2: discovery.zzz: unknown key; known here: enabled, ports",
    "unknown_key_entry": "1: api_key_evn: unknown key; did you mean endpoint.api_key_env (in [[endpoint]])?",
    "unknown_key_nested": "1: interval: unknown key; did you mean general.interval_s (in [general])?",
    "unknown_section": "1: generel: unknown key; did you mean general?",
    "value_for_table": "1: general = 3: must be a table: [general]",
    "wrong_engine": '3: endpoint[0].engine = "vlm": must be "aphrodite" or "auto" or "dynamo" or "fastdeploy" '
    'or "gateway" or "litellm" or "llamacpp" or "lmdeploy" or "max" or "nim" or "ollama" or "ray" or "sglang" '
    'or "sglang_diffusion" or "smg" or "tei" or "tgi" or "tokenspeed" or "triton" or "trtllm" or "vllm" '
    'or "vllm_omni" or "vllm_router" or "vllm_stack" or "xinference"',
}
SYNTAX_LINES = {
    "password_twice": 2,
    "syntax_header": 2,
    "syntax_no_value": 2,
    "syntax_unterminated": 2,
    "table_twice": 4,
    "twice": 4,
}
"""Files that are no TOML: the parser words the rest of the message."""


def refusal(path: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        load(str(path), {})
    return str(caught.value)


@each_row("name", sorted(MESSAGES))
def test_a_bad_config_is_refused_with_file_line_key_value_and_what_is_allowed(name: str) -> None:
    path = BAD / f"{name}.toml"
    assert refusal(path) == f"{path}:{MESSAGES[name]}"


@each_row("name", sorted(SYNTAX_LINES))
def test_what_is_no_toml_is_refused_with_its_line(name: str) -> None:
    path = BAD / f"{name}.toml"
    assert refusal(path).startswith(f"{path}:{SYNTAX_LINES[name]}: is not TOML: ")


def test_every_bad_config_has_its_message() -> None:
    assert {path.stem for path in BAD.glob("*.toml")} == set(MESSAGES) | set(SYNTAX_LINES)


@each_row("path", sorted(BAD.glob("*.toml")), named=lambda path: path.stem)
def test_no_error_repeats_a_secret_or_breaks_its_line(path: Path) -> None:
    message = refusal(path)
    assert SECRET not in message
    assert message.isprintable()


def test_a_file_asked_for_by_name_must_be_there(tmp_path: Path) -> None:
    absent = tmp_path / "absent.toml"
    assert refusal(absent) == f"{absent}: there is no such file"
    with pytest.raises(ConfigError, match="there is no such file"):
        load("", {"GPUMON_CONFIG": str(absent)})


def test_a_folder_is_no_config(tmp_path: Path) -> None:
    assert refusal(tmp_path) == f"{tmp_path}: cannot be read: Is a directory"


def test_a_huge_file_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "huge.toml"
    path.write_bytes(b"#" * (MOST_CONFIG_BYTES + 1))
    assert "is larger than 1 MiB" in refusal(path)


@pytest.mark.parametrize(
    "text",
    [
        "a = " + "[" * 100_000,
        "general.interval_s" + ".a" * 50_000 + " = 1",
        "general.interval_s = " + "1" * 100_000,
        "general.interval_s = " + "[" * 150 + "]" * 150,
        'a = """' + "\n" * 100_000 + '"""',
    ],
    ids=["nested", "dotted", "digits", "lists", "lines"],
)
def test_a_hostile_file_is_refused_in_one_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "hostile.toml"
    path.write_text(text)
    message = refusal(path)
    assert message.isprintable()
    assert len(message) < 600


PIECES = [
    *("[general]", "[[endpoint]]", "[[model]]", 'url = "http://a"', "gpus = [", "]", "{}", "interval_s = 1", "x = '''"),
    *("'''", "[endpoint.x]", "a.b = 1", "#", '"\\u2028" = 1', "match = 1", "general = {a = 1}", "endpoint = [{}]"),
]


@given(
    st.binary(max_size=200)
    | st.lists(st.sampled_from(PIECES), max_size=12).map(lambda lines: "\n".join(lines).encode())
)
def test_whatever_the_file_holds_it_loads_or_is_refused(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.toml"
    path.write_bytes(content)
    try:
        config, message = load(str(path), {}).config, ""
    except ConfigError as refused:
        config, message = Config(), str(refused)
    assert isinstance(config, Config)
    assert message.isprintable()
    assert not message or message.startswith(str(path))


def test_tables_behind_the_last_fault_that_is_told_are_not_read(tmp_path: Path) -> None:
    """Such a table lacks what it needs only because it was not read."""
    path = tmp_path / "config.toml"
    unknown = "".join(f"unknown_{number} = 1\n" for number in range(30))
    path.write_text(f'[[alert]]\n{unknown}[[alert]]\nname = "hot"\nwhen = "critical"\n')
    with pytest.raises(ConfigError) as refused:
        load(str(path), {})
    assert len(refused.value.lines) == 21
    assert refused.value.lines[-1] == f"{path}: more is wrong: these were the first 20"


def test_without_a_file_the_defaults_hold(tmp_path: Path) -> None:
    loaded = load("", {"HOME": str(tmp_path)})
    assert loaded.config == Config()
    assert (loaded.file, loaded.origins) == ("", {})
    assert load("", {}).config == Config()


@pytest.mark.parametrize("variable", ["XDG_CONFIG_HOME", "HOME", "GPUMON_CONFIG"])
def test_the_file_is_found_in_its_three_places(tmp_path: Path, variable: str) -> None:
    place = {"XDG_CONFIG_HOME": "gpumon/config.toml", "HOME": ".config/gpumon/config.toml", "GPUMON_CONFIG": "my.toml"}
    path = tmp_path / place[variable]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\ufeffgeneral.interval_s = 5\n", encoding="utf-8")
    loaded = load("", {variable: str(path if variable == "GPUMON_CONFIG" else tmp_path)})
    assert loaded.config.general.interval_s == 5
    assert loaded.file == str(path)


def test_a_relative_xdg_folder_is_ignored_as_its_specification_says(tmp_path: Path) -> None:
    path = tmp_path / ".config/gpumon/config.toml"
    path.parent.mkdir(parents=True)
    path.write_text("general.interval_s = 5\n")
    assert load("", {"XDG_CONFIG_HOME": "relative", "HOME": str(tmp_path)}).config.general.interval_s == 5


def test_the_command_line_stands_above_the_environment_and_that_above_the_file(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text('[general]\ninterval_s = 5\nengine_interval_s = 6\ntheme = "one"\n')
    loaded = load(
        str(path),
        {"GPUMON_ENGINE_INTERVAL": "7", "GPUMON_THEME": "two"},
        [from_text("--theme", ("general", "theme"), "three")],
    )
    general = loaded.config.general
    assert (general.interval_s, general.engine_interval_s, general.theme) == (5, 7, "three")
    assert loaded.origins == {
        "general.interval_s": "file",
        "general.engine_interval_s": "GPUMON_ENGINE_INTERVAL",
        "general.theme": "--theme",
    }


@each_row(
    ("variable", "text", "message"),
    [
        ("GPUMON_INTERVAL", "fast", 'GPUMON_INTERVAL="fast": must be a number from 0.25 to 3600'),
        ("GPUMON_INTERVAL", "0.1", "GPUMON_INTERVAL=0.1: must be a number from 0.25 to 3600"),
        ("GPUMON_INTERVAL", "nan", "GPUMON_INTERVAL=nan: must be a number from 0.25 to 3600"),
        ("GPUMON_ASCII", "perhaps", 'GPUMON_ASCII="perhaps": must be yes or no (1, 0, true, false, on, off)'),
        ("GPUMON_THEME", "a/b", 'GPUMON_THEME="a/b": must be the name of a file in themes/, without .toml'),
        (
            "GPUMON_ENDPOINTS",
            "http://127.0.0.1:8000 http://u:hunter2@h",
            'GPUMON_ENDPOINTS="http://***@h": must hold no user or password: use api_key_env or api_key_file',
        ),
    ],
)
def test_a_bad_variable_is_named(variable: str, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load("", {variable: text})
    assert str(caught.value) == message


def test_every_variable_sets_its_setting() -> None:
    values = {
        "GPUMON_INTERVAL": "3",
        "GPUMON_ENGINE_INTERVAL": "4",
        "GPUMON_THEME": "night",
        "GPUMON_ASCII": "yes",
        "GPUMON_MOUSE": "0",
        "GPUMON_ENDPOINTS": " http://a:1  https://b ",
        "GPUMON_DISCOVERY": "off",
        "GPUMON_DCGM": "node7:9400",
        "GPUMON_PROMETHEUS": "prometheus:9090",
    }
    assert set(values) == set(CONFIG_VARIABLES)
    config = load("", values).config
    assert config.prometheus.url == "http://prometheus:9090"
    assert (config.general.interval_s, config.general.engine_interval_s) == (3, 4)
    assert (config.general.theme, config.general.ascii, config.general.mouse) == ("night", True, False)
    assert [endpoint.url for endpoint in config.endpoint] == ["http://a:1", "https://b"]
    assert not config.discovery.enabled
    assert config.dcgm.url == "http://node7:9400"


def test_an_empty_variable_and_one_that_kubernetes_sets_change_nothing() -> None:
    environ = {"GPUMON_INTERVAL": "", "GPUMON_SERVICE_HOST": "10.0.0.1", "GPUMON_PORT": "tcp://10.0.0.1:80"}
    assert load("", environ).config == Config()


def test_a_bad_file_is_refused_even_where_the_command_line_overrides_the_setting(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text("general.interval_s = 0.1\n")
    with pytest.raises(ConfigError, match=r"config\.toml:1: general\.interval_s = 0\.1"):
        load(str(path), {}, [from_text("--interval", ("general", "interval_s"), "1")])


def test_a_url_of_the_command_line_keeps_what_the_file_says_of_that_server(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text('[[endpoint]]\nurl = "http://h:80/metrics"\nname = "one"\n[[endpoint]]\nurl = "http://other"\n')
    override = Override(origin="--endpoint", path=("endpoint",), value=["http://H", "http://h/", "http://new:1"])
    endpoints = load(str(path), {}, [override]).config.endpoint
    assert [(endpoint.url, endpoint.name) for endpoint in endpoints] == [
        ("http://h:80/metrics", "one"),
        ("http://new:1", ""),
    ]


@pytest.mark.parametrize("path", ["/etc/vllm/key", "./key", "keys/vllm", "~/key"])
def test_a_key_file_is_taken_as_a_path(tmp_path: Path, path: str) -> None:
    config = tmp_path / "config.toml"
    config.write_text(f'[[endpoint]]\nurl = "http://h"\napi_key_file = "{path}"\n')
    assert load(str(config), {}).config.endpoint[0].api_key_file == path


def test_host_and_port_alone_mean_http(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text('[[endpoint]]\nurl = "h:8000/metrics"\nname = "one"\n')
    urls = load(str(path), {}).config.endpoint
    assert [endpoint.url for endpoint in urls] == ["http://h:8000/metrics"]
    again = load(str(path), {"GPUMON_ENDPOINTS": "http://h:8000 [::1]:9"}).config.endpoint
    assert [(endpoint.url, endpoint.name) for endpoint in again] == [
        ("http://h:8000/metrics", "one"),
        ("http://[::1]:9", ""),
    ]


def test_a_host_keeps_its_description_however_its_address_is_written(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text('[[host]]\naddress = "gpu-07:9454"\nname = "one"\n')
    override = from_text("--host", ("host",), ["http://gpu-07:9454", "gpu-07:9454", "gpu-08"])
    hosts = load(str(path), {}, [override]).config.host
    assert [(host.address, host.name) for host in hosts] == [("http://gpu-07:9454", "one"), ("gpu-08", "")]


@pytest.mark.parametrize(
    "address", ["http://gpu-07:9454/", "http://GPU-07:9454", "http://gpu-07:9454/snapshot.json", "GPU-07:9454"]
)
def test_a_host_is_the_one_of_the_file_whose_server_its_url_names(tmp_path: Path, address: str) -> None:
    path = tmp_path / "config.toml"
    path.write_text('[[host]]\naddress = "gpu-07:9454"\nname = "one"\n')
    override = from_text("--host", ("host",), [address, "http://gpu-07:9454"])
    hosts = load(str(path), {}, [override]).config.host
    assert [(host.address, host.name) for host in hosts] == [("http://gpu-07:9454", "one")]


def test_two_descriptions_of_a_host_are_refused_however_its_address_is_written(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text('[[host]]\naddress = "gpu-07:9454"\n[[host]]\naddress = "http://gpu-07:9454/"\n')
    with pytest.raises(ConfigError, match=r"host\[1\]\.address.*is the same as in host\[0\]"):
        load(str(path), {})


SETTINGS = [
    (table, field.name)
    for table, kind in (("general", General), ("[endpoint]", Endpoint), ("[model]", Model))
    for field in msgspec.structs.fields(kind)
] + [("screen", "hidden_columns"), ("keys", "zoom"), ("goals", "itl_p95_ms")]
FORMS = [
    *(f"{scheme}u:{SECRET}@h:1{path}" for scheme in ("http://", "", "ftp://", "//") for path in ("", "/metrics")),
    *(f"http://{SECRET}@h", f"http://h:1?key={SECRET}", f"http://h#{SECRET}", f"h:1?{SECRET}", f"http://u:{SECRET}"),
    *(f"http://u: {SECRET}@h", f"http://u:p/{SECRET}@h", f"http://u:\x1b{SECRET}@h"),
]
SHAPES = ["{0}", "[{0}]", "[[{0}]]", "[1, {0}]", "{{a = {0}}}"]


@given(st.sampled_from(SETTINGS), st.sampled_from(FORMS), st.sampled_from(SHAPES), st.booleans())
def test_a_url_with_a_secret_is_refused_anywhere_without_it(
    tmp_path_factory: pytest.TempPathFactory, setting: tuple[str, str], form: str, shape: str, as_key: bool
) -> None:
    text = '"' + form.replace("\x1b", "\\u001b") + '"'
    table, key = setting
    path = tmp_path_factory.getbasetemp() / "secret.toml"
    path.write_text(f"[{table}]\n{text if as_key else key} = {shape.format(text)}\n")
    with pytest.raises(ConfigError) as caught:
        load(str(path), {})
    assert SECRET not in str(caught.value)


@each_row("form", FORMS)
@each_row("variable", [*CONFIG_VARIABLES, "GPUMON_CONFIG"])
def test_no_variable_s_error_repeats_a_secret(variable: str, form: str) -> None:
    if variable == "GPUMON_CONFIG":
        form = form.lstrip("/")  # with a slash in front it is a path like any other
    with pytest.raises(ConfigError) as caught:
        load("", {variable: form})
    assert SECRET not in str(caught.value)


def test_no_error_about_a_theme_repeats_a_secret() -> None:
    for form in FORMS:
        with pytest.raises(ConfigError) as caught:
            load_theme(form)
        assert SECRET not in str(caught.value)
