// Logs with console.log, which is stdout, among the frames.
const send = (frame) => process.stdout.write(JSON.stringify(frame) + "\n");
process.stdout.on("error", () => {});

send({ type: "hello", name: "logs-to-stdout", version: "1" });
send({ type: "register_tool", name: "shout", schema: { type: "object", required: ["text"] } });
send({ type: "ready" });

let rest = "";
process.stdin.setEncoding("utf8").on("data", (chunk) => {
  const lines = (rest + chunk).split("\n"); // and nowhere else: readline, from Node 24 on, also cuts at U+2028
  rest = lines.pop();
  lines.forEach(take);
});

function take(line) {
  let frame;
  try {
    frame = JSON.parse(line);
  } catch {
    return;
  }
  if (frame?.type === "shutdown") process.exit(0);
  if (frame?.type !== "tool_call") return;
  console.log("calling", frame.name);
  const text = String(frame.args?.text ?? "").toUpperCase();
  const wrong = frame.name !== "shout" || !text;
  send({ type: "tool_result", id: frame.id, content: [{ type: "text", text }], ...(wrong ? { is_error: true } : {}) });
}
