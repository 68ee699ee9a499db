"""Sessions that an agent program stores itself: Claude Code's transcripts (spec agents 4), read only.

    transcripts = reader.Transcripts()
    for session in transcripts.list_recent("/home/me/project", 10, metadata.default_filter):
        print(session.session_id, session.title)

`reader` has `Transcripts`, `files` finds and opens the files, `rows` decodes their rows, `metadata` sums a session up and filters.
Serai's own sessions are in `serai.store`.
"""
