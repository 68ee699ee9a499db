// Counts words, draws a dot, and counts the events it sees: a zot extension in plain Node, without a package.
//
// Frames, one JSON object per line, go over stdin and stdout; stderr is for the log. Node serves them as they come
// and nothing here waits, so several requests at a time need no more than this.

// A picture of one rust-red pixel, as standard base64 with padding.
const DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR42mN44KAAAANEAUFNPEM+AAAAAElFTkSuQmCC";

const seen = new Map([["turn_end", 0], ["tool_call", 0]]); // how often each event was seen

const send = (frame) => process.stdout.write(JSON.stringify(frame) + "\n");
// Frames have stdout for themselves: what is logged goes to stderr, by whatever name it is logged.
console.log = console.info = console.debug = console.error;
// When the host is gone, so is our input, and that ends the program.
process.stdout.on("error", () => {});

const blocks = (text) => [{ type: "text", text }];

function words(text) {
  const count = text.match(/\S+/g)?.length ?? 0;
  return count === 1 ? "1 word" : `${count} words`;
}

// Each tool gives the blocks of its result. Arguments are whatever the model made of the schema.
const tools = new Map([
  ["count_words", (args) => {
    if (typeof args?.text !== "string") throw new Error('count_words needs a text, as in {"text": "one two"}');
    return blocks(words(args.text));
  }],
  ["png_dot", () => [{ type: "image", mime_type: "image/png", data: DOT }]],
  ["seen", () => blocks(JSON.stringify(Object.fromEntries(seen)))],
]);

// What to do with a frame, by its type. A type that is not here is passed over: hosts may know more than we do.
const handlers = new Map([
  ["tool_call", ({ id, name, args }) => {
    const tool = tools.get(name);
    try {
      if (!tool) throw new Error(`there is no tool ${JSON.stringify(name)} here`);
      send({ type: "tool_result", id, content: tool(args) });
    } catch (error) {
      send({ type: "tool_result", id, content: blocks(error.message), is_error: true });
    }
  }],
  ["command_invoked", ({ id, name, args }) => {
    const answer = { type: "command_response", id };
    if (name !== "words") send({ ...answer, action: "noop", error: `there is no command ${JSON.stringify(name)} here` });
    // `args` is absent when the person typed none.
    else if (typeof args !== "string" || !args) send({ ...answer, action: "noop", error: "which text? As in: /words one two" });
    else send({ ...answer, action: "insert", insert: `${args} (${words(args)})` });
  }],
  // Events are told, not asked: they carry no id and get no answer.
  ["event", ({ event }) => {
    if (seen.has(event)) seen.set(event, seen.get(event) + 1);
  }],
  ["shutdown", () => {
    send({ type: "shutdown_ack" });
    process.stdin.destroy();
  }],
]);

const asks = new Set(["tool_call", "command_invoked"]);

function receive(line) {
  let frame;
  try {
    frame = JSON.parse(line);
  } catch {
    return; // no frame: not for us
  }
  if (asks.has(frame?.type) && typeof frame.id !== "string") return; // nobody could tell what our answer belongs to
  handlers.get(frame?.type)?.(frame);
}

// All of this is said at once, without waiting for the host: hello comes first, ready comes last.
const textArgument = { type: "object", properties: { text: { type: "string" } }, required: ["text"] };
const noArguments = { type: "object", properties: {} };
send({ type: "hello", name: "words", version: "1.0.0", capabilities: ["commands", "tools", "events"] });
send({ type: "register_command", name: "words", description: "insert a text with the number of its words" });
send({ type: "register_tool", name: "count_words", description: "How many words a text has.", schema: textArgument });
send({ type: "register_tool", name: "png_dot", description: "A picture of one dot.", schema: noArguments });
send({ type: "register_tool", name: "seen", description: "How many turns ended and tools were called.", schema: noArguments });
send({ type: "subscribe", events: [...seen.keys()] });
send({ type: "ready" });

// Lines end with \n and nothing else: readline of newer Nodes also cuts at U+2028, which may stand in any text. The end of input
// means shutdown, too: with nothing left to wait for, Node ends.
let rest = "";
process.stdin.setEncoding("utf8");
process.stdin.on("data", (chunk) => {
  const lines = (rest + chunk).split("\n");
  rest = lines.pop();
  lines.forEach(receive);
});
process.stdin.on("end", () => receive(rest)); // the last line may lack its end
