"""What `serai guest add`, `remove`, `enable` and `disable` do (spec zot 1.4).

A guest is copied or cloned beside its place and then moved there in one step: nothing half-made is ever found.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import shutil
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path

from serai import home
from serai.errors import BadManifest, BadSettings, NoGuest, PeerGone, PeerTimeout, SeraiError, SpawnFailed
from serai.host.adapters import DIALECTS, reader
from serai.host.finding import Found
from serai.host.manifest import SCOPES, Manifest
from serai.wire.process import Launch, PlainSpawner

__all__ = ["add", "add_url", "choose", "is_url", "remove", "set_enabled"]

_CLONE = 300.0  # seconds
_MANIFESTS = " or ".join(row.manifest for row in DIALECTS.values())


def is_url(source: str) -> bool:
    """Whether it is something to clone rather than a folder."""
    return source.startswith(("https://", "git@")) or source.endswith(".git")


def add(source: str, *, environ: Mapping[str, str] = os.environ, name: str = "") -> Path:
    """Copy a guest's folder to the user's guests; where it is now. Its mode bits stay, and links that do not lead out of it."""
    folder = os.path.realpath(source)  # before the base name is taken, so that `.` has one
    if not os.path.isdir(folder):
        raise NoGuest(f"not a directory: {source}", who=folder, hint="name the folder that holds the guest's manifest")
    if not _has_manifest(folder):
        raise BadManifest(f"source lacks {_MANIFESTS}", who=folder, hint="name the folder that holds the guest's manifest")
    target = _target(environ, name or os.path.basename(folder))
    if os.path.realpath(target).startswith(f"{folder}/"):
        raise BadSettings("a folder cannot be copied into itself", who=folder, hint="name the guest's own folder")
    temporary = _beside(target)
    try:
        _copy_tree(folder, temporary)
        _settle(temporary, target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return target


async def add_url(url: str, *, environ: Mapping[str, str] = os.environ, name: str = "", timeout: float = _CLONE) -> Path:
    """Clone a guest to the user's guests; where it is now. A clone without a manifest is removed again."""
    target = _target(environ, name or _base_name(url))
    temporary = _beside(target)
    try:
        await _clone(url, temporary, environ, timeout)
        if not _has_manifest(str(temporary)):
            raise BadManifest(f"installed dir lacks {_MANIFESTS}; aborted and rolled back", who=_shown(url))
        _settle(temporary, target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return target


def remove(manifest: Manifest) -> None:
    """Delete a guest's folder; of a linked one only the link. It is gone in one step, then its files go."""
    if manifest.scope == "ad hoc":
        hint = "leave it off the command line, or delete the folder yourself"
        raise NoGuest(f"{manifest.id} is not installed: it was named on the command line", who=str(manifest.folder), hint=hint)
    try:
        if manifest.folder.is_symlink():
            manifest.folder.unlink()
            return
        gone = _beside(manifest.folder)
        manifest.folder.rename(gone)
        shutil.rmtree(gone)
    except OSError as error:
        raise _not_done("cannot be removed", str(manifest.folder), error) from None


def set_enabled(manifest: Manifest, enabled: bool) -> None:
    """Switch a guest on or off in its manifest; nothing else of it changes, its mode included."""
    if (reading := reader(manifest.dialect)) is None:
        raise BadManifest(f"the dialect {manifest.dialect} has no such switch yet", who=str(manifest.folder))
    if enabled and not manifest.settings.enabled:
        raise BadSettings(f'`[guest."{manifest.id}"]` or `[guest.{manifest.name}]` says `enabled = false`', who="config.toml")
    file = os.path.realpath(manifest.file)  # a link to it stays a link
    try:
        _write(file, reading.with_enabled(Path(file).read_bytes(), enabled))
    except ValueError as error:
        raise BadManifest(str(error), who=str(manifest.folder)) from None
    except OSError as error:
        raise _not_done("cannot be rewritten", file, error) from None


def choose(found: Found, name: str) -> Manifest:
    """The guest of that id, manifest name or folder name: ad hoc before project before user (spec zot 1.4)."""
    fitting = [(_rank(manifest, name), manifest) for manifest in found.all() if name in _names(manifest)]
    if not fitting:
        raise _nobody(found, name)
    nearest = min(rank for rank, _ in fitting)
    best = [manifest for rank, manifest in fitting if rank == nearest]
    ids = sorted({manifest.id for manifest in best})
    if len(ids) > 1:
        raise NoGuest(f"{name} may be {' or '.join(ids)}", hint="say which, by its id")
    return best[0]


def _names(manifest: Manifest) -> tuple[str, str, str]:
    """What a guest may be called, the most telling first."""
    return (manifest.id, manifest.name, manifest.folder.name)


def _rank(manifest: Manifest, name: str) -> tuple[int, int]:
    return SCOPES.index(manifest.scope), _names(manifest).index(name)


def _nobody(found: Found, name: str) -> NoGuest:
    broken = next((problem for problem in found.problems if problem.folder.name == name), None)
    if broken is not None:
        return NoGuest(f"{name} cannot be read: {broken.reason}", who=str(broken.folder), hint="mend it, or delete the folder")
    ids = sorted({manifest.id for manifest in found.all()})
    return NoGuest(f"there is no guest {name}; there is {', '.join(ids)}" if ids else f"there is no guest {name}, nor any other")


def _target(environ: Mapping[str, str], name: str) -> Path:
    if not name or "/" in name or "\0" in name or name.startswith("."):
        raise NoGuest(f"{name!r} is no name for a guest's folder", hint="give it one with --name, without a dot in front")
    target = Path(home.config_folder(environ)) / "guests" / name
    if os.path.lexists(target):
        hint = f"`serai guest remove {name}`, or give another name"
        raise BadSettings(f"destination {target} already exists; remove it first", who=name, hint=hint)
    try:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise _not_done("cannot be made", str(target.parent), error) from None
    return target


def _beside(target: Path) -> Path:
    """A hidden sibling: on the same disk, and no place where guests are looked for."""
    return target.with_name(f".{target.name}-{secrets.token_hex(4)}")


def _settle(temporary: Path, target: Path) -> None:
    """Move what is complete to its place, if no link leads out of it."""
    inside = f"{os.path.realpath(temporary)}/"
    for folder, folders, files in os.walk(temporary):
        for name in (*folders, *files):
            path = os.path.join(folder, name)
            if os.path.islink(path) and not f"{os.path.realpath(path)}/".startswith(inside):
                link = os.path.relpath(path, temporary)
                hint = "replace the link by what it leads to"
                raise BadManifest(f"{link} is a link that leads out of the guest's folder", who=target.name, hint=hint)
    try:
        temporary.rename(target)
    except OSError as error:
        raise _not_done("cannot be moved to its place", str(target), error) from None


def _copy_tree(folder: str, target: Path) -> None:
    try:
        shutil.copytree(folder, target, symlinks=True, copy_function=_copy)
    except shutil.Error as error:  # the first of what copytree collected says enough
        raise _not_done("cannot be copied", folder, OSError(str(error.args[0][0][2]))) from None
    except OSError as error:
        raise _not_done("cannot be copied", folder, error) from None


def _copy(source: str, target: str) -> str:
    if not stat.S_ISREG(os.lstat(source).st_mode):
        raise shutil.SpecialFileError(f"{source} is neither a file nor a folder")
    return str(shutil.copy(source, target))


async def _clone(url: str, target: Path, environ: Mapping[str, str], timeout: float) -> None:
    # The person's own act: git may use what the person has, but it cannot ask, and it runs no helper that the address names.
    env = {**environ, "GIT_TERMINAL_PROMPT": "0", "GIT_ALLOW_PROTOCOL": "file:git:http:https:ssh"}
    argv = ["git", "clone", "--quiet", "--depth", "1", "--", url, str(target)]
    async with PlainSpawner() as spawner:
        child = await spawner.spawn(Launch(argv=argv, env=env, who=_shown(url), stdin="null"))
        child.to_noise(child.stdout)
        try:
            async with asyncio.timeout(timeout):
                status = await child.exited
        except TimeoutError:
            raise PeerTimeout(f"git clone took longer than {timeout:g} s", who=_shown(url)) from None
        if not status.ok:
            child.stderr.drain()
            said = child.stderr.text().replace(url, _shown(url))
            raise PeerGone("git clone failed", who=_shown(url), exit=status, stderr=said, hint="git says why")


def _base_name(url: str) -> str:
    return re.split(r"[/:]", url.rstrip("/"))[-1].removesuffix(".git")


def _shown(url: str) -> str:
    """Without the password that may be in it (design rule 13)."""
    return re.sub(r"//[^/@]*@", "//…@", url)


def _has_manifest(folder: str) -> bool:
    return any(os.path.isfile(os.path.join(folder, row.manifest)) for row in DIALECTS.values())


def _write(file: str, content: bytes) -> None:
    """Replace a file in one step, with the mode it has."""
    mode = stat.S_IMODE(os.stat(file).st_mode)
    descriptor, temporary = tempfile.mkstemp(prefix=".manifest-", dir=os.path.dirname(file))
    try:
        with open(descriptor, "wb") as out:
            out.write(content)
            os.fchmod(descriptor, mode)
        os.replace(temporary, file)
    except OSError:
        os.unlink(temporary)
        raise


def _not_done(what: str, who: str, error: OSError) -> SeraiError:
    hint = "make room, or make it readable and writable for you"
    return SpawnFailed(f"{what}: {error.strerror or error}", who=who, errno=error.errno or 0, hint=hint)
