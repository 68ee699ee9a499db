/* A hook in C: reads its input to the end, writes one line, ends. The shortest life of an honest child. */
#include <unistd.h>

int main(void) {
    static const char ANSWER[] = "{\"ok\":true}\n";
    char input[65536];
    while (read(0, input, sizeof input) > 0) {}
    return write(1, ANSWER, sizeof ANSWER - 1) != sizeof ANSWER - 1;
}
