//! The options of `toroni pub`.

use clap::Args;
use clap_complete::ArgValueCompleter;
use std::ffi::OsString;
use std::path::PathBuf;
use toroni_shell::complete;
use toroni_shell::human::{parse_bytes, parse_rate};

#[derive(Args)]
#[command(override_usage = "toroni pub [OPTIONS] <TOPIC> [MESSAGE]
       toroni pub [OPTIONS] --json")]
#[command(after_help = "Examples:
  toroni pub plant/boiler/temperature 351.2
  vmstat 1 | toroni pub host/vmstat                  publish each line as a message
  toroni pub load/test --size 1KiB --repeat 100000 --rate 10k/s
  toroni pub firmware --file image.bin --chunk 64KiB --wait-subscribers 1
  find /etc -print0 | toroni pub -0 files            publish each name as a message
  ./feed | toroni pub --exclusive market/ticks       no other process can publish meanwhile
  toroni pub --retain plant/setpoint 350             keep it for programs that start later
  toroni -b a sub --json | toroni -b b pub --json    copy all topics of bus a to bus b

If the bus does not exist, pub creates it with the default settings.

With --json, pub reads what sub --json writes: one object per line with topic, payload, encoding (base64, or \
absent for text) and to_descendants. It ignores other fields, and reports losses in the input on standard error.

With --retain, the bus keeps the newest message of the topic as its value, by any publisher, and as long as the bus \
exists. `toroni get` prints it, `toroni sub --retained` begins with it, and `toroni clear` ends it. With --json, each topic of the input is \
retained, and objects with the field cleared clear its value; without --retain, pub passes over those.

With --exclusive, pub waits for a message that another process is publishing. It then keeps the bus until it ends, \
also while it waits for subscribers or for input. If another publisher is exclusive, pub fails at once. The bus must \
have the lock kind lease.")]
pub(crate) struct Publish {
    /// Topic, such as plant/boiler/temperature; not with --json, whose input names the topics
    // Not `required_unless_present`, whose error does not mention --json.
    #[arg(add = ArgValueCompleter::new(complete::topics))]
    pub(crate) topic: Option<String>,
    /// The message. Without it, and without --size, --raw, --file or --json, publish each line of standard input
    #[arg(allow_negative_numbers = true, conflicts_with_all = ["size", "raw", "file"])]
    pub(crate) message: Option<OsString>,
    /// Publish the message N times; needs MESSAGE or --size [default: 1]
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), conflicts_with_all = ["raw", "file"])]
    pub(crate) repeat: Option<u64>,
    /// Publish a generated message of this size, which starts with a counter; --repeat sets how many
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, conflicts_with_all = ["raw", "file"])]
    pub(crate) size: Option<u64>,
    /// Rate of messages, such as 500/s, 10k/s or 30/min [default: as fast as possible]
    #[arg(long, value_name = "R/s", value_parser = parse_rate)]
    pub(crate) rate: Option<f64>,
    /// Publish messages in batches of N; the messages of a batch become visible together
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) batch: u32,
    /// Deliver to the subscribers of the topic and of all topics below it
    #[arg(long)]
    pub(crate) to_descendants: bool,
    /// Retain the topic: the bus keeps its newest message for programs that start later
    #[arg(long)]
    pub(crate) retain: bool,
    /// Wait until N subscribers have a pattern that matches the topic
    #[arg(long, value_name = "N")]
    pub(crate) wait_subscribers: Option<u32>,
    /// Publish all of standard input as one message
    #[arg(long, conflicts_with = "file")]
    pub(crate) raw: bool,
    /// Messages in standard input end with a NUL byte instead of a line feed, as `sub -0` prints them
    #[arg(short = '0', long, conflicts_with_all = ["message", "size", "raw", "file"])]
    pub(crate) null: bool,
    /// Read messages with their topics from standard input, as `sub --json` prints them
    #[arg(long, conflicts_with_all = ["topic", "message", "repeat", "size", "batch", "to_descendants", "raw", "null", "file"])]
    pub(crate) json: bool,
    /// With --json, stop with exit code 3 at the first loss in the input
    #[arg(long)]
    pub(crate) strict: bool,
    /// Publish the content of a file
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Split the file into messages of this size
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, default_value = "64KiB", requires = "file")]
    pub(crate) chunk: u64,
    /// Be the only publisher of the bus: other publishers fail until this one ends; fail if another one is exclusive
    #[arg(long)]
    pub(crate) exclusive: bool,
    /// Put the time of publication into each message
    #[arg(long)]
    pub(crate) timestamps: bool,
    /// Name of this publisher in `toroni info`
    #[arg(long, value_name = "NAME", default_value = "toroni-pub")]
    pub(crate) name: String,
    /// At the end, print a summary as a JSON object
    #[arg(long)]
    pub(crate) summary: bool,
    /// Do not show progress, and do not report losses in the input
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// At the end, report on standard error how much was published
    #[arg(short, long)]
    pub(crate) verbose: bool,
}
