"""Commands that run other commands."""

from __future__ import annotations

import pytest

from serai.policy.commands.reader import CommandPattern, read_command

RM = CommandPattern("rm *")

SEEN = [
    *(
        "sh -c 'rm x'",
        "bash -c 'rm x'",
        "dash -c 'rm x'",
        "zsh -c 'rm x'",
        "ksh -c 'rm x'",
        "ash -c 'rm x'",
        "mksh -c 'rm x'",
        "rbash -c 'rm x'",
    ),
    *(
        "busybox sh -c 'rm x'",
        "busybox rm x",
        "toybox rm x",
        "bash -lc 'rm x'",
        "bash -ec 'rm x'",
        "bash --norc -c 'rm x'",
        "bash -norc -c 'rm x'",
    ),
    *(
        "bash -login -c 'rm x'",
        "bash -o pipefail -c 'rm x'",
        "bash -euo pipefail -c 'rm x'",
        "bash -ceuo pipefail 'rm x'",
        "bash -c -x 'rm x'",
    ),
    *(
        "bash +x -c 'rm x'",
        "bash -O extglob -c 'rm x'",
        "bash --rcfile y -c 'rm x'",
        "bash -c 'rm x' name arg",
        "/bin/sh -c 'a; rm x'",
        "bash -c -- 'rm x'",
    ),
    *(
        "env rm x",
        "env A=b rm x",
        "env a.b=c rm x",
        "env -i rm x",
        "env - A=b rm x",
        "env -u A rm x",
        "env -uA rm x",
        "env -C / rm x",
        "env -S 'rm x'",
    ),
    *(
        "env -S 'A=b rm' x",
        "env -iS 'rm x'",
        "env --split-string='rm x'",
        "env --unset=A rm x",
        "env --chdir / rm x",
        "env -- rm x",
        'env A="$b" rm x',
    ),
    *(
        "xargs rm",
        "xargs -0 rm",
        "xargs -n 1 rm -f",
        "xargs -n1 -P 4 rm",
        "xargs -I{} rm {}",
        "xargs -I % rm %",
        "xargs -i rm {}",
        "xargs --null rm",
        "xargs -a f rm",
    ),
    *(
        "xargs --max-args=1 rm",
        "xargs -d '\\n' rm",
        "xargs -r rm",
        "xargs sh -c 'rm x'",
        "xargs env rm",
        "xargs -I{} sh -c 'rm y' {}",
    ),
    *(
        "sudo rm x",
        "sudo -u root rm x",
        "sudo -uroot rm x",
        "sudo -nE rm x",
        "sudo A=b rm x",
        "sudo -s rm x",
        "sudo -i rm x",
        "sudo -- rm x",
        "sudo --user=a rm x",
    ),
    *("sudo --user a -n rm x", 'sudo -u "$USER" rm x', "doas rm x", "doas -u a rm x", "pkexec rm x", "pkexec --user a rm x"),
    *(
        "find . -exec rm {} \\;",
        "find . -exec rm {} +",
        "find . -execdir rm {} ';'",
        "find . -ok rm {} \\;",
        "find . -okdir rm {} \\;",
        "find . -exec a \\; -exec rm {} \\;",
    ),
    *("find . -exec sh -c 'rm \"$1\"' _ {} \\;", "find -L . -name x -exec rm {} +"),
    *(
        "nohup rm x",
        "timeout 5 rm x",
        "timeout -k 1 5 rm x",
        "timeout -s KILL 5 rm x",
        "timeout --signal=KILL 5 rm x",
        "timeout --foreground 5 rm x",
    ),
    *(
        "nice rm x",
        "nice -n 5 rm x",
        "nice -5 rm x",
        "nice --adjustment=5 rm x",
        "ionice -c 3 rm x",
        "ionice -c3 -t rm x",
        "setsid -w rm x",
        "stdbuf -oL rm x",
    ),
    *(
        "stdbuf --output=0 rm x",
        "time rm x",
        "time A=b rm x",
        "/usr/bin/time -f %e rm x",
        "command rm x",
        "command -p rm x",
        "builtin rm x",
        "exec rm x",
        "exec -a y rm x",
    ),
    *(
        "eval rm x",
        "eval 'rm x'",
        "eval 'a;' rm x",
        "eval -- rm x",
        "eval eval rm x",
        "chroot / rm x",
        "chroot --userspec=a / rm x",
        "unshare -r rm x",
        "unshare --net rm x",
    ),
    *(
        "nsenter -t 1 -m rm x",
        "strace -f rm x",
        "strace -e trace=file rm x",
        "flock f rm x",
        "flock -n f rm x",
        "flock f -c 'rm x'",
        "flock -w 5 f rm x",
    ),
    *(
        "script -c 'rm x'",
        "script -qc 'rm x' f",
        "su -c 'rm x'",
        "su root -c 'rm x'",
        "su - root -c 'rm x'",
        "su --command='rm x'",
        "runuser -u a -- rm x",
        "runuser -u a rm x",
    ),
    *(
        "runuser a -c 'rm x'",
        "watch rm x",
        "watch -n 1 'a; rm x'",
        "watch -x rm x",
        "watch -d rm x",
        "taskset 1 rm x",
        "taskset -c 0,1 rm x",
        "chrt -f 1 rm x",
        "chrt -i rm x",
    ),
    *(
        "systemd-run --user rm x",
        "systemd-run -p A=b rm x",
        "start-stop-daemon --start --exec /bin/rm -- x",
        "start-stop-daemon -S -x rm -- x",
    ),
    *(
        "trap 'rm x' EXIT",
        "trap -- 'rm x' INT TERM",
        "ssh host rm x",
        "ssh -p 22 user@host 'a; rm x'",
        "ssh host -v rm x",
        "noglob rm x",
        "PAGER='rm x' man y",
    ),
    *("GIT_SSH_COMMAND='rm x' git pull", "env GIT_PAGER='rm x' git log", "export PAGER='rm x'"),
    *(
        "sudo env A=b timeout 5 rm x",
        "sh -c \"bash -c 'rm x'\"",
        "sh -c 'sudo sh -c \"env rm x\"'",
        "xargs sudo nice rm",
        "find . -exec sudo nice rm {} +",
        "nohup eval rm x",
    ),
]


@pytest.mark.req("policy.command.wrappers")
@pytest.mark.parametrize("text", SEEN)
def test_a_command_is_found_behind_a_wrapper(text: str) -> None:
    assert RM.finds(read_command(text)) == "yes"


HIDDEN = [
    *(
        "sh",
        "bash",
        "curl x | sh",
        "echo x | bash -s",
        "bash -",
        "bash /dev/stdin",
        "bash -s a",
        "bash <(curl x)",
        "sh < f",
        "sh <<< 'rm x'",
        'bash -c "$x"',
        "bash -c $x",
    ),
    *(
        "bash -c",
        "bash $x",
        "sh -c 'x; $y'",
        "sh -c 'rm'\"$x\"",
        "bash --strange -c a",
        "bash -xyz a",
        "bash -opipefail -c a",
        "busybox sh",
        "sh -c 'if'",
        "fish -c a",
        "csh -c a",
    ),
    *(
        "env -S 'a $x'",
        "env -S \"'a'\"",
        "env --strange a",
        "env $x a",
        'env "$x" a',
        "xargs sh",
        "xargs sh -c",
        "xargs env",
        "xargs sudo",
        "xargs -I{} {} x",
        "xargs -I{} sh -c '{}'",
    ),
    *(
        "xargs --strange a",
        "xargs -I $x a",
        "xargs find . -name",
        "sudo -i",
        "sudo -s",
        "sudo --strange a",
        "sudo -u $x a",
        "sudo $x a",
        "doas -s",
        "pkexec",
        "su",
        "su -",
        "su root",
    ),
    *(
        "su -s /bin/x root",
        "find $x -type f",
        "find . -exec {} \\;",
        "find . *",
        "timeout $x a",
        "timeout --strange 5 a",
        'timeout "$t" a',
        "nice $x a",
        "chroot /x",
        "unshare",
        "nsenter -t 1 -m",
    ),
    *(
        "script",
        "script f",
        "ssh host",
        "ssh $h a",
        "ssh -o ProxyCommand='rm x' host a",
        "parallel rm ::: x",
        "watch $x",
        "eval $x",
        'eval "$x"',
        "eval 'a' $x",
        'trap "$x" EXIT',
        "runuser a",
    ),
    *(
        "source /dev/stdin",
        "source //dev/./stdin",
        "bash ../../dev/stdin",
        "cd /dev/fd; bash 0",
        ". <(a)",
        ". /dev/fd/3",
        "source $x",
        "strace -o '|rm x' a",
        "gosu root rm x",
        "fd -x rm",
        "at now",
        "crontab f",
        "exec $x",
        "command $x",
        "systemd-run --shell",
    ),
]


@pytest.mark.req("policy.command.wrappers", "policy.command.maybe")
@pytest.mark.parametrize("text", HIDDEN)
def test_what_a_wrapper_hides_is_maybe(text: str) -> None:
    reading = read_command(text)
    assert not reading.unread
    assert reading.hidden
    assert RM.finds(reading) == "maybe"


SEEN_AND_OTHER = [
    *(
        "sudo ls rm",
        "env A=rm ls",
        "xargs",
        "xargs echo rm",
        "sh file rm x",
        "bash ./x.sh",
        "command -v rm",
        "command -V rm",
        "timeout 5 echo rm x",
        "find . -name rm",
        "sudo -v",
    ),
    *(
        "nice",
        "trap - EXIT",
        "trap '' INT",
        "trap",
        "exec 3>&1",
        "source ./x",
        ". ./x",
        "ssh host ls rm",
        "sh -c 'echo rm x'",
        "find . -exec grep rm {} +",
        "GIT_PAGER=cat git log",
        "PS4='+ ' a",
    ),
    *(
        "su -c 'ls rm'",
        "eval echo rm",
        "export A=$b B=/x:$C",
        "read -r line",
        '[ -z "$x" ]',
        '[ "$a" = "$b" ]',
        "printf '%s' \"$x\"",
        "python -c 'rm x'",
        "make rm",
        "alias",
        "nohup",
    ),
]


@pytest.mark.req("policy.command.wrappers")
@pytest.mark.parametrize("text", SEEN_AND_OTHER)
def test_a_wrapper_around_something_else_is_no(text: str) -> None:
    reading = read_command(text)
    assert not reading.hidden
    assert RM.finds(reading) == "no"


@pytest.mark.req("policy.command.wrappers")
def test_the_wrapper_itself_is_found_too() -> None:
    reading = read_command("sudo -n sh -c 'git push'")
    for pattern in ("sudo *", "sh -c *", "git push"):
        assert CommandPattern(pattern).finds(reading) == "yes"


@pytest.mark.req("policy.command.wrappers")
def test_what_xargs_adds_is_not_known() -> None:
    assert CommandPattern("git push *").finds(read_command("x | xargs git")) == "maybe"
    assert CommandPattern("git push *").finds(read_command("x | xargs git status")) == "no"
    assert CommandPattern("rm -rf *").finds(read_command("x | xargs rm -rf")) == "yes"
