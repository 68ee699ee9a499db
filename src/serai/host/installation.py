"""What `serai guest add`, `remove`, `enable` and `disable` do (spec zot 1.4).

A guest is copied or cloned beside its place and then moved there in one step: nothing half-made is ever found.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from serai import atomic_file, paths
from serai.errors import BadManifest, BadSettings, NoGuest, NotWritten, PeerGone, PeerTimeout, SeraiError
from serai.host.adapters import DIALECTS, ENDINGS, load_reader
from serai.host.discovery import DiscoveryResult
from serai.host.guest_manifest import (
    SCOPES,
    GuestManifest,
    find_packed_dialect,
    inspect_folder,
    list_folders,
    read_manifest,
    write_default_files,
)
from serai.host.guest_settings import PersonSettings, read_person_settings
from serai.wire.plain_process import PlainSpawner
from serai.wire.process import Launch

log = logging.getLogger("serai.host")

_CLONE = 300.0  # seconds
_MANIFESTS = " or ".join(row.manifest for row in DIALECTS.values())
_HIDDEN = ".serai-"  # begins the name of what is half made, or half gone


def is_url(source: str) -> bool:
    """Whether it is something to clone rather than a folder."""
    return source.startswith(("https://", "git@")) or (source.endswith(".git") and not os.path.isdir(source))


def add(source: str, *, environ: Mapping[str, str] = os.environ, name: str = "") -> Path:
    """Copy a guest's folder to the user's guests; where it is now. Its mode bits stay, and links that do not lead out of it.

    A guest that is one file is copied as that.
    """
    folder = os.path.realpath(paths.absolute_path(source))  # before the base name is taken, so that `.` has one
    if find_packed_dialect(Path(folder)) and os.path.isfile(folder):
        return _add_file(Path(folder), environ, name)
    if not os.path.isdir(folder):
        hint = "a guest is a folder with a manifest, and `serai guest bundle` prints the one for a bundle"
        raise NoGuest(f"not a directory: {source}", who=folder, hint=hint)
    if not _has_manifest(folder):
        raise BadManifest(f"source lacks {_MANIFESTS}", who=folder, hint="name the folder that holds the guest's manifest")
    target = _prepare_target(environ, name or os.path.basename(folder))
    if os.path.realpath(target).startswith(f"{folder}/"):
        raise BadSettings("a folder cannot be copied into itself", who=folder, hint="name the guest's own folder")
    with _make_temporary(target) as temporary:
        _copy_tree(folder, temporary)
        _move_into_place(temporary, target)
    _write_defaults(target, environ)
    return target


def _add_file(file: Path, environ: Mapping[str, str], name: str) -> Path:
    folder = inspect_folder(file)
    if folder is not None:
        read_manifest(folder, "ad hoc", read_person_settings(paths.read_settings(environ)))  # what nobody could start is not taken
    ending = next(ending for ending in ENDINGS if file.name.endswith(ending))
    target = _prepare_target(environ, f"{name.removesuffix(ending)}{ending}" if name else file.name)
    _refuse_duplicate(file, target)
    temporary = target.with_name(f"{_HIDDEN}{secrets.token_hex(8)}")
    try:
        try:
            shutil.copyfile(file, temporary)
            os.chmod(temporary, 0o600)
            os.link(temporary, target)  # which does not take the place of another
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise _build_error("cannot be copied", str(file), error) from None
    return target


async def add_url(url: str, *, environ: Mapping[str, str] = os.environ, name: str = "", timeout: float = _CLONE) -> Path:
    """Clone a guest to the user's guests; where it is now. A clone without a manifest is removed again."""
    target = _prepare_target(environ, name or _parse_base_name(url))
    with _make_temporary(target) as temporary:
        await _clone(url, temporary, environ, timeout)
        if not _has_manifest(str(temporary)):
            raise BadManifest(f"installed dir lacks {_MANIFESTS}; aborted and rolled back", who=_mask_url(url))
        _move_into_place(temporary, target)
    _write_defaults(target, environ)
    return target


def remove(manifest: GuestManifest) -> None:
    """Delete a guest's folder; of a linked one only the link. It is gone in one step, then its files go, or it is there again."""
    if manifest.scope == "ad hoc":
        hint = "leave it off the command line, or delete the folder yourself"
        raise NoGuest(f"{manifest.id} is not installed: it was named on the command line", who=str(manifest.folder), hint=hint)
    _check_inside(_find_root(manifest), os.path.realpath(manifest.folder.parent), manifest)
    gone = manifest.folder.with_name(f"{_HIDDEN}{secrets.token_hex(8)}")
    try:
        if manifest.folder.is_symlink() or manifest.folder.is_file():
            manifest.folder.unlink()
            return
        manifest.folder.rename(gone)
    except OSError as error:
        raise _build_error("cannot be removed", str(manifest.folder), error) from None
    try:
        _delete(gone)
    except OSError as error:
        with suppress(OSError):
            gone.rename(manifest.folder)
        raise _build_error(f"cannot be removed: {error.filename}", str(manifest.folder), error) from None


def has_switch(manifest: GuestManifest) -> bool:
    """Whether its manifest can say that it is off; where its protocol knows no such key, only settings can (spec piglet 1.3)."""
    return _is_granted(manifest) or bool(getattr(load_reader(manifest.dialect), "HAS_SWITCH", True))


def set_enabled(manifest: GuestManifest, enabled: bool) -> None:
    """Switch a guest on or off in its manifest; nothing else of it changes, its mode included."""
    if _is_granted(manifest):
        said = "`serai guest grant` switches it on, `serai guest revoke` off"
        raise BadSettings("a plugin runs as far as it was granted, and has no switch", who=manifest.id, hint=said)
    if (reading := load_reader(manifest.dialect)) is None:
        raise BadManifest(f"the dialect {manifest.dialect} has no such switch yet", who=str(manifest.folder))
    if enabled and not manifest.settings.enabled:
        raise BadSettings(f'`[guest."{manifest.id}"]` or `[guest.{manifest.name}]` says `enabled = false`', who="config.toml")
    file = os.path.realpath(manifest.file)  # a link to it stays a link
    _check_inside(_find_root(manifest, linked=True), file, manifest)
    try:
        _write(file, reading.set_enabled(Path(file).read_bytes(), enabled))
    except ValueError as error:
        raise BadManifest(str(error), who=str(manifest.folder)) from None
    except OSError as error:
        raise _build_error("cannot be rewritten", file, error) from None


def _is_granted(manifest: GuestManifest) -> bool:
    """Whether grants say if it runs: its dialect's finder knows of them."""
    return manifest.dialect in DIALECTS and bool(DIALECTS[manifest.dialect].finder)


def choose(found: DiscoveryResult, name: str) -> GuestManifest:
    """The guest of that id, manifest name or folder name: ad hoc before project before user (spec zot 1.4)."""
    fitting = [(_rank(manifest, name), manifest) for manifest in found.iter_all() if name in _list_names(manifest)]
    if not fitting:
        raise _build_no_guest(found, name)
    nearest = min(rank for rank, _ in fitting)
    best = [manifest for rank, manifest in fitting if rank == nearest]
    ids = sorted({manifest.id for manifest in best})
    if len(ids) > 1:
        raise NoGuest(f"{name} may be {' or '.join(ids)}", hint="say which, by its id")
    return best[0]


def _list_names(manifest: GuestManifest) -> tuple[str, ...]:
    """What a guest may be called, the most telling first; a plugin also by the source that it is from."""
    return (manifest.id, getattr(manifest.about, "identity", manifest.id), manifest.name, manifest.folder.name)


def _rank(manifest: GuestManifest, name: str) -> tuple[int, int]:
    return SCOPES.index(manifest.scope), _list_names(manifest).index(name)


def _build_no_guest(found: DiscoveryResult, name: str) -> NoGuest:
    broken = next((problem for problem in found.problems if problem.folder.name == name), None)
    if broken is not None:
        return NoGuest(f"{name} cannot be read: {broken.reason}", who=str(broken.folder), hint="mend it, or delete the folder")
    ids = sorted({manifest.id for manifest in found.iter_all()})
    why = f"there is no guest {name}; there is {', '.join(ids)}" if ids else f"there is no guest {name}, nor any other"
    is_path = "/" in name  # as `serai guest check` takes it
    hint = "a guest goes by its name here; `serai guest add FOLDER` installs one, `--guest FOLDER` takes it in for one command"
    return NoGuest(why, hint=hint if is_path else "")


def _prepare_target(environ: Mapping[str, str], name: str) -> Path:
    if not name or "/" in name or "\0" in name or name.startswith("."):
        raise NoGuest(f"{name!r} is no name for a guest's folder", hint="give it one with --name, without a dot in front")
    read_person_settings(paths.read_settings(environ))  # a mistake in them is told before anything is done
    target = Path(paths.config_folder(environ)) / "guests" / name
    if os.path.lexists(target):
        hint = f"`serai guest remove {name}`, or give another name"
        raise BadSettings(f"destination {target} already exists; remove it first", who=name, hint=hint)
    try:
        paths.make_private_folder(target.parent)
    except OSError as error:
        raise _build_error("cannot be made", str(target.parent), error) from None
    return target


@contextmanager
def _make_temporary(target: Path) -> Iterator[Path]:
    """A hidden sibling: on the same disk, and no place where guests are looked for. It is gone afterwards, whatever happens.

    Only a kill leaves it. So it is locked, which ends with the process, and the next one sweeps up what nobody has locked.
    """
    _sweep(target.parent)
    temporary = target.with_name(f"{_HIDDEN}{secrets.token_hex(8)}")
    try:
        temporary.mkdir(mode=0o700)
        descriptor = os.open(temporary, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise _build_error("cannot be made", str(temporary), error) from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield temporary
    finally:
        with suppress(OSError):
            _delete(temporary)
        os.close(descriptor)


def _sweep(place: Path) -> None:
    for left in place.glob(f"{_HIDDEN}*"):
        try:
            descriptor = os.open(left, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            continue
        with suppress(OSError):  # somebody is at work there, or it is not ours
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _delete(left)
        os.close(descriptor)


def _delete(folder: Path) -> None:
    """A folder and all in it, also what its owner made read-only."""
    try:
        shutil.rmtree(folder)
        return
    except OSError:
        if not folder.is_dir():
            return
    for path, folders, _ in os.walk(folder):  # from the top: each is opened before it is entered
        os.chmod(path, 0o700)
        for inner in (os.path.join(path, name) for name in folders):
            if not os.path.islink(inner):
                os.chmod(inner, 0o700)
    shutil.rmtree(folder)


def _move_into_place(temporary: Path, target: Path) -> None:
    """Move what is complete to its place, if no link leads out of it and no other guest has its id."""
    _refuse_duplicate(temporary, target)
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
        raise _build_error("cannot be moved to its place", str(target), error) from None


def _write_defaults(target: Path, environ: Mapping[str, str]) -> None:
    """The files it ships for its settings, now, so that a person can edit them before it runs (spec piglet 1.5)."""
    try:
        folder = inspect_folder(target)
        manifest = read_manifest(folder, "user", read_person_settings(paths.read_settings(environ))) if folder is not None else None
    except BadManifest:  # finding tells of that
        return
    for line in write_default_files(manifest, paths.config_folder(environ)) if manifest is not None and manifest.active else ():
        log.warning("%s: %s", target, line)


def _refuse_duplicate(folder: Path, target: Path) -> None:
    """Of two with one id only one is started, and which depends on their names: nobody wants that."""
    if (id := _read_id(folder)) and (
        twin := next((other for other in list_folders(target.parent, endings=ENDINGS) if _read_id(other) == id), None)
    ):
        hint = f"`serai guest remove {twin.name}` first"
        raise BadSettings(f"{id} is there already, in {twin}", who=target.name, hint=hint)


def _read_id(path: Path) -> str:
    """Empty when it cannot be read: finding tells of that."""
    try:
        folder = inspect_folder(path)
        return read_manifest(folder, "user", PersonSettings()).id if folder else ""
    except BadManifest:
        return ""


def _find_root(manifest: GuestManifest, *, linked: bool = False) -> str:
    """The folder beyond which nothing may be changed for a guest's sake: whoever sends a project may have put links into it.

    `linked`: a link among the person's own guests was put there by the person, so what it leads to may be changed.
    """
    if manifest.scope == "project":
        return os.path.realpath(manifest.folder.parents[2])
    inside = manifest.scope == "ad hoc" or (linked and manifest.folder.is_symlink())
    return os.path.realpath(manifest.folder if inside else manifest.folder.parent)


def _check_inside(root: str, path: str, manifest: GuestManifest) -> None:
    if path != root and not path.startswith(f"{root}/"):
        hint = "it is reached through a link: change it there yourself"
        raise BadManifest(f"it really lies in {path}, outside of {root}", who=str(manifest.folder), hint=hint)


def _copy_tree(folder: str, target: Path) -> None:
    try:
        shutil.copytree(folder, target, symlinks=True, copy_function=_copy, dirs_exist_ok=True)
    except shutil.Error as error:  # the first of what copytree collected says enough
        raise _build_error("cannot be copied", folder, OSError(str(error.args[0][0][2]))) from None
    except OSError as error:
        raise _build_error("cannot be copied", folder, error) from None


def _copy(source: str, target: str) -> str:
    if not stat.S_ISREG(os.lstat(source).st_mode):
        raise shutil.SpecialFileError(f"{source} is neither a file nor a folder")
    return str(shutil.copy(source, target))


async def _clone(url: str, target: Path, environ: Mapping[str, str], timeout: float) -> None:
    # The person's own act: git may use what the person has, but it cannot ask, and it runs no helper that the address names.
    env = {**environ, "GIT_TERMINAL_PROMPT": "0", "GIT_ALLOW_PROTOCOL": "file:git:http:https:ssh"}
    argv = ["git", "clone", "--quiet", "--depth", "1", "--", url, str(target)]
    async with PlainSpawner() as spawner:
        child = await spawner.spawn(Launch(argv=argv, env=env, who=_mask_url(url), stdin="null"))
        child.drain_noise(child.stdout)
        try:
            async with asyncio.timeout(timeout):
                status = await child.exited
        except TimeoutError:
            raise PeerTimeout(f"git clone took longer than {timeout:g} s", who=_mask_url(url)) from None
        if not status.ok:
            child.stderr.drain()
            said = _mask_text(child.stderr.text(), url)
            raise PeerGone("git clone failed", who=_mask_url(url), exit=status, stderr=said, hint="git says why")


def _parse_base_name(url: str) -> str:
    return re.split(r"[/:]", url.rstrip("/"))[-1].removesuffix(".git")


def _mask_url(url: str) -> str:
    """Without the password that may be in it, whatever it is made of (design rule 13)."""
    return re.sub(r"//.*@", "//…@", url, flags=re.DOTALL)


def _mask_text(text: str, url: str) -> str:
    """What git says of an address. It may have taken a `/` or `@` of the password for the end of it, and tell of the pieces."""
    text = text.replace(url, _mask_url(url))
    if user := re.search(r"//(.*)@", url, flags=re.DOTALL):
        pieces = re.split(r"[/@:]", user[1].partition(":")[2])
        for secret in sorted([user[1], *pieces], key=len, reverse=True):
            text = text.replace(secret, "…") if len(secret) > 2 else text
    return text


def _has_manifest(folder: str) -> bool:
    return any(os.path.isfile(os.path.join(folder, row.manifest)) for row in DIALECTS.values())


def _write(file: str, content: bytes) -> None:
    """Replace a file in one step, with the mode it has."""
    mode = stat.S_IMODE(os.stat(file).st_mode)
    atomic_file.write_atomically(file, content, mode=mode)


def _build_error(what: str, who: str, error: OSError) -> SeraiError:
    return NotWritten(f"{what}: {error.strerror or error}", who=who)
