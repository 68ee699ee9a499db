#!/bin/sh
# A token for each box, and no token without its box. Needs jq.
#
# A hook is a program. It is run when a box is made (event box.create) and when that box is gone (box.destroy): each time it reads
# one JSON object from stdin, writes one to stdout and exits. Status 0 means that all is well; with any other there is no box.
#
# The "token server" here is a folder: to mint a token is to write a file there, to revoke it is to remove that file.
set -eu

# Hooks get the environment of whoever makes the box: that is how they are configured.
: "${TOKENS_DIR:?set it to the folder of the token server}"

# The request need not end in a newline, so read all there is. A real parser reads the rest: the texts in it may hold anything.
request=$(cat)
event=$(printf '%s' "$request" | jq -r .event)

random() { # so many bytes, in hexadecimal
    od -An -v -tx1 -N"$1" /dev/urandom | tr -d ' \n'
}

case $event in
box.create)
    id=$(random 8)
    token=$(random 32)
    umask 077
    mkdir -p "$TOKENS_DIR"
    # The answer of a hook that fails is not read, and so its state is lost: what fails here has to take the token back itself.
    # (Whoever takes too long gets SIGTERM.)
    trap 'rm -f "$TOKENS_DIR/$id"' EXIT
    trap 'exit 1' TERM
    printf '%s\n' "$token" >"$TOKENS_DIR/$id"
    # The file goes into the box. The state stays outside, and comes back on box.destroy: whoever returns none is not called then.
    # The token comes to jq through a pipe, because the arguments of a program can be seen by everybody.
    printf '%s\n' "$token" | jq -Rc --arg id "$id" \
        '{files: [{path: "/root/.config/token", content: (. + "\n"), mode: "0600"}], state: $id}'
    trap - EXIT
    ;;
box.destroy)
    id=$(printf '%s' "$request" | jq -r '.state // ""')
    case $id in
    '' | *[!0-9a-f]*)
        echo 'the state is none of ours' >&2
        exit 1
        ;;
    esac
    rm -f "$TOKENS_DIR/$id" # that it is gone already is no error: the same state may come back twice
    echo '{}'
    ;;
*)
    echo '{}' # there may be more events one day
    ;;
esac
