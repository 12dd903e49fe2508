/* Sends a command and waits for its event: command FEED TOPIC TEXT; see bindings/conformance/README.md. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <toroni.h>

int main(int count, char **arguments) {
    toroni_commands *commands = NULL;
    toroni_pending *pending = NULL;
    toroni_sent sent;
    toroni_echo echo;
    int failed;
    if (count != 4) return fputs("command FEED TOPIC TEXT\n", stderr), 2;
    failed = toroni_commands_open(arguments[1], NULL, &commands) ||
             toroni_commands_send_and_watch(commands, arguments[2], arguments[3], strlen(arguments[3]), TORONI_FOREVER,
                                            &pending) ||
             toroni_pending_sent(pending, &sent) || toroni_pending_wait(pending, UINT64_C(600000000000), &echo);
    if (failed) fprintf(stderr, "%s\n", toroni_error_message());
    else printf("%" PRIu32 "\t%" PRIu64 "\t%d\t%" PRIu64 "\n", sent.series, sent.number, echo.outcome, echo.number);
    toroni_pending_close(pending);
    toroni_commands_close(commands);
    return failed != 0;
}
