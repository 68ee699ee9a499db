"""Claude Code as a child process (spec agents 2).

`factory` opens a session, `driver` runs its turns. `installation` finds the installed program, `options` and `launch` say how it is
started, `connection` is the wire to it. `turns` puts events in order, `approvals` answers permission requests and hook callbacks,
`tool_server` offers tools inside the control protocol, `text_mode` runs one process for each prompt, `transcripts` reads the
sessions that Claude Code stores.
"""
