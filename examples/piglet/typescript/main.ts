// Says what abbreviations mean, and learns new ones: a piglet extension in TypeScript, without a package.
//
// The host starts this program in this folder, as manifest.yaml says. Both sides speak JSON-RPC, one object per line, on stdin and
// stdout; stderr is for the log. Only types are taken out of this file to run it: nothing is compiled.

export {};

// What it needs of its runtime, so that no package has to describe it.
declare const process: {
  stdin: {
    setEncoding(encoding: "utf8"): void;
    on(event: "data", heard: (chunk: string) => void): void;
    on(event: "end", heard: () => void): void;
  };
  stdout: { write(text: string): boolean; on(event: "error", heard: () => void): void };
  exit(status: number): never;
};

interface Request { id?: number | string | null; method?: string; params?: unknown }
interface ToolResult { content: { type: "text"; text: string }[]; isError?: boolean; errorCode?: string; errorHint?: string }
type Params = Record<string, unknown>;
type Handler = (params: Params) => unknown;

class RpcError extends Error {
  code: number;

  constructor(code: number, message: string) {
    super(message);
    this.code = code;
  }
}

const terms = new Map<string, string>([
  ["LSP", "Language Server Protocol"],
  ["NDJSON", "newline-delimited JSON: one object per line"],
]);

const send = (message: object): void => void process.stdout.write(JSON.stringify({ jsonrpc: "2.0", ...message }) + "\n");
const tell = (method: string, params: object): void => send({ method, params });
// Messages have stdout for themselves: what is logged goes to stderr, by whatever name it is logged.
console.log = console.info = console.debug = console.error;
// When the host is gone, so is our input, and that ends the program.
process.stdout.on("error", () => {});

// The model may choose among the terms there are, so the tool is registered anew whenever there is another: the last one counts.
function registerTool(): void {
  const term = { type: "string", enum: [...terms.keys()] };
  const parameters = { type: "object", properties: { term }, required: ["term"] };
  const about = { description: "What an abbreviation means.", promptHint: "look abbreviations up" };
  tell("register/tool", { name: "define", ...about, parameters });
}

function initialize(): object {
  registerTool();
  tell("register/command", { name: "learn", description: "teach it a term: /learn TERM MEANING", immediate: true });
  const content = "When an abbreviation is not clear, look it up with `define` before you guess.";
  tell("register/promptSection", { title: "Glossary", content, order: 40, tokenHint: 20 });
  return { name: "glossary", version: "1.0.0" };
}

// Arguments are whatever the model made of the schema, and null when it gave none.
function define(args: unknown): ToolResult {
  const term = (args as Params | null)?.["term"];
  const meaning = typeof term === "string" ? terms.get(term.trim().toUpperCase()) : undefined;
  if (meaning !== undefined) return { content: [{ type: "text", text: `${term}: ${meaning}` }] };
  const content = [{ type: "text" as const, text: `nobody has explained ${JSON.stringify(term)} yet` }];
  return { content, isError: true, errorCode: "INVALID_ARGS", errorHint: `known are ${[...terms.keys()].join(", ")}` };
}

// Registers after the handshake, too. Serai takes that at once; where a host does not, the model only lacks the new word in its list.
function learn(args: unknown): void {
  const [, term, meaning] = /^(\S+)\s+(.+)$/.exec(String(args ?? "")) ?? [];
  if (term === undefined || meaning === undefined) throw new Error("which term? As in: /learn TCP Transmission Control Protocol");
  terms.set(term.toUpperCase(), meaning);
  registerTool();
  tell("showMessage", { text: `learned ${term.toUpperCase()}; it knows ${terms.size} terms` });
}

function named<Result>(kind: string, name: string, handler: (args: unknown) => Result): (params: Params) => Result {
  return (params) => {
    if (params["name"] !== name) throw new RpcError(-32602, `unknown ${kind}: ${String(params["name"])}`);
    return handler(params["args"]);
  };
}

const handlers = new Map<string, Handler>([
  ["initialize", initialize],
  ["tool/execute", named("tool", "define", define)],
  ["command/execute", (params) => (named("command", "learn", learn)(params), {})],
  ["shutdown", () => (setTimeout(() => process.exit(0)), null)], // once the answer is out
]);

// Exactly one answer, whatever happens.
function answer(id: number | string, method: string, params: unknown): void {
  try {
    const handler = handlers.get(method);
    if (handler === undefined) throw new RpcError(-32601, `Unknown method: ${method}`);
    send({ id, result: handler((params ?? {}) as Params) });
  } catch (error) {
    const code = error instanceof RpcError ? error.code : -32603;
    send({ id, error: { code, message: error instanceof Error ? error.message : String(error) } });
  }
}

function receive(line: string): void {
  let message: Request | null;
  try {
    message = JSON.parse(line) as Request | null;
  } catch {
    return; // no message
  }
  const { id, method, params } = message ?? {};
  // A notification needs no answer, and nothing is asked of the host, so no answer comes.
  if (typeof method === "string" && (typeof id === "number" || typeof id === "string")) answer(id, method, params);
}

// Lines end with \n and nothing else. With the end of input nothing is left to wait for, and the program ends.
let rest = "";
process.stdin.setEncoding("utf8");
process.stdin.on("data", (chunk) => {
  const lines = (rest + chunk).split("\n");
  rest = lines.pop() ?? "";
  lines.forEach(receive);
});
process.stdin.on("end", () => receive(rest)); // the last line may lack its end
