/* The shortest publisher: publish BUS TOPIC TEXT. */
#include <stdio.h>
#include <string.h>
#include <toroni.h>

int main(int count, char **arguments) {
    toroni_bus *bus = NULL;
    toroni_publisher *publisher = NULL;
    int failed;
    if (count != 4) return fputs("publish BUS TOPIC TEXT\n", stderr), 2;
    failed = toroni_bus_open(arguments[1], NULL, &bus) || /* creates it if it does not exist */
             toroni_bus_publisher(bus, arguments[2], NULL, &publisher) ||
             toroni_publish(publisher, arguments[3], strlen(arguments[3]));
    if (failed) fprintf(stderr, "%s\n", toroni_error_message());
    toroni_publisher_close(publisher);
    toroni_bus_close(bus);
    return failed;
}
