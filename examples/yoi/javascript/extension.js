// Notes in a folder, read and written through the host: a plugin in JavaScript. README.md tells how to try it.

import fs from "yoi:host/fs@1.0.0";
import { ToolError, plugin } from "./yoi.js";

let heard = []; // what an instance keeps lives as long as it does

// What the host refuses cannot be caught: the call ends, and with it the instance.
function readText(path) {
  const file = JSON.parse(fs.read(JSON.stringify({ path })));
  if (file.truncated) throw new ToolError(`${path} is longer than a plugin can read`);
  return file.content;
}

const tools = {
  js_count(input) {
    if (typeof input?.path !== "string") throw new ToolError("path must be a string", { code: "invalid_input" });
    if (!input.path.endsWith(".txt")) throw new ToolError(`${input.path} is no note: notes are .txt files`, { code: "invalid_input" });
    const text = readText(input.path);
    const lines = text.split("\n").length - (text.endsWith("\n") || text === "" ? 1 : 0);
    return { lines, words: (text.match(/\S+/g) ?? []).length };
  },
  js_heard: () => heard.join("; ") || "nothing",
};

const ingresses = {
  js_in(event) {
    if (!event.text.trim()) throw new Error("a note needs a text");
    heard.push(event.text);
    fs.write(JSON.stringify({ path: `heard-${heard.length}.txt`, content: event.text }));
    event.report(`kept note ${heard.length}`, { heard: heard.length });
    return { kept: heard.length };
  },
};

export const { start, handleTool, handleIngress, status, stop } = plugin({
  tools,
  ingresses,
  start(config) {
    heard = typeof config?.first === "string" ? [config.first] : [];
  },
  status: () => ({ heard: heard.length }),
});
