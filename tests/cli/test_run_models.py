"""`serai run` over the official SDKs, against the fakes of their APIs on loopback."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from serai.testing.models.reply import Fault
from serai.testing.models.server import FakeModels
from tests.support.cli.run_process import Run, read_result, read_session, write_prompt
from tests.support.cli.run_process import run as run_with_parrot
from tests.support.cli.shell import EXAMPLES, Shell

KEY = "sk-test-0123456789abcdef"
APIS = ["anthropic", "openai", "openai-responses"]
MODELS = """
[[models]]
id = "{id}"
provider = "{provider}"
api = "{api}"
context_window = 200000
max_tokens = 8192
cost = {{ input = 3.0, output = 15.0 }}
"""


@pytest.fixture(scope="module")
def server() -> Iterator[FakeModels]:
    """On a loop of its own: the runs are processes, and nothing here waits for them asynchronously."""
    loop = asyncio.new_event_loop()
    made = FakeModels(key=KEY)
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    asyncio.run_coroutine_threadsafe(made.__aenter__(), loop).result(10)
    yield made
    asyncio.run_coroutine_threadsafe(made.close(), loop).result(10)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)
    loop.close()


@pytest.fixture(params=APIS)
def api(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def write_settings(shell: Shell, server: FakeModels, api: str) -> dict[str, str]:
    """What a run needs to reach the fake of this API, and no other."""
    shell.home.mkdir(exist_ok=True)
    about = MODELS.format(id=server.model(api).id, provider="anthropic" if api == "anthropic" else "openai", api=api)
    (shell.home / "models.toml").write_text(about)
    (shell.home / "config.toml").write_text("[limits]\nmodel_wait = 0.001\nmodel_wait_most = 0.002\n")
    return {**server.env(), "SERAI_DEFAULT_MODEL": server.model(api).id}


def run(shell: Shell, server: FakeModels, api: str, *arguments: str | Path, **more: str) -> subprocess.CompletedProcess[str]:
    return run_with_parrot(shell, "--model", server.model(api).id, *arguments, **(write_settings(shell, server, api) | more))


@pytest.mark.req("app.run.models")
def test_it_speaks_and_calls_a_guests_tool_and_says_what_that_cost(shell: Shell, server: FakeModels, api: str) -> None:
    weather = ("-e", EXAMPLES / "weather-python", "--allow", "weather")
    ran = run(
        shell, server, api, "--json", *weather, write_prompt("say I ask.", 'call weather {"city":"Bern"}', "say So: $results")
    )
    assert ran.returncode == 0, ran.stderr
    last = read_result(ran)
    assert last["status"] == "success"
    assert last["text"].startswith("So: Bern: ")
    usage = last["usage"]
    assert usage["cost_usd"] == pytest.approx((usage["input"] * 3 + usage["output"] * 15) / 1e6)
    assert min(usage["input"], usage["output"], last["steps"] - 1) > 0
    again = run(shell, server, api, "-q", "--continue", write_prompt("say on"))
    assert (again.stdout, again.stderr, again.returncode) == ("on\n", "", 0)


@pytest.mark.req("app.run.models", "app.run.status")
def test_a_wrong_key_is_told_and_never_shown(shell: Shell, server: FakeModels, api: str) -> None:
    wrong = "sk-wrong-0123456789abcdef"
    ran = run(shell, server, api, "--json", "hi", ANTHROPIC_API_KEY=wrong, OPENAI_API_KEY=wrong)
    assert (read_result(ran)["status"], ran.returncode) == ("error", 3)
    assert "401" in ran.stderr
    assert wrong not in ran.stdout + ran.stderr


@pytest.mark.req("app.run.models", "app.run.status")
@pytest.mark.parametrize(("faults", "status"), [(2, 0), (3, 3)])
def test_a_server_that_stumbles_is_asked_again(shell: Shell, server: FakeModels, api: str, faults: int, status: int) -> None:
    server.fault(*[Fault("status", status=500)] * faults)
    ran = run(shell, server, api, write_prompt("say there"))
    assert ran.returncode == status
    assert "attempt 1 of 3 in " in ran.stderr
    assert ran.stdout == ("there\n" if status == 0 else "")


@pytest.mark.req("app.run.models", "app.run.status")
def test_an_answer_that_breaks_off_fails_the_turn_and_stays_as_far_as_it_came(shell: Shell, server: FakeModels, api: str) -> None:
    ran = run(shell, server, api, write_prompt("say half of it", "cut"))
    assert (ran.stdout, ran.returncode) == ("half of it\n" * 3, 3)  # each attempt on a line of its own
    assert read_session(shell)[1:] == ["assistant: half of it"]
    assert run(shell, server, api, "-q", "--continue", write_prompt("say whole")).stdout == "whole\n"


@pytest.mark.req("app.run.models", "app.run.status")
def test_a_model_that_hangs_is_left_in_time(shell: Shell, server: FakeModels, api: str) -> None:
    ran = run(shell, server, api, "--json", "--timeout", "0.4", write_prompt("say so far", "hang"))
    assert (read_result(ran)["status"], ran.returncode) == ("cancelled", 5)


@pytest.mark.req("app.run.interrupt", "app.run.models")
def test_an_interrupted_call_of_the_model_leaves_a_conversation_that_it_takes(shell: Shell, server: FakeModels, api: str) -> None:
    os.mkfifo(shell.cwd / "latch")
    prompt = write_prompt('call bash {"command":"echo begun; cat latch"}')
    given = write_settings(shell, server, api)
    with Run(shell, "--json", "--allow", "bash", prompt, env=given) as going:
        going.until(r'"text":"begun\n')
        going.signal(signal.SIGINT)
        assert going.ends() == 130
    again = run(shell, server, api, "-q", "--continue", write_prompt("say on"))  # which refuses a call without its result
    assert (again.stdout, again.stderr) == ("on\n", "")


@pytest.mark.req("app.run.killed", "app.run.models")
def test_a_killed_call_of_the_model_leaves_a_conversation_that_it_takes(shell: Shell, server: FakeModels, api: str) -> None:
    os.mkfifo(shell.cwd / "latch")
    prompt = write_prompt('call bash {"command":"echo begun; cat latch"}')
    with Run(shell, "--json", "--allow", "bash", prompt, env=write_settings(shell, server, api)) as going:
        going.until(r'"text":"begun\n')
        going.signal(signal.SIGKILL)
        going.ends()
    again = run(shell, server, api, "-q", "--continue", write_prompt("say on"))
    assert (again.stdout, again.stderr) == ("on\n", "")
