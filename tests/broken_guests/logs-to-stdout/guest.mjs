// Logs with console.log, which is stdout, among the frames.
import { createInterface } from "node:readline";

const send = (frame) => process.stdout.write(JSON.stringify(frame) + "\n");
process.stdout.on("error", () => {});

send({ type: "hello", name: "logs-to-stdout", version: "1" });
send({ type: "register_tool", name: "shout", schema: { type: "object", required: ["text"] } });
send({ type: "ready" });

createInterface({ input: process.stdin }).on("line", (line) => {
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
});
