/* Prints COUNT messages from the network, without a bus: direct_receive FILE COUNT, with a [[receive]] in FILE. */
#include <stdio.h>
#include <stdlib.h>
#include <toroni_net.h>

int main(int count, char **arguments) {
    toroni_net_direct *direct = NULL;
    toroni_net_message message;
    toroni_net_lost lost;
    long left;
    int status;
    if (count != 3) return fputs("direct_receive FILE COUNT\n", stderr), 2;
    left = strtol(arguments[2], NULL, 10);
    status = toroni_net_open_file(arguments[1], &direct);
    if (status == TORONI_NET_OK) fputs("ready\n", stderr);
    while (left > 0 && (status == TORONI_NET_OK || status == TORONI_NET_LOST)) {
        status = toroni_net_receive(direct, &message, TORONI_NET_FOREVER);
        if (status == TORONI_NET_OK) {
            printf("%.*s\t%.*s\n", (int)message.topic_length, message.topic, (int)message.payload_length,
                   (const char *)message.payload);
            fflush(stdout);
            left--;
        } else if (status == TORONI_NET_LOST && toroni_net_last_lost(direct, &lost) == TORONI_NET_OK) {
            printf("lost %llu\n", (unsigned long long)lost.messages);
        }
    }
    if (left > 0) fprintf(stderr, "%s\n", toroni_net_error_message());
    toroni_net_close(direct);
    return left > 0;
}
