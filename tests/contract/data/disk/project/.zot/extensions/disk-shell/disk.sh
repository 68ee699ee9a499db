#!/bin/sh
# How much room is left on the disk: a zot extension in POSIX shell with jq (1.6 or newer).
#
# Frames, one JSON object per line, go over stdin and stdout; stderr is for the log. jq reads and writes them, so that
# no text, however odd, is ever quoted by hand. Requests are served one after the other: df is quick.

command -v jq >/dev/null || { echo "disk: this extension needs jq" >&2; exit 1; }

export LC_ALL=C # numbers and complaints of df in one form everywhere
here=$PWD # until hello_ack says where the agent works

# Prints how much room there is at a path, or fails and prints why not.
room() {
  case $1 in /*) path=$1 ;; *) path=$here/$1 ;; esac
  measured=$(df -Pk -- "$path" 2>&1) || { printf '%s\n' "$measured"; return 1; }
  printf '%s\n' "$measured" | awk 'NR == 2 {
    gib = 1024 * 1024
    printf "%.1f GiB free of %.1f GiB on %s\n", $4 / gib, $2 / gib, $6
  }'
}

# Prints the value that a jq program finds in the frame.
field() { printf '%s\n' "$frame" | jq -r "$1"; }

# Answers the frame: a jq program for the fields, and the text it calls $text. The id is echoed as it came.
answer() { printf '%s\n' "$frame" | jq -c --arg text "$2" "{id} + $1"; }

tool_result='{type: "tool_result", content: [{type: "text", text: $text}]}'
command_response='{type: "command_response", action: "display", display: $text}'
command_error='{type: "command_response", action: "noop", error: $text}'

# Arguments are whatever the model made of the schema; a path that no machine could have is not tried.
a_path='if type == "string" and length > 0 and length < 1024 and (explode | all(. > 0)) then . else empty end'

disk_free() {
  path=$(field ".args | objects | .path | $a_path")
  if [ -z "$path" ]; then
    answer "$tool_result + {is_error: true}" 'disk_free needs a path, as in {"path": "/"}'
  elif text=$(room "$path"); then
    answer "$tool_result" "$text"
  else
    answer "$tool_result + {is_error: true}" "$text"
  fi
}

disk() {
  path=$(field ".args | $a_path") # absent when the person typed none
  if text=$(room "${path:-$here}"); then answer "$command_response" "$text"; else answer "$command_error" "$text"; fi
}

# All of this is said at once, without waiting for the host: hello comes first, ready comes last.
cat <<'FRAMES'
{"type":"hello","name":"disk","version":"1.0.0","capabilities":["commands","tools"]}
{"type":"register_command","name":"disk","description":"show how much room is left, here or at a path"}
{"type":"register_tool","name":"disk_free","description":"How much room is left on the disk of a path.","schema":{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}}
{"type":"ready"}
FRAMES

# The first jq gives two lines for each frame: what it is, and all of it. It drops what is no frame, and requests that
# cannot be answered because their id is no text. At shutdown it halts; at the end of input, which means the same, it ends.
jq --unbuffered -nrR '
  inputs | (try fromjson catch empty) | objects
  | select(.type == "hello_ack" or .type == "shutdown" or (.id | type) == "string")
  | ([.type, .name] | tojson), tojson, (if .type == "shutdown" then halt else empty end)
' | while IFS= read -r what && IFS= read -r frame; do
  case $what in
    '["tool_call","disk_free"]') disk_free ;;
    '["command_invoked","disk"]') disk ;;
    '["tool_call",'*) answer "$tool_result + {is_error: true}" "there is no such tool here" ;;
    '["command_invoked",'*) answer "$command_error" "there is no such command here" ;;
    '["hello_ack",'*) cwd=$(field ".cwd | $a_path") && here=${cwd:-$here} ;;
    '["shutdown",'*) echo '{"type":"shutdown_ack"}' ;;
  esac
done
