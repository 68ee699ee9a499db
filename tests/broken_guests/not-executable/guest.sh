#!/bin/sh
# Right in every word, and nobody may execute it.
echo '{"type":"hello","name":"not-executable","version":"1"}'
echo '{"type":"ready"}'
cat >/dev/null
