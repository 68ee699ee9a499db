// What a plugin in JavaScript needs, in one file without a package: the documents that a host of plugins understands, kept within
// their bounds, and exports that let no exception out. There is no clock, no randomness, no file and no network in here, but for what
// the host gives: `import fs from "yoi:host/fs@1.0.0"`, with the permission for it in plugin.toml.

const OUTPUT = 65536; // bytes of any document
const SUMMARY = 1024;
const MESSAGE = 4096;
const CONTENT = OUTPUT - SUMMARY - MESSAGE;
const CODES = ["invalid_input", "invalid_output", "serialization", "denied", "unsupported_tool", "failed"];

// Throw it in a tool: the model is told the message.
export class ToolError extends Error {
  constructor(message, { code = "failed", details = undefined } = {}) {
    super(message);
    this.code = CODES.includes(code) ? code : "failed";
    this.details = details;
  }
}

export function size(text) {
  let bytes = 0;
  for (const char of text) {
    const code = char.codePointAt(0);
    bytes += code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
  }
  return bytes;
}

// At most so many bytes, the mark that something is missing included.
export function cut(text, most) {
  if (size(text) <= most) return text;
  let kept = "";
  let bytes = 3;
  for (const char of text) {
    bytes += size(char);
    if (bytes > most) break;
    kept += char;
  }
  return kept + "…";
}

const whole = (value) => String(value).replace(/[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g, "\ufffd");

function toolOutput(summary, content = null) {
  const short = cut(whole(summary).trim() ? whole(summary) : "tool completed", SUMMARY);
  let long = content === null ? null : cut(whole(content), CONTENT);
  let text = JSON.stringify({ summary: short, content: long });
  while (long && size(text) > OUTPUT) {
    // What is escaped grows, six times at most: a sixth of what is over is never too much.
    long = cut(long, size(long) - Math.max(Math.floor((size(text) - OUTPUT) / 6), 1));
    text = JSON.stringify({ summary: short, content: long });
  }
  return text;
}

function errorOutput({ code = "failed", message = "", details = undefined }) {
  const error = { code, message: cut(whole(message), MESSAGE) };
  const full = JSON.stringify({ error: { ...error, details } });
  return toolOutput(`tool error: ${code}`, size(full) <= CONTENT / 2 ? full : JSON.stringify({ error }));
}

// Text in one line is a summary of itself; longer text and data are the content. Data that is too long is refused, not cut.
function answered(value) {
  if (value === undefined || value === null) return toolOutput("");
  if (typeof value === "string") {
    return value.includes("\n") || size(value) > SUMMARY ? toolOutput("", value) : toolOutput(value);
  }
  const content = JSON.stringify(value);
  if (content === undefined) throw new ToolError(`it returned a ${typeof value}, which JSON has no word for`, { code: "serialization" });
  if (size(JSON.stringify(content)) > CONTENT) throw new ToolError("the result is too long", { code: "invalid_output" });
  return toolOutput("", content);
}

const errorDocument = (message) => JSON.stringify({ error: { message: cut(whole(message), MESSAGE) } });
const told = (error) => (error instanceof Error ? `${error.name}: ${error.message}` : String(error));

// What came in at an ingress. What its methods ask for, the host does when the handler has returned: all of it, or nothing.
class IngressEvent {
  constructor({ kind, source, ingress_name = "", payload = null, created_at = "", attempt = 1, correlation_id = "" }) {
    Object.assign(this, { kind, source, ingress_name, payload, created_at, attempt, correlation_id, commands: [] });
  }
  get text() {
    return typeof this.payload?.text === "string" ? this.payload.text : "";
  }
  get url() {
    return this.source.startsWith("websocket:") ? this.source.slice("websocket:".length) : this.source;
  }
  reply(text) {
    this.command("websocket_send", { url: this.url, text });
  }
  report(message, status = undefined) {
    this.command("diagnostic_status_update", { message, status });
  }
  command(kind, payload) {
    if (!this.correlation_id) throw new Error("an output command needs an event that has an id");
    const command_id = String(this.commands.length + 1);
    let correlation_id = "";
    for (const char of `${this.correlation_id}:${command_id}`) {
      if (size(correlation_id + char) > 128) break;
      correlation_id += /[\u0000-\u001f\u007f-\u009f]/.test(char) ? "-" : char;
    }
    const requested_at = this.created_at || "1970-01-01T00:00:00Z";
    this.commands.push({ correlation_id, source_event_id: this.correlation_id, command_id, kind, payload, requested_at });
  }
}

// The exports of both worlds. `tools` and `ingresses` are functions by name: a tool gets its input, an ingress its event. Export
// `call` for the world `tool`; `start, handleTool, handleIngress, status, stop` for the world `instance`.
export function plugin({ tools = {}, ingresses = {}, start = () => {}, status = () => null, stop = () => {} }) {
  const has = (functions, name) => Object.prototype.hasOwnProperty.call(functions, name);
  let started = false;

  function tool(name, inputJson) {
    try {
      if (!has(tools, name)) throw new ToolError(`there is no tool "${name}"`, { code: "unsupported_tool" });
      let input;
      try {
        input = JSON.parse(inputJson);
      } catch (error) {
        throw new ToolError(`input is not valid JSON: ${error.message}`, { code: "invalid_input" });
      }
      return answered(tools[name](input));
    } catch (error) {
      return errorOutput(error instanceof ToolError ? error : { message: told(error) });
    }
  }

  function guarded(work) {
    if (!started) return errorDocument("plugin instance has not been started");
    try {
      const text = work();
      return size(text) <= OUTPUT ? text : errorDocument(`the answer has more than ${OUTPUT} bytes`);
    } catch (error) {
      return errorDocument(told(error));
    }
  }

  return {
    call: tool,
    start(configJson) {
      try {
        let config = null;
        try {
          config = JSON.parse(configJson);
        } catch {
          // no configuration then
        }
        start(config);
        started = true;
        return JSON.stringify({ state: "ready", data: null });
      } catch (error) {
        return errorDocument(told(error));
      }
    },
    handleTool: (name, inputJson) => (started ? tool(name, inputJson) : guarded(() => "")),
    handleIngress: (name, eventJson) =>
      guarded(() => {
        if (!has(ingresses, name)) throw new Error(`there is no ingress "${name}"`);
        const event = new IngressEvent(JSON.parse(eventJson));
        const data = ingresses[name](event) ?? null;
        const commands = event.commands.length ? { output_commands: event.commands } : {};
        return JSON.stringify({ accepted: true, data, ...commands });
      }),
    status: () => guarded(() => JSON.stringify({ state: "ready", data: status() ?? null })),
    stop: () =>
      guarded(() => {
        stop();
        started = false;
        return JSON.stringify({ state: "stopped", data: null });
      }),
  };
}
