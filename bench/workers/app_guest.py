"""A guest for the bench of the app, as cheap as Python allows: it looks for what it needs instead of parsing.

app_guest.py echo NAME       a tool `echo`
app_guest.py guard NAME      asked before every tool call, and lets it pass
app_guest.py listener NAME   hears of everything that zot tells, and has a tool that says how much it has heard
"""

import os
import sys

LISTENS = b'"events":["session_start","turn_start","turn_end","tool_call","assistant_message"]'
OFFERS = {
    "echo": b'{"type":"register_tool","name":"echo","schema":{"type":"object","properties":{"text":{"type":"string"}}}}\n',
    "guard": b'{"type":"subscribe","intercept":["tool_call"]}\n',
    "listener": b'{"type":"register_tool","name":"heard_NAME","schema":{"type":"object"}}\n{"type":"subscribe",%b}\n' % LISTENS,
}
CALL, QUESTION = b'{"type":"tool_call","id":"', b'{"type":"event_intercept","id":"'
PASS = b'{"type":"event_intercept_response","id":"%b"}\n'
RESULT = b'{"type":"tool_result","id":"%b","content":[{"type":"text","text":"%b"}]}\n'


def main(role: str, name: str) -> None:
    offer = OFFERS[role].replace(b"NAME", name.encode())
    os.write(1, b'{"type":"hello","name":"%b","version":"1"}\n%b{"type":"ready"}\n' % (name.encode(), offer))
    heard, rest = 0, b""
    while got := os.read(0, 65536):
        *lines, rest = (rest + got).split(b"\n")
        answers = []
        for line in lines:
            if line.startswith(b'{"type":"event","'):
                heard += 1
            elif line.startswith(QUESTION):
                answers.append(PASS % line.split(b'"', 8)[7])
            elif line.startswith(CALL):
                text = str(heard).encode() if role == "listener" else line[line.rindex(b'"text":"') + 8 : line.rindex(b'"')]
                answers.append(RESULT % (line.split(b'"', 8)[7], text))
            elif line.startswith(b'{"type":"shutdown"'):
                return
        if answers:
            os.write(1, b"".join(answers))


if __name__ == "__main__":
    main(*sys.argv[1:])
