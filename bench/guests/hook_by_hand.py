"""The same hook by hand."""

import json
import sys

request = json.load(sys.stdin)
json.dump({"files": [{"path": "/root/.token", "content": "token"}], "state": request["box"]["box_id"]}, sys.stdout)
