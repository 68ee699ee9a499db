"""The rules that bind a zot guest: what it says (`words`), what it lives through (`faults`), and what binds any (`living`)."""

from __future__ import annotations

from serai.testing.conformance import answering, living
from serai.testing.conformance.report import Rule
from serai.testing.conformance.zot import faults, words
from serai.testing.conformance.zot.examination import examine

__all__ = ["RULES", "examine"]

RULES = (
    Rule(
        "manifest",
        "its manifest can be read and its program is there",
        answering.manifest,
        ("zot.rule.1.3-required", "zot.rule.1.3-exec"),
        opening=True,
    ),
    Rule(
        "hello",
        "it opens with a hello that has a name, in time, and stays",
        answering.opens,
        ("zot.edge.01", "zot.edge.02", "zot.frame.hello"),
        opening=True,
    ),
    Rule("stdout", "its stdout carries frames only", words.stdout, ("zot.rule.3.1-malformed",), last=True),
    Rule(
        "frames",
        "its frames are as the protocol has them",
        words.frames,
        ("zot.rule.3.1-wrong-field-type", "zot.rule.3.1-zero-values", "zot.rule.3.1-max-line"),
        last=True,
    ),
    Rule(
        "registrations",
        "what it registers can be used",
        words.registrations,
        ("zot.frame.register_tool", "zot.frame.register_command", "zot.rule.9-names"),
    ),
    Rule("ready", "it says ready after all it offers", words.ready, ("zot.edge.05", "zot.edge.47")),
    Rule("silent-host", "it says all it offers without waiting for hello_ack", words.silent_host, ("zot.edge.04",)),
    Rule(
        "answers", "each request is answered once, under its own id", answering.answers, ("zot.edge.08", "zot.edge.09"), last=True
    ),
    Rule(
        "unknown-names",
        "a tool or command that it does not have is answered with an error",
        answering.unknown_names,
        ("sdk.answer.nobody",),
    ),
    Rule("odd-arguments", "whatever a model makes of the arguments is answered", answering.odd_arguments, ("zot.edge.51",)),
    Rule(
        "intercept",
        "a question about an event is answered in time, and well",
        words.intercept,
        ("zot.edge.13", "zot.frame.event_intercept_response"),
    ),
    Rule("idle", "it stays while nobody asks it anything", living.idle, ("zot.edge.36",), long=True),
    Rule("events", "events do it no harm", faults.events, ("zot.frame.event",)),
    Rule(
        "optional-fields",
        "it does without fields that a host may leave out",
        faults.optional_fields,
        ("zot.rule.3.1-zero-values", "zot.frame.hello_ack", "zot.frame.panel_key"),
    ),
    Rule("any-json", "requests and ids are read however they are written", faults.any_json, ("zot.rule.3.1-ids",)),
    Rule("not-json", "lines that are no frames do it no harm", faults.not_json, ("zot.rule.3.1-malformed",)),
    Rule(
        "unknown-frames",
        "unknown frames and fields do it no harm",
        faults.unknown_frames,
        ("zot.rule.3.1-unknown-fields", "zot.rule.5.3-unknown-type"),
    ),
    Rule("oversize", "a line of more than 4 MiB does it no harm", faults.oversize, ("zot.ours.5.3-oversize-survived",), long=True),
    Rule("burst", "64 requests at once are each answered", living.burst, ("zot.edge.52",), long=True),
    Rule(
        "open-requests",
        "requests that are open keep neither others nor the end",
        living.open_requests,
        ("zot.edge.52", "zot.rule.5.1-shutdown"),
    ),
    Rule("shutdown", "it ends after shutdown", living.shutdown, ("zot.rule.5.1-shutdown", "zot.edge.34")),
    Rule("end-of-input", "it ends when its input ends", living.eof, ("zot.edge.36",)),
    Rule("host-gone", "it ends when its host is gone", living.host_gone, ("zot.edge.36",)),
    Rule("terminate", "SIGTERM ends it", living.terminate, ("zot.edge.35",)),
    Rule("left-behind", "no process is left when it has ended", living.left_behind, ("zot.edge.36",), last=True),
)
