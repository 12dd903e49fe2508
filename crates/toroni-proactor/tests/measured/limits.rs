//! A process may lower its limit of descriptors below what it has open, as sandboxed programs do. Then
//! `ppoll` refuses longer lists.

use crate::common::*;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::channel;
use std::time::Duration;
use toroni_proactor::{
    BufResult, Config, InterruptType, Proactor, ProcessorConfig, ProcessorType, ProviderType,
    Stream, WaitType,
};
use toroni_testkit::turn;

const STREAMS: usize = 150;

#[test]
fn a_limit_below_what_is_open_stops_nothing() {
    let _turn = turn();
    alone("limits::a_limit_below_what_is_open_stops_nothing", || {
        let before = 4 * STREAMS;
        limit_descriptors(before);
        for interrupt in [InterruptType::Pipe, InterruptType::Eventfd, InterruptType::Signal] {
            for processor_type in [ProcessorType::Shared, ProcessorType::Dedicated] {
                // The last limit allows no list at all.
                for limit in [100, 1, 0] {
                    eprintln!("{interrupt:?}, {processor_type:?}, {limit}");
                    goes_on(interrupt, processor_type, limit);
                    limit_descriptors(before);
                }
            }
        }
    });
}

fn goes_on(interrupt: InterruptType, processor_type: ProcessorType, limit: usize) {
    let (provider, wait) = (ProviderType::Select, WaitType::Native);
    let config =
        ProcessorConfig { processor_type, provider, wait, interrupt, ..ProcessorConfig::default() };
    let proactor = Proactor::new(&Config::one(config)).unwrap();
    let pair = |_| {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (Stream::new(&proactor, ours).unwrap(), theirs)
    };
    let mut pairs: Vec<_> = (0..STREAMS).map(pair).collect();
    let _crew = Crew::new(&proactor, 1);
    let (done, results) = channel();
    let read_all = |pairs: &[(Stream, UnixStream)]| {
        for (stream, _) in pairs {
            let done = done.clone();
            let tell = move |BufResult(result, _)| done.send(result).unwrap();
            stream.read(Box::new([0u8; 1]), tell).unwrap();
        }
    };
    read_all(&pairs);
    limit_descriptors(limit);
    for _ in 0..3 {
        for (_, peer) in &mut pairs {
            peer.write_all(b"x").unwrap();
        }
        for _ in &pairs {
            assert_eq!(next(&results), Ok(1));
        }
        // The leader waits with the old list: it is interrupted, and asks with the new one.
        read_all(&pairs);
        let told = done.clone();
        proactor.post(move || told.send(Ok(7)).unwrap()).unwrap();
        assert_eq!(next(&results), Ok(7));
        let told = done.clone();
        proactor.timer(Duration::from_millis(1), move |_| told.send(Ok(8)).unwrap()).unwrap();
        assert_eq!(next(&results), Ok(8));
    }
}
