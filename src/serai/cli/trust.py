"""`serai trust`: let a project start its guests and bring its rules and settings (design rule 12)."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from serai.cli import approval_text as words
from serai.cli import console
from serai.cli.options import JSON, PATH, GuestOptions, add_guest_options
from serai.paths import PROJECT_CONFIG, PROJECT_POLICY, absolute_path, read_project_settings

if TYPE_CHECKING:
    from serai.host.guest_manifest import GuestManifest
    from serai.policy.rules import Rule


@click.command()
@click.argument("path", type=PATH, required=False)
@click.option("--withdraw", is_flag=True, help="Trust it no longer.")
@add_guest_options
@JSON
def trust(path: str | None, *, withdraw: bool, options: GuestOptions, as_json: bool) -> None:
    """Let a project start its guests and bring its rules and settings, as they are now.

    PATH is the project; this folder by default. What changes or comes later has to be trusted again.
    """
    project = options.cwd if path is None else Path(absolute_path(path))
    if withdraw:
        _withdraw(project, as_json=as_json)
    else:
        _allow(project, as_json=as_json)


def _allow(project: Path, *, as_json: bool) -> None:
    from serai.host.discovery import find_guests
    from serai.host.trust import TOO_MUCH, Trust

    trust = Trust.usual()
    found = find_guests(cwd=project, trust=trust)
    before = {manifest.folder: trust.check(manifest) for manifest in found.iter_all() if manifest.scope == "project"}
    content = _read_policy(project)  # read once: what is shown is what is trusted, whoever writes there meanwhile
    rules, rules_before = _parse_rules(project, content), trust.check_policy(project, content)
    written = read_project_settings(project) if project.is_dir() else b""
    settings, settings_before = _find_settings(project, written), trust.check_config(project, written)
    for_agents, agents_before = trust.for_agents(project), trust.check_agents(project)
    pinned = trust.allow(project, rules=content, settings=written, agents=for_agents or {})
    if as_json:
        guests = [_dump_guest(manifest, before.get(manifest.folder, "")) for manifest in pinned]
        form = {"project": str(project), "guests": guests, "rules": [rule.to_json() for rule in rules], "settings": settings}
        form["agents"] = sorted(for_agents or ())
        click.echo(console.dump_json(form))
    else:
        for manifest in pinned:
            _say_guest(manifest, before.get(manifest.folder, ""))
        _say_rules(project, rules, rules_before)
        _say_settings(project, settings, settings_before)
        _say_agents(sorted(for_agents or ()), agents_before)
    left_out = [str(problem) for problem in found.problems if problem.folder.is_relative_to(project)]
    left_out += [f"what driven agents find in {project}: {TOO_MUCH}"] if for_agents is None else []
    known = {manifest.folder for manifest in pinned}
    left_out += [
        f"{manifest.folder}: {trust.find_obstacle(manifest)}"
        for manifest in found.iter_all()
        if manifest.scope == "project" and manifest.folder not in known
    ]
    for line in left_out:
        _print_line(f"left out: {line}", console.err)
    if not pinned and not left_out and not rules and not settings and not for_agents:
        console.err(f"{project}: there is nothing to trust, it has no guests, and no rules or settings that need it")


def _read_policy(project: Path) -> bytes:
    """Its rules as they are written, or nothing. What cannot be read is an error, and not trusted."""
    from serai.policy.rules import read_bytes

    path = project / PROJECT_POLICY
    return read_bytes(str(path)) if path.exists() else b""


def _parse_rules(project: Path, content: bytes) -> tuple[Rule, ...]:
    """What it allows: that is what trusting it gives away."""
    from serai.policy.rules import read_toml

    return read_toml(content, str(project / PROJECT_POLICY)).select("allow")


def _say_rules(project: Path, rules: tuple[Rule, ...], was: str) -> None:
    if not rules:
        return
    _print_line(f"trusted what is allowed by {project / PROJECT_POLICY}")
    for rule in rules:
        _print_line(f"  {rule.id}: {words.format_rule(rule)}")
    _print_line(f"  before: {was.partition(';')[0] or 'the same'}")


def _find_settings(project: Path, content: bytes) -> dict[str, object]:
    """What it sets that counts only then."""
    from serai.app.config import select_trusted_settings

    return select_trusted_settings(content, who=str(project / PROJECT_CONFIG))


def _say_settings(project: Path, settings: dict[str, object], was: str) -> None:
    if not settings:
        return
    _print_line(f"trusted what is set by {project / PROJECT_CONFIG}")
    for key, value in settings.items():
        _print_line(f"  {key} = {console.dump_json(value)}")
    _print_line(f"  before: {was.partition(';')[0] or 'the same'}")


def _say_agents(names: list[str], was: str) -> None:
    if not names:
        return
    _print_line("trusted what driven agents find here")
    for name in names:
        _print_line(f"  {name}")
    _print_line(f"  before: {was.partition(';')[0] or 'the same'}")


def _dump_guest(manifest: GuestManifest, was: str) -> dict[str, object]:
    settings = manifest.settings
    asks = {"env": settings.asked_env, "replace": settings.asked_replace, "keys": settings.asked_keys}
    has = {"env": settings.env, "replace": settings.replace, "keys": settings.keys}
    return {"id": manifest.id, "folder": str(manifest.folder), "command": manifest.argv, "asks": asks, "has": has, "before": was}


def _say_guest(manifest: GuestManifest, was: str) -> None:
    _print_line(f"trusted {manifest.id}: {manifest.folder}")
    _print_line(
        f"  runs {shlex.join(manifest.argv)}"
        if manifest.argv
        else f"  is a plugin, {manifest.digest}: it starts once it is granted"
    )
    if manifest.settings.asked:
        _print_line(f"  gets what it asks for: {', '.join(manifest.settings.asked)}")
    if manifest.settings.grants:
        _print_line(f"  has from your settings: {', '.join(manifest.settings.grants)}")
    _print_line(f"  before: {was or 'the same'}")


def _print_line(text: str, say: Callable[[str], None] = console.out) -> None:
    """What others wrote stands in it: a row that goes on is marked, so that none can be taken for ours."""
    for row in words.fold_line(text):
        say(row)


def _withdraw(project: Path, *, as_json: bool) -> None:
    from serai.host.trust import Trust

    known = Trust.usual().withdraw(project)
    if as_json:
        click.echo(console.dump_json({"project": str(project), "withdrawn": known}))
    elif known:
        console.out(f"{project}: its guests, rules and settings are not trusted any longer")
    else:
        console.err(f"{project}: it was not trusted before")
