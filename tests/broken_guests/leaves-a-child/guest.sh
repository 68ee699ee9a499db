#!/bin/sh
# Starts a helper and forgets it.
tail -f /dev/null >/dev/null 2>&1 </dev/null &

cat <<'FRAMES'
{"type":"hello","name":"leaves-a-child","version":"1"}
{"type":"subscribe","events":["turn_end"]}
{"type":"ready"}
FRAMES

cat >/dev/null # until the end of input, which comes with shutdown
