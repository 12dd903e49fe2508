//! A single-threaded event loop: two buses, a timer and Ctrl-C in one `poll(2)`.
//!
//! ```console
//! $ cargo run -p toroni --example poll_loop &
//! $ cargo run -p toroni --example publish
//! $ TORONI_BUS=alarms cargo run -p toroni --example publish
//! ```
//!
//! The first bus is `$TORONI_BUS` (default: `default`), the second is the first argument (default:
//! `alarms`). `TORONI_DIR` is the directory of buses. Any loop that waits for descriptors can do
//! the same: epoll, libuv, glib, Qt.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use std::env;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use toroni::{Bus, ReceiveError, Subscriber};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // A signal writes to one end, and the loop sees that the other end becomes readable.
    let (stop, stop_writer) = UnixStream::pair()?;
    signal_hook::low_level::pipe::register(signal_hook::consts::SIGINT, stop_writer)?;
    let timer = every_second()?;

    let first = env::var("TORONI_BUS").ok().filter(|name| !name.is_empty());
    let first = first.unwrap_or_else(|| "default".to_owned());
    let second = env::args().nth(1).unwrap_or_else(|| "alarms".to_owned());
    let mut subscribers =
        [Bus::open(&first)?.subscribe("**")?, Bus::open(&second)?.subscribe("**")?];
    for subscriber in &mut subscribers {
        subscriber.enable_fd()?;
    }

    let mut counts = [0, 0];
    loop {
        let [readable_first, readable_second, ticked, stopped] = wait_for([
            subscribers[0].as_fd(),
            subscribers[1].as_fd(),
            timer.as_fd(),
            stop.as_fd(),
        ])?;
        if readable_first {
            counts[0] += drain(&mut subscribers[0], &first)?;
        }
        if readable_second {
            counts[1] += drain(&mut subscribers[1], &second)?;
        }
        if ticked {
            let mut expirations = [0; 8];
            rustix::io::read(&timer, &mut expirations)?;
            println!("tick: {} messages on {first}, {} on {second}", counts[0], counts[1]);
        }
        if stopped {
            return Ok(());
        }
    }
}

/// Handles all messages that are available. The descriptor requires this: receive until `None`, and
/// only then wait for it to become readable again.
fn drain(subscriber: &mut Subscriber, bus: &str) -> Result<u64, ReceiveError> {
    let mut count = 0;
    loop {
        match subscriber.try_receive() {
            Ok(Some(message)) => {
                let text = message.text();
                println!("{bus}: {} {text}", message.topic());
                count += 1;
            }
            Ok(None) => return Ok(count),
            Err(loss) if loss.is_loss() => eprintln!("{bus}: {loss}"),
            Err(error) => return Err(error),
        }
    }
}

/// Waits until at least one descriptor is readable, and returns which ones are.
fn wait_for<const N: usize>(
    descriptors: [std::os::fd::BorrowedFd<'_>; N],
) -> Result<[bool; N], Errno> {
    let mut polled = descriptors.map(|one| PollFd::from_borrowed_fd(one, PollFlags::IN));
    loop {
        match poll(&mut polled, None) {
            Ok(_) => return Ok(polled.map(|one| !one.revents().is_empty())),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
}

fn every_second() -> Result<OwnedFd, Errno> {
    let second = Timespec { tv_sec: 1, tv_nsec: 0 };
    let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC)?;
    let every = Itimerspec { it_interval: second, it_value: second };
    timerfd_settime(&timer, TimerfdTimerFlags::empty(), &every)?;
    Ok(timer)
}
