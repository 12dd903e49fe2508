//! The ways to receive: each takes the messages that are there, and passes them on.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::AsFd;
use std::sync::mpsc::{Receiver as Queue, channel};
use std::time::Duration;
use system_tests::soak::mix::Filter;
use system_tests::soak::verifier::Delivery;
use toroni::{
    Bus, Message, ReceiveError, Router, Start, Subscriber, SubscriberError, WaitStrategy,
};

/// How long a call waits for a message, before the worker looks whether it shall end.
pub(crate) const SLICE: Duration = Duration::from_millis(20);

pub(crate) trait Sink {
    fn take(&mut self, delivery: &Delivery<'_>);
    fn nothing(&mut self);
}

/// Messages that a router has handled: sequence, position, the position after it, topic, payload.
type Handled = (u64, u64, u64, String, Vec<u8>);

/// The engine of a subscriber in a proactor, if none is named.
pub(crate) const ANY_ENGINE: &str = "[[processor]]";

/// A subscriber, and one way to receive.
pub(crate) enum Receiver {
    /// A subscriber that is called repeatedly.
    Plain(Subscriber, Way, Vec<u8>),
    /// A router whose handlers hand on.
    Router(Router, Queue<Handled>),
    Async(Subscriber, tokio::runtime::Runtime),
    /// A proactor serves it.
    Served(crate::served::Served),
}

/// Ways of a plain subscriber.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// Blocks until there is one. A worker that does so ends with the last message.
    Block,
    /// Blocks for a slice.
    Receive,
    Try,
    /// Waits in poll(2) with a descriptor.
    Poll,
    Borrow,
    /// Reads in place, many at a time.
    Run,
}

/// What a subscriber is.
pub(crate) struct Wish<'a> {
    pub(crate) patterns: &'a [&'a str],
    pub(crate) start: Start,
    pub(crate) gating: bool,
    pub(crate) wait: WaitStrategy,
    /// Of a proactor: its configuration.
    pub(crate) engine: &'a str,
    /// How many others it serves, too. Their messages are not checked.
    pub(crate) beside: usize,
}

impl Receiver {
    /// Subscribes. `how`: `block`, `receive`, `try`, `poll`, `borrow`, `run`, `router`, `async` or
    /// `proactor`.
    pub(crate) fn open(bus: &Bus, how: &str, wish: &Wish<'_>) -> Result<Self, SubscriberError> {
        if how == "router" {
            return Self::open_router(bus, wish);
        }
        let mut builder = bus.subscriber().start(wish.start).gating(wish.gating).wait(wish.wait);
        for pattern in wish.patterns {
            builder = builder.pattern(*pattern);
        }
        let mut subscriber = builder.build()?;
        let way = match how {
            "block" => Way::Block,
            "receive" => Way::Receive,
            "try" => Way::Try,
            "poll" => Way::Poll,
            "borrow" => Way::Borrow,
            "run" => Way::Run,
            "async" => return Ok(Self::open_async(subscriber)),
            "proactor" => {
                return Ok(Self::Served(crate::served::Served::new(bus, subscriber, wish)));
            }
            how => panic!("no way {how:?}"),
        };
        if way == Way::Poll {
            subscriber.enable_fd()?;
        }
        Ok(Self::Plain(subscriber, way, Vec::new()))
    }

    /// Receives once, or drains, as the way is.
    pub(crate) fn step(&mut self, sink: &mut impl Sink) -> Result<(), ReceiveError> {
        match self {
            Self::Plain(subscriber, Way::Block, _) => sink.take(&of(&subscriber.receive()?)),
            Self::Plain(subscriber, Way::Receive, _) => match subscriber.receive_timeout(SLICE)? {
                Some(message) => sink.take(&of(&message)),
                None => sink.nothing(),
            },
            Self::Plain(subscriber, Way::Try, _) => match subscriber.try_receive()? {
                Some(message) => sink.take(&of(&message)),
                None => {
                    sink.nothing();
                    std::thread::yield_now();
                }
            },
            Self::Plain(subscriber, Way::Poll, _) => by_poll(subscriber, sink)?,
            Self::Plain(subscriber, Way::Borrow, scratch) => by_borrow(subscriber, scratch, sink)?,
            Self::Plain(subscriber, Way::Run, _) => by_run(subscriber, sink)?,
            Self::Router(router, handled) => {
                let outcome = router.run_once(SLICE);
                let mut is_idle = true;
                for (sequence, position, next_position, topic, payload) in handled.try_iter() {
                    is_idle = false;
                    let next_position = Some(next_position);
                    let (topic, payload) = (topic.as_str(), payload.as_slice());
                    sink.take(&Delivery { sequence, position, next_position, topic, payload });
                }
                if is_idle && matches!(outcome, Ok(false)) {
                    sink.nothing();
                }
                outcome?;
            }
            Self::Served(served) => match served.next(SLICE)? {
                Some(arrival) => sink.take(&arrival.delivery()),
                None => sink.nothing(),
            },
            Self::Async(subscriber, runtime) => runtime.block_on(async {
                // Several at a time: a runtime's entry and exit are its own cost.
                for _ in 0..64 {
                    match tokio::time::timeout(SLICE, subscriber.receive_async()).await {
                        Ok(message) => sink.take(&of(&message?)),
                        Err(_) => {
                            sink.nothing();
                            break;
                        }
                    }
                }
                Ok::<_, ReceiveError>(())
            })?,
        }
        Ok(())
    }

    /// Behind the last message that was handed on.
    pub(crate) fn position(&self) -> u64 {
        match self {
            Self::Served(served) => served.position(),
            other => other.subscriber().position(),
        }
    }

    /// Bytes of the stream that are left to receive.
    pub(crate) fn lag_bytes(&self) -> u64 {
        match self {
            Self::Served(served) => served.lag_bytes(),
            other => other.subscriber().lag_bytes(),
        }
    }

    /// How often the bus reported a loss to it.
    pub(crate) fn lapses(&self) -> u64 {
        match self {
            Self::Served(served) => served.lapses(),
            other => other.subscriber().stats().lapses,
        }
    }

    fn subscriber(&self) -> &Subscriber {
        match self {
            Self::Plain(subscriber, ..) => subscriber,
            Self::Router(router, _) => router.subscriber(),
            Self::Async(subscriber, _) => subscriber,
            Self::Served(_) => unreachable!("the proactor has it"),
        }
    }

    fn open_router(bus: &Bus, wish: &Wish<'_>) -> Result<Self, SubscriberError> {
        let mut router = bus.router()?;
        let (sender, handled) = channel();
        for pattern in wish.patterns {
            let sender = sender.clone();
            router.on(pattern, move |message| {
                let (topic, payload) = (message.topic().to_owned(), message.payload().to_vec());
                let (position, next) = (message.position(), message.next_position());
                let handled = (message.sequence(), position, next, topic, payload);
                sender.send(handled).expect("the worker lives");
            })?;
        }
        Ok(Self::Router(router, handled))
    }

    fn open_async(subscriber: Subscriber) -> Self {
        Self::Async(subscriber, runtime())
    }
}

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime")
}

/// Patterns of which no message matches two: each handler of a router is called for itself.
pub(crate) fn patterns_of(filter: Filter, how: &str) -> &'static [&'static str] {
    if how == "router" && filter.is_all() { Filter::ALL.patterns() } else { filter.patterns() }
}

fn of<'a>(message: &Message<'a>) -> Delivery<'a> {
    Delivery {
        sequence: message.sequence(),
        position: message.position(),
        next_position: Some(message.next_position()),
        topic: message.topic(),
        payload: message.payload(),
    }
}

fn by_poll(subscriber: &mut Subscriber, sink: &mut impl Sink) -> Result<(), ReceiveError> {
    while let Some(message) = subscriber.try_receive()? {
        sink.take(&of(&message));
    }
    sink.nothing();
    // A publisher that dies before it wakes leaves the descriptor quiet until the next message.
    let timeout = Timespec::try_from(SLICE).expect("a short time");
    let fd = subscriber.as_fd();
    match poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&timeout)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => panic!("poll: {error}"),
    }
}

fn by_borrow(
    subscriber: &mut Subscriber,
    scratch: &mut Vec<u8>,
    sink: &mut impl Sink,
) -> Result<(), ReceiveError> {
    let Some(message) = subscriber.borrow()? else {
        sink.nothing();
        std::thread::yield_now();
        return Ok(());
    };
    scratch.resize(message.payload().len(), 0);
    message.payload().copy_to(0, scratch);
    let topic = message.topic().to_owned();
    // Not counted as received; the next call reports how many were lost after it.
    message.validate()?;
    sink.take(&Delivery {
        sequence: message.sequence(),
        position: message.position(),
        next_position: None,
        topic: &topic,
        payload: scratch,
    });
    Ok(())
}

fn by_run(subscriber: &mut Subscriber, sink: &mut impl Sink) -> Result<(), ReceiveError> {
    let Some(mut run) = subscriber.receive_in_place_timeout(SLICE)? else {
        sink.nothing();
        return Ok(());
    };
    let copied: Vec<(u64, u64, String, Vec<u8>)> = run
        .by_ref()
        .take(1000)
        .map(|message| {
            let (topic, payload) = (message.topic().to_owned(), message.payload().to_vec());
            (message.sequence(), message.position(), topic, payload)
        })
        .collect();
    // Not one of them counts before.
    run.validate()?;
    for (sequence, position, topic, payload) in &copied {
        sink.take(&Delivery {
            sequence: *sequence,
            position: *position,
            next_position: None,
            topic,
            payload,
        });
    }
    Ok(())
}
