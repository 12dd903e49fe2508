//! Toroni: a message bus for the processes of one Linux machine, without a broker.
