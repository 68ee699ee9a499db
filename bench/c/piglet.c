/* A piglet extension in C. Under a host it speaks on the descriptors 3 and 4, by itself on its standard streams; the frames are the
   same. What it offers is the name of its entry: `tool` gives its text back, and `gotool` does that in the keys of the Go SDK;
   `guard` lets every call pass and says again what it was shown, as SDKs do; `listener` answers each event with a notice, so that a
   broadcast can be seen to have arrived. Without an entry it offers nothing and answers all of them. */
#define _GNU_SOURCE
#include "lines.h"

#define TELLS(method, params) "{\"jsonrpc\":\"2.0\",\"method\":\"" method "\",\"params\":" params "}\n"

static piece offer, content = LITERAL(",\"result\":{\"content\":[{\"type\":\"text\",\"text\":\""), end = LITERAL("\"}]}}\n");

/* From behind `key` to the end of the parameters, whose last member it is. */
static piece rest(piece line, piece key) {
    char *at = memmem(line.at, line.size, key.at, key.size);
    if (!at) return LITERAL("null");
    at += key.size;
    return (piece){at, line.at + line.size - 3 - at}; /* `}}` and the newline */
}

static int is(piece one, piece other) { return one.size == other.size && !memcmp(one.at, other.at, one.size); }

static void answer(piece line) {
    piece id = after(line, LITERAL("\"id\":"), ",}\n"), method = after(line, LITERAL("\"method\":\""), "\"\n");
    if (!id.at || !method.at) return; /* a notification */
    piece head = LITERAL("{\"jsonrpc\":\"2.0\",\"id\":");
    if (is(method, LITERAL("tool/execute")))
        answer_with(head, id, content, text_of(line), end);
    else if (is(method, LITERAL("interceptor/before")))
        answer_with(head, id, LITERAL(",\"result\":{\"allow\":true,\"args\":"), rest(line, LITERAL("\"args\":")), LITERAL("}}\n"));
    else if (is(method, LITERAL("interceptor/after")))
        answer_with(head, id, LITERAL(",\"result\":{\"details\":"), rest(line, LITERAL("\"details\":")), LITERAL("}}\n"));
    else if (is(method, LITERAL("event/dispatch")))
        answer_with(head, id, LITERAL(",\"result\":{\"action\":{\"type\":\"notify\",\"payload\":{\"message\":\"heard\"}}}}\n"), LITERAL(""),
                    LITERAL(""));
    else { /* initialize */
        append(offer);
        answer_with(head, id, LITERAL(",\"result\":{\"name\":\"bench\",\"version\":\"1\"}}\n"), LITERAL(""), LITERAL(""));
    }
}

int main(int argc, char **argv) {
    const char *entry = argc > 1 ? strrchr(argv[1], '/') : NULL, *host = getenv("PIGLET_FD");
    if (entry && !strcmp(entry, "/gotool")) {
        content = LITERAL(",\"result\":{\"content\":[{\"Type\":\"text\",\"Text\":\"");
        end = LITERAL("\",\"Data\":\"\",\"Mime\":\"\"}]}}\n");
    }
    if (entry && (!strcmp(entry, "/tool") || !strcmp(entry, "/gotool")))
        offer = LITERAL(TELLS("register/tool", "{\"name\":\"echo\",\"description\":\"Says it again.\",\"parameters\":{\"type\":\"object\","
                              "\"properties\":{\"text\":{\"type\":\"string\"}},\"required\":[\"text\"],\"additionalProperties\":false}}"));
    else if (entry && !strcmp(entry, "/guard"))
        offer = LITERAL(TELLS("register/interceptor", "{\"name\":\"guard\",\"priority\":1000}"));
    else if (entry && !strcmp(entry, "/listener"))
        offer = LITERAL(TELLS("register/eventHandler", "{\"name\":\"listener\",\"events\":[\"EventTurnStart\"]}"));
    int is_hosted = host && !strcmp(host, "1");
    return serve(is_hosted ? 3 : 0, is_hosted ? 4 : 1, answer);
}
