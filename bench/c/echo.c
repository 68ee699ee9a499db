/* A guest in C: answers each `tool_call` line with a `tool_result` that carries the same text. All lines of one read are
   answered with one write. The fastest honest peer, so that a measurement shows the host and not the guest. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char HEAD[] = "{\"type\":\"tool_result\",\"id\":\"", MIDDLE[] = "\",\"content\":[{\"type\":\"text\",\"text\":\"", TAIL[] = "\"}]}\n";

static char *in, *out;
static size_t have, put, in_size = 1 << 20, out_size = 1 << 20;

static void append(const char *data, size_t size) {
    while (put + size > out_size) out = realloc(out, out_size *= 2);
    memcpy(out + put, data, size);
    put += size;
}

static void answer(const char *line, size_t size) {
    const char *id = memmem(line, size, "\"id\":\"", 6), *text = memmem(line, size, "\"text\":\"", 8);
    if (!id || !text) return;
    id += 6;
    text += 8;
    append(HEAD, sizeof HEAD - 1);
    append(id, strchr(id, '"') - id);
    append(MIDDLE, sizeof MIDDLE - 1);
    append(text, line + size - 4 - text); /* the line ends in "}} and its newline */
    append(TAIL, sizeof TAIL - 1);
}

int main(void) {
    in = malloc(in_size);
    out = malloc(out_size);
    for (;;) {
        if (have == in_size) in = realloc(in, in_size *= 2);
        ssize_t got = read(0, in + have, in_size - have);
        if (got <= 0) return 0;
        size_t from = have;
        have += got;
        char *start = in, *end;
        while ((end = memchr(in + from, '\n', have - from))) {
            answer(start, end + 1 - start);
            start = end + 1;
            from = start - in;
        }
        memmove(in, start, have -= start - in);
        for (size_t done = 0; done < put;) {
            ssize_t wrote = write(1, out + done, put - done);
            if (wrote <= 0) return 1;
            done += wrote;
        }
        put = 0;
    }
}
