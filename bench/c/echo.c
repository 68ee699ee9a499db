/* A guest in C: answers each call with a result that carries the same text, as its host speaks. All lines of one read are
   answered with one write. The fastest honest peer, so that a measurement shows the host and not the guest.

   It knows zot's `tool_call`, and of JSON-RPC `initialize`, `tools/list` and `tools/call` as an MCP client sends them; any other
   request that carries a text (an extension method of ACP) is answered like `tools/call`. It looks for what it needs instead of
   parsing: the keys come before the text, and the text is the last string of its line.

   With the argument `zot` it is a whole extension: it says hello, offers its tool with a schema, subscribes to `turn_start` and
   answers each event with a notice, so that a broadcast can be seen to have arrived. */
#define _GNU_SOURCE
#include "lines.h"

#define CONTENT "\"content\":[{\"type\":\"text\",\"text\":\""

static void answer_rpc(piece line) {
    piece id = after(line, LITERAL("\"id\":"), ",}\n"), text = text_of(line), version;
    if (!id.at) return; /* a notification */
    piece head = LITERAL("{\"jsonrpc\":\"2.0\",\"id\":");
    if (text.at)
        answer_with(head, id, LITERAL(",\"result\":{" CONTENT), text, LITERAL("\"}]}}\n"));
    else if ((version = after(line, LITERAL("\"protocolVersion\":"), ",}\n")).at)
        answer_with(head, id, LITERAL(",\"result\":{\"protocolVersion\":"), version,
                    LITERAL(",\"capabilities\":{\"tools\":{}},\"serverInfo\":{\"name\":\"echo\",\"version\":\"1\"}}}\n"));
    else
        answer_with(head, id, LITERAL(",\"result\":{\"tools\":[{\"name\":\"echo\",\"inputSchema\":{\"type\":\"object\"}}]}}\n"),
                    LITERAL(""), LITERAL(""));
}

static void answer(piece line) {
    if (memmem(line.at, line.size > 20 ? 20 : line.size, "\"event\"", 7)) {
        append(LITERAL("{\"type\":\"notify\",\"level\":\"info\",\"message\":\"heard\"}\n"));
        return;
    }
    if (line.size > 2 && line.at[2] == 'j') { /* {"jsonrpc" */
        answer_rpc(line);
        return;
    }
    piece id = after(line, LITERAL("\"id\":\""), "\"\n"), text = text_of(line);
    if (id.at && text.at)
        answer_with(LITERAL("{\"type\":\"tool_result\",\"id\":\""), id, LITERAL("\"," CONTENT), text, LITERAL("\"}]}\n"));
}

static const char greeting[] =
    "{\"type\":\"hello\",\"name\":\"echo\",\"version\":\"1\"}\n"
    "{\"type\":\"register_tool\",\"name\":\"echo\",\"description\":\"Says it again.\",\"schema\":{\"type\":\"object\","
    "\"properties\":{\"text\":{\"type\":\"string\"}},\"required\":[\"text\"],\"additionalProperties\":false}}\n"
    "{\"type\":\"subscribe\",\"events\":[\"turn_start\"]}\n"
    "{\"type\":\"ready\"}\n";

int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "zot") && write(1, greeting, sizeof greeting - 1) < 0) return 1;
    return serve(0, 1, answer);
}
