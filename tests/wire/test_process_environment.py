"""What a child may know: tables of real names, and what holds for all names."""

from __future__ import annotations

from string import ascii_letters
from time import thread_time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serai.wire.process import build_agent_env, build_guest_env, build_hook_env, list_withheld_names, looks_secret

SECRET_NAMES = [
    # keys, tokens and passwords as services call them
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "OPENAI_API_KEY",
    "OPENAI_APIKEY",
    "HF_TOKEN",
    "GITHUB_TOKEN",
    "GH_TOKEN",
    "GITHUB_PAT",
    "ACTIONS_ID_TOKEN_REQUEST_TOKEN",
    "CI_JOB_JWT",
    "NPM_TOKEN",
    "CARGO_REGISTRY_TOKEN",
    "TWINE_PASSWORD",
    "TF_TOKEN_app_terraform_io",
    "DJANGO_SECRET_KEY",
    "SECRET_KEY_BASE",
    "RAILS_MASTER_KEY",
    "STRIPE_SECRET_KEY",
    "SSH_PRIVATE_KEY",
    "JWT_SIGNING_KEY",
    "SESSION_COOKIE",
    "SESSION_ID",
    "SLACK_OAUTH",
    "TWITTER_BEARER",
    "JENKINS_CREDS",
    "STORAGE_SAS",
    "PGPASSWORD",
    "MYSQL_PWD",
    "SMTP_PASS",
    "DB_PASSWD",
    "VNCPASSWD",
    "SSHPASS",
    "BORG_PASSPHRASE",
    "REDISCLI_AUTH",
    "DOCKER_AUTH_CONFIG",
    "COMPOSER_AUTH",
    "SENTRY_DSN",
    "SLACK_WEBHOOK_URL",
    "BW_SESSION",
    "OP_SESSION_example",
    # whole families, and the way to an agent that signs for us
    "AWS_SECRET_ACCESS_KEY",
    "AWS_PROFILE",
    "aws_profile",
    "AZURE_CLIENT_SECRET",
    "AZURE_TENANT_ID",
    "VAULT_ADDR",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "SSH_AUTH_SOCK",
    # other spellings
    "my_api_key",
    "myApiKey",
    "myAccessKey",
    "clientSecret",
    "npm_config_//npm.example/:_authToken",
    "GITHUB_TOKEN_2",
    "OPENAI_API_KEY2",
    "DATABASE_PASSWORD1",
]

SECRET_VALUES = [
    ("DATABASE_URL", "postgres://app:hunter2@db/app"),
    ("MONGO", "mongodb+srv://app:hunter2@cluster.example/app"),
    ("REDIS_URL", "redis://:hunter2@cache:6379/0"),
    ("PIP_INDEX_URL", "https://user:hunter2@pypi.example/simple"),
    ("http_proxy", "http://user:hunter2@proxy:3128"),
    ("PIP_EXTRA_INDEX_URL", "https://one.example/simple https://user:hunter2@two.example/simple"),
    ("SPRING_DATASOURCE_URL", "jdbc:postgresql://db/app?user=app&password=hunter2"),
    ("ConnectionStrings__Default", "Server=db;User Id=sa;Password=hunter2;"),
    ("OTEL_EXPORTER_OTLP_HEADERS", "Authorization=Bearer hunter2"),
]

HARMLESS = [
    ("PATH", "/usr/bin:/bin"),
    ("HOME", "/home/ada"),
    ("LANG", "C.UTF-8"),
    ("TERM", "xterm"),
    ("PWD", "/src"),
    ("OLDPWD", "/"),
    ("SHELL", "/bin/sh"),
    ("USER", "ada"),
    ("TMPDIR", "/tmp"),
    ("DISPLAY", ":0"),
    ("XAUTHORITY", "/run/user/1000/xauth"),
    ("XDG_RUNTIME_DIR", "/run/user/1000"),
    ("XDG_SESSION_ID", "2"),
    ("XDG_SESSION_TYPE", "wayland"),
    ("SESSION_MANAGER", "local/ada:@/tmp/.ICE-unix/1,unix/ada:/tmp/.ICE-unix/1"),
    ("DBUS_SESSION_BUS_ADDRESS", "unix:path=/run/user/1000/bus"),
    ("TERM_SESSION_ID", "w0t0p0"),
    ("SSH_CONNECTION", "10.0.0.1 50000 10.0.0.2 22"),
    ("GIT_AUTHOR_NAME", "Ada"),
    ("AUTHOR", "Ada"),
    ("KEYBOARD_LAYOUT", "ch"),
    ("KEYTIMEOUT", "1"),
    ("MONKEY", "see"),
    ("TURKEY", "TR"),
    ("COMPASS", "north"),
    ("BYPASS", "1"),
    ("PASSENGER_APP_ENV", "production"),
    ("PATTERN", "*.py"),
    ("SECRETARY", "Grace"),
    ("TOKENIZERS_PARALLELISM", "false"),
    ("MAX_THINKING_TOKENS", "8000"),
    ("CLAUDE_CODE_MAX_OUTPUT_TOKENS", "32000"),
    ("OAUTHLIB_INSECURE_TRANSPORT", "1"),
    ("http_proxy", "http://proxy:3128"),
    ("NO_PROXY", "localhost,127.0.0.1"),
    ("REPOSITORY", "ssh://git@example.org/src.git"),
    ("DOCUMENTATION", "https://example.org:8443/a:b@c"),
]

# Few enough that the same ones meet in an environment, its additions and the grants.
NAMES = st.sampled_from(["PATH", "PWD", "LANG", "GITHUB_TOKEN", "AWS_PROFILE", "my_api_key"]) | st.text(ascii_letters, min_size=1)
VALUES = st.sampled_from(["", "one", "other", "postgres://app:hunter2@db/app"])
ENVIRONMENTS = st.dictionaries(NAMES, VALUES, max_size=8)
GRANTS = st.sets(NAMES, max_size=8)

for_all = settings(deadline=None)  # a busy machine is no counterexample


# -- guests


@pytest.mark.req("wire.environ.guest")
@pytest.mark.parametrize("name", SECRET_NAMES)
def test_a_guest_does_not_get_a_variable_named_like_a_credential(name: str) -> None:
    assert build_guest_env({name: "hunter2", "LANG": "C"}) == {"LANG": "C"}


@pytest.mark.req("wire.environ.guest")
@pytest.mark.parametrize(("name", "value"), SECRET_VALUES)
def test_a_guest_does_not_get_a_variable_with_a_password_in_its_value(name: str, value: str) -> None:
    assert build_guest_env({name: value, "LANG": "C"}) == {"LANG": "C"}


@pytest.mark.req("wire.environ.guest", "wire.environ.report")
@pytest.mark.parametrize(("name", "value"), HARMLESS)
def test_a_guest_gets_a_harmless_variable_also_one_that_sounds_like_a_credential(name: str, value: str) -> None:
    assert list_withheld_names({name: value}) == []
    assert build_guest_env({name: value}) == {name: value}


@pytest.mark.req("wire.environ.guest")
def test_a_guest_gets_git_s_settings_whole_or_not_at_all() -> None:
    """Git refuses every command when a GIT_CONFIG_KEY_n that GIT_CONFIG_COUNT announces is missing."""
    settings = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "/src"}
    assert build_guest_env(settings) in ({}, settings)


@pytest.mark.req("wire.environ.guest")
@pytest.mark.parametrize("name", ["GITHUB_TOKEN", "DATABASE_URL"])
def test_a_guest_gets_the_very_name_that_it_is_granted(name: str) -> None:
    base = {"GITHUB_TOKEN": "hunter2", "DATABASE_URL": "postgres://app:hunter2@db/app", "NPM_TOKEN": "hunter2"}
    assert build_guest_env(base, grants=[name]) == {name: base[name]}


@pytest.mark.req("wire.environ.guest")
@pytest.mark.parametrize("grant", ["*", "GITHUB_*", "GITHUB_", "GITHUB_TOKEN2", "github_token", "GITHUB_TOKE?", ""])
def test_a_grant_is_no_pattern(grant: str) -> None:
    assert build_guest_env({"GITHUB_TOKEN": "hunter2"}, grants=[grant]) == {}


@pytest.mark.req("wire.environ.guest")
@for_all
@given(base=ENVIRONMENTS, grants=GRANTS)
def test_a_guest_gets_all_that_is_granted_or_harmless_and_nothing_else(base: dict[str, str], grants: set[str]) -> None:
    assert build_guest_env(base, grants=grants) == {
        name: value for name, value in base.items() if name in grants or not looks_secret(name, value)
    }


def test_a_long_value_is_judged_in_linear_time() -> None:
    """The kernel lets one variable have 128 KiB, and every child's environment is judged."""
    start = thread_time()  # what others do with the machine meanwhile does not count
    assert not looks_secret("BLOB", "a" * 60_000)
    assert thread_time() - start < 1


# -- the report


@pytest.mark.req("wire.environ.report")
def test_the_withheld_names_are_listed_in_order_without_the_granted_ones() -> None:
    base = {"NPM_TOKEN": "x", "LANG": "C", "GH_TOKEN": "x", "DB": "postgres://app:hunter2@db/app", "AWS_REGION": "x"}
    assert list_withheld_names(base) == ["AWS_REGION", "DB", "GH_TOKEN", "NPM_TOKEN"]
    assert list_withheld_names(base, ["GH_TOKEN", "DB"]) == ["AWS_REGION", "NPM_TOKEN"]


@pytest.mark.req("wire.environ.report")
@for_all
@given(base=ENVIRONMENTS, grants=GRANTS)
def test_what_a_guest_does_not_get_is_exactly_what_is_reported(base: dict[str, str], grants: set[str]) -> None:
    assert list_withheld_names(base, grants) == sorted(base.keys() - build_guest_env(base, grants=grants).keys())


# -- agents


@pytest.mark.req("wire.environ.agent")
def test_an_agent_gets_its_drivers_names_and_no_other_credential() -> None:
    base = {"ANTHROPIC_API_KEY": "x", "ANTHROPIC_AUTH_TOKEN": "x", "GH_TOKEN": "x", "NPM_TOKEN": "x", "LANG": "C"}
    agent = build_agent_env(base, keep=["ANTHROPIC_*", "GH_TOKEN"])
    assert agent.keys() == {"ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "GH_TOKEN", "LANG"}


@pytest.mark.req("wire.environ.agent")
def test_an_agent_does_not_get_what_its_driver_drops_whether_kept_or_harmless() -> None:
    base = {"CLAUDECODE": "1", "CLAUDE_CODE_ENTRYPOINT": "cli", "ANTHROPIC_API_KEY": "x", "ANTHROPIC_BASE_URL": "x", "LANG": "C"}
    agent = build_agent_env(base, keep=["ANTHROPIC_*"], drop=["CLAUDE*", "ANTHROPIC_API_KEY"])
    assert agent == {"ANTHROPIC_BASE_URL": "x", "LANG": "C"}


@pytest.mark.req("wire.environ.agent")
@for_all
@given(base=ENVIRONMENTS)
def test_an_agent_whose_driver_lists_nothing_gets_what_a_guest_gets(base: dict[str, str]) -> None:
    assert build_agent_env(base) == build_guest_env(base)


# -- hooks


@pytest.mark.req("wire.environ.hook")
@for_all
@given(base=ENVIRONMENTS, extra=ENVIRONMENTS)
def test_a_hook_gets_everything_and_the_additions(base: dict[str, str], extra: dict[str, str]) -> None:
    assert build_hook_env(base, extra=extra) == {**base, **extra}


@pytest.mark.req("wire.environ.hook")
@for_all
@given(base=ENVIRONMENTS, extra=ENVIRONMENTS)
def test_a_cleared_hook_gets_nothing_but_the_additions(base: dict[str, str], extra: dict[str, str]) -> None:
    assert build_hook_env(base, extra=extra, clear=True) == extra
    assert build_hook_env(base, clear=True) == {}


# -- all of them


@for_all
@given(base=ENVIRONMENTS, extra=ENVIRONMENTS)
def test_an_addition_always_wins_a_secret_one_too(base: dict[str, str], extra: dict[str, str]) -> None:
    for child in (build_guest_env(base, extra=extra), build_agent_env(base, extra=extra), build_hook_env(base, extra=extra)):
        assert extra.items() <= child.items()
    assert build_agent_env(base, drop=["*"], extra=extra) == extra


@for_all
@given(base=ENVIRONMENTS, extra=ENVIRONMENTS)
def test_the_hosts_own_environment_is_never_changed(base: dict[str, str], extra: dict[str, str]) -> None:
    before, added = dict(base), dict(extra)
    for child in (
        build_guest_env(base, extra=extra),
        build_agent_env(base, extra=extra),
        build_hook_env(base, extra=extra),
        build_hook_env(base),
    ):
        child["CHILD"] = "only"
    assert (base, extra) == (before, added)


@pytest.mark.req("piglet.rule.child-environment")
def test_the_descriptors_of_another_host_are_nobody_elses() -> None:
    assert build_guest_env({"PIGLET_FD": "1", "PATH": "/bin"}) == {"PATH": "/bin"}
    assert build_guest_env({"PIGLET_FD": "1"}, extra={"PIGLET_FD": "1"}) == {"PIGLET_FD": "1"}
