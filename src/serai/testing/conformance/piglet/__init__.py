"""The rules that bind a piglet guest: what it says (`words`), what it lives through (`faults`), and what binds any (`living`)."""

from __future__ import annotations

from serai.testing.conformance import answering, living
from serai.testing.conformance.piglet import faults, words
from serai.testing.conformance.piglet.examination import examine
from serai.testing.conformance.report import Rule

__all__ = ["RULES", "examine"]

RULES = (
    Rule(
        "manifest",
        "its manifest can be read and its program is there",
        answering.manifest,
        ("piglet.rule.manifest-required", "piglet.rule.runtime-names", "piglet.rule.runtime-paths"),
        opening=True,
    ),
    Rule(
        "handshake",
        "it answers initialize in time, and stays",
        words.handshake,
        ("piglet.method.initialize", "piglet.rule.handshake-timeout", "piglet.fix.02", "piglet.fix.08"),
        opening=True,
    ),
    Rule("stdout", "its wire carries messages only", words.stdout, ("piglet.rule.framing-noise",), last=True),
    Rule(
        "frames",
        "its messages are as the protocol has them",
        words.frames,
        ("piglet.rule.envelope-shapes", "piglet.rule.envelope-ids", "piglet.rule.register-undecodable", "piglet.fix.03"),
        last=True,
    ),
    Rule(
        "registrations",
        "what it registers can be used",
        words.registrations,
        ("piglet.method.register/tool", "piglet.method.register/shortcut", "piglet.fix.10", "piglet.rule.register-repeat"),
    ),
    Rule("in-time", "it registers all before it answers initialize", words.in_time, ("piglet.rule.register-late",), last=True),
    Rule("answers", "each request is answered once, under its own id", answering.answers, ("piglet.rule.envelope-ids",), last=True),
    Rule(
        "unknown-names",
        "a tool or command that it does not have is answered with an error",
        answering.unknown_names,
        ("piglet.rule.error-codes",),
    ),
    Rule(
        "unknown-methods",
        "a method that it does not know is answered with an error",
        words.unknown_methods,
        ("piglet.rule.error-codes",),
    ),
    Rule("odd-arguments", "whatever a model makes of the arguments is answered", answering.odd_arguments, ("piglet.edge.13",)),
    Rule(
        "intercept",
        "a question about a tool is answered in time, and well",
        words.intercept,
        ("piglet.method.interceptor/before", "piglet.method.interceptor/after", "piglet.edge.02"),
    ),
    Rule("events", "each event that it wants is answered", words.events, ("piglet.method.event/dispatch", "piglet.rule.actions")),
    Rule(
        "hooks",
        "its message hooks, input transformers and compactor answer well",
        words.hooks,
        ("piglet.method.messageHook/onMessage", "piglet.method.inputTransformer/transform", "piglet.method.compact/execute"),
    ),
    Rule("idle", "it stays while nobody asks it anything", living.idle, ("piglet.method.shutdown",), long=True),
    Rule(
        "optional-fields",
        "it does without fields that a host may leave out",
        faults.optional_fields,
        ("piglet.method.initialize", "piglet.edge.13"),
    ),
    Rule("poor-host", "it opens although its host refuses what it asks", faults.poor_host, ("piglet.fix.09",)),
    Rule("any-json", "requests and ids are read however they are written", faults.any_json, ("piglet.rule.envelope-ids",)),
    Rule("not-json", "lines that are no messages do it no harm", faults.not_json, ("piglet.rule.framing-noise",)),
    Rule(
        "unknown-frames",
        "unknown notifications, fields and answers do it no harm",
        faults.unknown_frames,
        ("piglet.rule.envelope-shapes", "piglet.edge.37"),
    ),
    Rule(
        "oversize",
        "a line of 4 MiB is read, and a longer one does not make it hang",
        faults.oversize,
        ("piglet.rule.framing-send-limit",),
        long=True,
    ),
    Rule("burst", "64 requests at once are each answered", living.burst, ("piglet.fix.06", "piglet.edge.31"), long=True),
    Rule(
        "open-requests",
        "requests that are open keep neither others nor the end",
        living.open_requests,
        ("piglet.fix.06", "piglet.edge.05"),
    ),
    Rule(
        "cancel",
        "requests that are taken back do it no harm",
        faults.cancel,
        ("piglet.method.$/cancelRequest", "piglet.edge.08"),
    ),
    Rule("shutdown", "it ends after shutdown", living.shutdown, ("piglet.method.shutdown", "piglet.edge.09")),
    Rule(
        "shutdown-request",
        "it answers a shutdown that is a request, and ends",
        faults.shutdown_request,
        ("piglet.rule.sdk-transport",),
    ),
    Rule("end-of-input", "it ends when its input ends", living.eof, ("piglet.rule.stop-ladder",)),
    Rule("host-gone", "it ends when its host is gone", living.host_gone, ("piglet.rule.stop-ladder",)),
    Rule("terminate", "SIGTERM ends it", living.terminate, ("piglet.rule.stop-ladder",)),
    Rule("left-behind", "no process is left when it has ended", living.left_behind, ("piglet.edge.12",), last=True),
)
