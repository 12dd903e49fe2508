//! A daemon that publishes what this host is doing: measurements from `/proc`, and the file events
//! of a folder.
//!
//! ```console
//! $ cargo run -p toroni --example telemetry -- --interval 0.5 /tmp &
//! $ cargo run -p toroni --example watch
//! ```
//!
//! | topic | payload |
//! |---|---|
//! | `host/cpu/<n>` | `{"busy_percent":12.5,"user_percent":8.0,"system_percent":4.0,"iowait_percent":0.5,"steal_percent":0.0}`, during the interval |
//! | `host/memory/<field>` | `{"bytes":16322232320}` or `{"pages":0}`: a field of `/proc/meminfo` |
//! | `host/network/<interface>/<rx or tx>` | `{"bytes_per_s":1500.0,"packets_per_s":2.0}`, during the interval |
//! | `host/files/<event>` | the name of a file in the folder, as raw bytes |
//!
//! Measurements are JSON, so a program can read them without knowing any other text format.
//!
//! Events are `created`, `modified`, `written` (closed after writing), `deleted`, `moved-from`,
//! `moved-to`, and `overflow` if there were more events than the kernel could queue. `TORONI_BUS`
//! is the name of the bus (default: `default`), `TORONI_DIR` is the directory of buses. SIGINT and
//! SIGTERM end the program.

mod files;
mod processors;
mod system;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use std::collections::HashMap;
use std::error::Error;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use toroni::{Bus, Publisher};

fn main() -> ExitCode {
    let Some(options) = Options::parse(std::env::args().skip(1)) else {
        eprintln!("usage: telemetry [--interval SECONDS] [FOLDER]");
        return ExitCode::from(2);
    };
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("telemetry: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<(), Box<dyn Error>> {
    let (stop, stop_writer) = UnixStream::pair()?;
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::low_level::pipe::register(signal, stop_writer.try_clone()?)?;
    }
    let folder = options.folder.as_deref().map(files::Folder::watch).transpose()?;
    let timer = timer(options.interval)?;

    let name = std::env::var("TORONI_BUS").ok().filter(|name| !name.is_empty());
    let mut host = Topics::new(Bus::open(name.as_deref().unwrap_or("default"))?);
    let mut processors = processors::Meter::start()?;
    let mut network = system::NetworkMeter::start()?;
    loop {
        let [ticked, changed, stopped] = {
            let readable = |descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN);
            // Without a folder, poll the timer a second time instead.
            let files = folder.as_ref().map_or(timer.as_fd(), AsFd::as_fd);
            let mut polled = [readable(timer.as_fd()), readable(files), readable(stop.as_fd())];
            match poll(&mut polled, None) {
                Err(Errno::INTR) => continue,
                other => other?,
            };
            polled.map(|one| !one.revents().is_empty())
        };
        if stopped {
            return Ok(());
        }
        if changed && let Some(folder) = &folder {
            folder.events(|event, file| host.publish(&["files", event], file))?;
        }
        if ticked {
            rustix::io::read(&timer, &mut [0; 8])?;
            processors
                .measure(|number, shares| host.publish(&["cpu", number], shares.as_bytes()))?;
            system::memory(|field, size| host.publish(&["memory", field], size.as_bytes()))?;
            network.measure(|interface, way, rate| {
                host.publish(&["network", interface, way], rate.as_bytes())
            })?;
        }
    }
}

struct Options {
    interval: Duration,
    folder: Option<PathBuf>,
}

impl Options {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Option<Self> {
        let mut options = Self { interval: Duration::from_secs(1), folder: None };
        while let Some(argument) = arguments.next() {
            if argument == "--interval" {
                let seconds: f64 = arguments.next()?.parse().ok()?;
                options.interval = Duration::try_from_secs_f64(seconds).ok()?;
            } else if argument.starts_with('-') || options.folder.is_some() {
                return None;
            } else {
                options.folder = Some(argument.into());
            }
        }
        (!options.interval.is_zero()).then_some(options)
    }
}

/// The topics below `host`. Each publisher is created when it is first needed.
struct Topics {
    bus: Bus,
    publishers: HashMap<String, Publisher>,
}

impl Topics {
    fn new(bus: Bus) -> Self {
        Self { bus, publishers: HashMap::new() }
    }

    fn publish(&mut self, segments: &[&str], payload: &[u8]) -> Result<(), Box<dyn Error>> {
        let mut topic = "host".to_owned();
        for segment in segments {
            topic.push('/');
            // The kernel allows characters that a topic does not, for example in the name of a
            // network interface.
            topic.extend(segment.chars().map(|one| if "*#+$?/".contains(one) { '_' } else { one }));
        }
        if !self.publishers.contains_key(&topic) {
            self.publishers.insert(topic.clone(), self.bus.publisher(&topic)?);
        }
        self.publishers[&topic].publish(payload)?;
        Ok(())
    }
}

fn timer(interval: Duration) -> Result<OwnedFd, Errno> {
    let interval = Timespec {
        tv_sec: interval.as_secs().try_into().map_err(|_| Errno::INVAL)?,
        tv_nsec: interval.subsec_nanos().into(),
    };
    let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC)?;
    let every = Itimerspec { it_interval: interval, it_value: interval };
    timerfd_settime(&timer, TimerfdTimerFlags::empty(), &every)?;
    Ok(timer)
}
