/* Sends lines of standard input to the network, without a bus: direct_send FILE TOPIC, with a [[send]] in FILE. */
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <toroni_net.h>
#include <unistd.h>

int main(int count, char **arguments) {
    toroni_net_direct *direct = NULL;
    char line[4096];
    size_t used = 0;
    int fd, failed, open = 1;
    if (count != 3) return fputs("direct_send FILE TOPIC\n", stderr), 2;
    failed = toroni_net_open_file(arguments[1], &direct) || toroni_net_fd(direct, &fd);
    while (!failed && open) {
        /* Others may need repairs while there is no input. */
        struct pollfd fds[2] = {{0, POLLIN, 0}, {fd, POLLIN, 0}};
        poll(fds, 2, -1);
        failed = toroni_net_turn(direct);
        if (!failed && fds[0].revents) {
            ssize_t more = read(0, line + used, sizeof line - used);
            char *end;
            open = more > 0;
            used += open ? (size_t)more : 0;
            while (!failed && (end = memchr(line, '\n', used)) != NULL) {
                size_t length = (size_t)(end - line);
                failed = toroni_net_send(direct, arguments[2], line, length, TORONI_NET_FOREVER);
                used -= length + 1;
                memmove(line, end + 1, used);
            }
            if (used == sizeof line) failed = 1, fputs("a line is too long\n", stderr);
        }
    }
    if (!failed) failed = toroni_net_end(direct, TORONI_NET_FOREVER);
    if (failed) fprintf(stderr, "%s\n", toroni_net_error_message());
    toroni_net_close(direct);
    return failed != 0;
}
