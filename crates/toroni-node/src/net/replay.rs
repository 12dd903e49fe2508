//! `toroni net replay`: history of a stream by number, from the node that sends it.

use super::address::{interface_for, parse_group};
use super::membership;
use clap::Args;
use rustix::fd::AsFd;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use toroni::Pattern;
use toroni_net::host::address::DEFAULT_GROUP;
use toroni_net::inlet::{self, Inlet};
use toroni_net::node::replay::{self, Asked, Replay as History};
use toroni_proto::arrivals::{Flow, Inbox};
use toroni_proto::config::Order;
use toroni_proto::id::{Number, Realm, Source, Stream};
use toroni_proto::reassembly::Message;
use toroni_proto::wire::{Keys, TableName, TopicNumber};
use toroni_shell::exchange::{Loss, Shown};
use toroni_shell::failure::Failure;
use toroni_shell::location::{BusLocation, parse_address};
use toroni_shell::note;
use toroni_shell::output::Output;
use toroni_shell::printer::Format;
use toroni_shell::printer::{Printer, Style};
use toroni_shell::stop::{GracePeriod, Stop};

/// For how long a source is looked for in a group: it sends a SESSION at least each 2 s.
const FIND: Duration = Duration::from_secs(10);

#[derive(Args)]
#[command(after_help = "Examples:
  toroni net replay --source line-3 --realm plant --from 4711        from number 4711 to the newest message
  toroni net replay --source line-3 --from 0 --to 99 --json          the first hundred
  toroni net replay --connect 10.0.0.5:4480 --from 0 --into copy     into a bus, as a node would bring it

The numbers are those of the sender's bus: `toroni sub --json` shows them there as sequence. The node of the source must have a \
[listen], and its ring must still have the messages; what it has overwritten is reported as lost, with the numbers. Without \
--connect, the source is looked for in the group, where it says where its server is.

With --into, messages keep their origin: what the bus has already received of the stream is not published again.")]
pub(crate) struct Replay {
    /// The source: the name of its node, or its id of 8 hexadecimal digits
    #[arg(long, value_name = "SOURCE", required_unless_present = "connect")]
    source: Option<String>,
    /// The number of the stream [default: the only one]
    #[arg(long, value_name = "N")]
    stream: Option<u16>,
    /// The first number
    #[arg(long, value_name = "N", default_value_t = 0)]
    from: u64,
    /// The last number [default: the newest message]
    #[arg(long, value_name = "N")]
    to: Option<u64>,
    /// Bring the messages to this bus, instead of printing them
    #[arg(long, value_name = "BUS")]
    into: Option<String>,
    /// Where the node of the source listens [default: as it says in the group]; then --source must be an id
    #[arg(long, value_name = "ADDRESS", value_parser = parse_address)]
    connect: Option<SocketAddr>,
    /// The realm
    #[arg(long, value_name = "REALM", default_value = "default")]
    realm: String,
    /// Multicast group in which the source is looked for, with or without a port
    #[arg(long, value_name = "GROUP", value_parser = parse_group, default_value_t = DEFAULT_GROUP)]
    group: SocketAddr,
    /// Interface on which it is looked for [default: the only one that can multicast]
    #[arg(long, value_name = "NAME")]
    interface: Option<String>,
    /// File with the key of the realm
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    key_file: Option<PathBuf>,
    /// Print JSON: one object per line
    #[arg(long)]
    json: bool,
    /// Exit with code 3 if messages were lost
    #[arg(long)]
    strict: bool,
}

/// Prints or publishes history until all of it has come, or a signal arrives.
pub(crate) fn run(location: &BusLocation, arguments: &Replay) -> Result<(), Failure> {
    let keys = membership::keys(arguments.key_file.as_deref())?;
    let [first, last] = [Some(arguments.from), arguments.to].map(|number| number.map(numbered));
    let (first, last) = (first.transpose()?.unwrap_or_default(), last.transpose()?);
    if last.is_some_and(|last| last < first) {
        return Err(Failure::Usage("--to is before --from".to_owned()));
    }
    let stop = Stop::install(GracePeriod::OneSecond("writing to standard output".to_owned()))?;
    let realm = Realm::of(&arguments.realm);
    let Some((address, source)) = server(arguments, realm, keys.as_ref(), &stop)? else {
        return interrupted(&stop, first);
    };
    let asked = Asked {
        address,
        realm,
        keys,
        source,
        stream: arguments.stream.map(Stream),
        first,
        until: last.map(|last| last.plus(1)),
    };
    let mut history = History::open(&asked).map_err(failed)?;
    let lost = match &arguments.into {
        Some(name) => {
            let bus = location.config().participant_name("toroni-net-replay");
            let bus = bus.open(name)?;
            let (accept, order) = (vec![Pattern::everything()], Order::Source);
            let selection = inlet::Selection { accept, prefix: String::new(), order };
            let inlet = bus.inlet().map_err(|error| Failure::Failed(error.to_string()))?;
            let mut inlet = Inlet::new(inlet, selection).selected_by_the_source();
            drain(
                &mut history,
                &mut inlet,
                &stop,
                |inlet| !inlet.is_full(),
                |inlet| {
                    inlet.publish(std::iter::empty()).map_err(failed)?;
                    if let Some(inlet::Exclusive { bus, name, pid }) = inlet.exclusive() {
                        return Err(failed(format!(
                            "only {name:?}, process {pid}, can publish on bus {bus}, because it publishes exclusively"
                        )));
                    }
                    match inlet.refusal() {
                        Some(refusal) => Err(failed(refusal)),
                        None => Ok(inlet.is_full()),
                    }
                },
            )?;
            note::remark(&format!("brought {} messages to bus {name}", inlet.counters().messages));
            inlet.counters().lost
        }
        None => {
            let format = if arguments.json { Format::Json } else { Format::Text };
            let style = Style::Format { format, payload_only: false };
            let printer = Printer::new(Output::new()?, style, b'\n');
            let mut shown = Printed {
                printer,
                names: HashMap::new(),
                lost: 0,
                failure: None,
                bytes: Vec::new(),
            };
            drain(
                &mut history,
                &mut shown,
                &stop,
                |shown| shown.failure.is_none(),
                |shown| {
                    shown.printer.output.check_reader()?;
                    shown.failure.take().map_or(Ok(false), Err)
                },
            )?;
            shown.printer.output.flush()?;
            shown.lost
        }
    };
    if stop.is_set() && !history.has_ended() {
        return interrupted(&stop, history.next());
    }
    if last.is_some_and(|last| history.next() <= last) {
        note::remark(&format!("the source has nothing from number {} on", history.next()));
    }
    if arguments.strict && lost > 0 {
        return Err(Failure::Lost(format!("{lost} messages were lost, or fewer")));
    }
    Ok(())
}

/// Returns where the server is, and whose stream is wanted. `None`: a signal came.
fn server(
    arguments: &Replay,
    realm: Realm,
    keys: Option<&Keys>,
    stop: &Stop,
) -> Result<Option<(SocketAddr, Option<Source>)>, Failure> {
    let name = arguments.source.as_deref();
    if let Some(address) = arguments.connect {
        let id = |text: &str| {
            let id = u32::from_str_radix(text, 16).ok().filter(|_| text.len() == 8);
            let problem =
                "with --connect, --source is an id of 8 hexadecimal digits, such as 5be01a7c";
            id.map(Source).ok_or_else(|| Failure::Usage(problem.to_owned()))
        };
        return Ok(Some((address, name.map(id).transpose()?)));
    }
    let interface = interface_for(arguments.group, arguments.interface.as_deref())?;
    let place = (arguments.group, &interface);
    let found = replay::find(place, realm, keys, name.unwrap_or_default(), FIND, || stop.is_set());
    Ok(found.map_err(failed)?.map(|found| (found.address, Some(found.source))))
}

/// Hands history over until all of it has come and `settle` says that nothing waits.
fn drain<I: Inbox>(
    history: &mut History,
    inbox: &mut I,
    stop: &Stop,
    has_room: impl Fn(&I) -> bool,
    mut settle: impl FnMut(&mut I) -> Result<bool, Failure>,
) -> Result<(), Failure> {
    let wake = stop.descriptor().map_err(failed)?;
    loop {
        let has_more = history.turn(inbox, &has_room).map_err(failed)?;
        let waits = settle(inbox)?;
        if stop.is_set() || (history.has_ended() && !waits) {
            return Ok(());
        }
        // What finds no room is tried again soon.
        let longest =
            if waits { Duration::from_millis(1) } else { toroni_shell::stop::CHECK_EVERY };
        if waits {
            std::thread::sleep(longest);
        } else if !has_more {
            history.wait(longest, Some(wake.as_fd())).map_err(failed)?;
        }
    }
}

fn numbered(number: u64) -> Result<Number, Failure> {
    let problem =
        || Failure::Usage(format!("{number} is no number of a message: it is below 2^48"));
    Number::new(number).ok_or_else(problem)
}

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::Failed(error.to_string())
}

fn interrupted(stop: &Stop, next: Number) -> Result<(), Failure> {
    let text = format!("ended by a signal; what comes next has the number {next}");
    Err(stop.interrupted(text))
}

/// Prints what comes.
struct Printed {
    printer: Printer,
    names: HashMap<TopicNumber, String>,
    lost: u64,
    failure: Option<Failure>,
    bytes: Vec<u8>,
}

impl Inbox for Printed {
    fn message(&mut self, _: Flow, message: Message<'_>) {
        let start = message.start;
        self.bytes.clear();
        message.parts.for_each(|part| self.bytes.extend_from_slice(part));
        let shown = Shown {
            topic: self.names.get(&start.topic).map_or("", String::as_str),
            payload: &self.bytes,
            position: None,
            sequence: start.number.get(),
            number: None,
            origin: None,
            stamp: start.published.map(|time| time.ns()),
            age: None,
            to_descendants: start.to_descendants,
            is_retained: false,
            is_cleared: false,
        };
        if self.failure.is_none() {
            self.failure = self.printer.print(&shown).err();
        }
    }

    fn topic(&mut self, _: Flow, number: TopicNumber, name: TableName<'_>) {
        self.names.insert(number, name.as_str().to_owned());
    }

    fn loss(&mut self, flow: Flow, loss: toroni_proto::reassembly::Loss) {
        let lost = inlet::lost_of(flow, &loss, vec![Pattern::everything()]);
        self.lost = self.lost.saturating_add(lost.messages);
        let text = lost.to_string();
        let result = self.printer.loss(&Loss::from(&lost), &text, false);
        self.failure = self.failure.take().or(result.err());
    }
}
