//! The options of `toroni top`.

use clap::Args;
use clap_complete::ArgValueCompleter;
use std::time::Duration;
use toroni_shell::complete;
use toroni_shell::human::parse_interval;

/// Below this, `top` would cost more than it shows.
const SHORTEST: Duration = Duration::from_millis(100);

#[derive(Args)]
#[command(after_help = "Examples:
  toroni top plant
  toroni top plant --once
  toroni top plant --once --json | jq -c '{in_the_way, waited_per_second, lost_last_minute}'

Without a bus, top lists all of them, and Enter opens one. If standard input or output is no terminal, top prints one \
screen, as with --once.

Columns of publishers:
  WAITS       share of the time that it waited for slow subscribers
  WAKES/S     how often it woke sleeping subscribers
  OVERWRITES  how often it overwrote messages that a gating subscriber had not read, after it had waited

Columns of subscribers:
  LAG         bytes between its position and the end of the stream; the bar is the share of the ring
  BEHIND      how long ago its next message was published; ~ is an estimate by the rate of the last 5 s
  LOST        messages that were overwritten before it read them; LAST MIN is the part in the last minute
  ON THE WAY  messages that it was told were lost on their way to the bus; shown if there are any

Columns of topics, if messages have a stamp (pub --timestamps, BusConfig::timestamps):
  AGE P50, AGE P99, LONGEST  how old half of the messages, 99 % of them, and the oldest one were when top read them, up to 10 ms \
after they came; below 0 if the publisher's clock is ahead

\"in the way\" marks the gating subscriber with the lowest position while publishers wait. \"guest\" marks a subscriber \
that does not gate.

Nodes publish each second what they send and hear (see docs/network.md); top reads that while it is shown:
  REPEATED    datagrams that were sent again, as a share of the new ones
  NAKS        requests for retransmission
  WAITING     what waits in the ring for the rate of the stream; OVERTAKEN are messages that were lost there
  HELD        datagrams that wait behind one that is missing
  NO ROOM     datagrams for which a receiver's sockets had no room
  FEEDS       the sequencer's feeds that they take part in: WAITING are commands that the order may not have
\"crybaby\" marks a receiver that takes more than half of all retransmissions.

Rates per topic come from a subscriber that does not gate. It reads only while topics or losses are shown. If reading \
everything takes more than 5 % of a core, it reads samples, and the figures begin with ~. top leaves this subscriber \
out of its figures.

Keys:
  1 2 3 4   bus, topics, losses, network
  /         show only names with a text; Enter keeps the text
  s         sort by rate, by bytes, by name
  p         pause, which also stops measuring
  + -       lengthen, shorten the interval
  arrows    scroll, or choose a bus
  Enter     open the chosen bus
  Esc       clear the text, or list all buses
  Ctrl-L    draw the screen again
  Ctrl-Z    stop; fg continues
  ? h       show these keys, or hide them
  q         quit; so does Ctrl-C")]
pub(crate) struct Top {
    /// Name of the bus [default: the list of all buses]
    #[arg(add = ArgValueCompleter::new(complete::buses))]
    pub(crate) name: Option<String>,
    /// Print one screen as text and end
    #[arg(long)]
    pub(crate) once: bool,
    /// Print each interval as a JSON object on one line
    #[arg(long)]
    pub(crate) json: bool,
    /// Seconds between two measurements
    #[arg(long, value_name = "S", default_value = "0.5", value_parser = parse)]
    pub(crate) interval: Duration,
}

fn parse(text: &str) -> Result<Duration, String> {
    match parse_interval(text)? {
        interval if interval < SHORTEST => {
            Err("the shortest interval is 0.1 seconds: measuring more often would disturb what is measured".to_owned())
        }
        interval => Ok(interval),
    }
}
