//! Two processors in one proactor, in every combination.

use crate::common::*;
use std::io::Write;
use std::sync::mpsc::channel;
use std::time::Duration;
use toroni_proactor::{
    BufResult, Config, File, OperationKind, OperationMask, Proactor, ProcessorConfig,
    ProcessorType, ProviderType, StartError, WaitType,
};

/// Returns a processor for files only, or for everything.
fn config(
    processor_type: ProcessorType,
    provider: ProviderType,
    operations: OperationMask,
) -> ProcessorConfig {
    let wait = WaitType::Native;
    ProcessorConfig { processor_type, provider, wait, operations, ..ProcessorConfig::default() }
}

/// Streams on one processor, datagrams on the other, both waiting at the same time.
fn both_are_served(first: ProcessorType, second: ProcessorType, threads: usize) {
    use ProviderType::{Select, Uring};
    for (one, other) in [(Select, Uring), (Uring, Select), (Select, Select), (Uring, Uring)] {
        let streams = [OperationKind::ReadStream, OperationKind::WriteStream];
        let config = Config::two(
            config(first, one, OperationMask::of(&streams)),
            config(second, other, OperationMask::ALL),
        );
        let proactor = Proactor::new(&config).unwrap();
        let _crew = Crew::new(&proactor, threads);
        let (stream, mut peer) = stream_and_peer(&proactor);
        let datagrams = toroni_proactor::Datagrams::bind(&proactor, ANY).unwrap();
        let to = datagrams.local_address().unwrap();
        let sending = std::net::UdpSocket::bind(ANY).unwrap();
        let (done, results) = channel();
        for round in 0..20 {
            let told = done.clone();
            let told_too = done.clone();
            stream
                .read(vec![0; 8], move |BufResult(result, _)| told.send(result).unwrap())
                .unwrap();
            datagrams
                .read(vec![0; 8], move |BufResult(result, _)| {
                    told_too.send(result.map(|datagram| datagram.length)).unwrap();
                })
                .unwrap();
            // In turns, so that each is waited for while the other sends.
            if round % 2 == 0 {
                peer.write_all(b"abc").unwrap();
                assert_eq!(next(&results), Ok(3));
                sending.send_to(b"1234", to).unwrap();
                assert_eq!(next(&results), Ok(4));
            } else {
                sending.send_to(b"1234", to).unwrap();
                assert_eq!(next(&results), Ok(4));
                peer.write_all(b"abc").unwrap();
                assert_eq!(next(&results), Ok(3));
            }
        }
    }
}

#[test]
fn shared_and_shared_with_one_thread() {
    both_are_served(ProcessorType::Shared, ProcessorType::Shared, 1);
}

#[test]
fn shared_and_shared_with_two_threads() {
    both_are_served(ProcessorType::Shared, ProcessorType::Shared, 2);
}

#[test]
fn dedicated_and_dedicated() {
    both_are_served(ProcessorType::Dedicated, ProcessorType::Dedicated, 1);
}

/// The only thread of the user leads the other processor when a dedicated leader finds something: that
/// leader must interrupt it.
#[test]
fn shared_and_dedicated() {
    both_are_served(ProcessorType::Shared, ProcessorType::Dedicated, 1);
}

#[test]
fn dedicated_and_shared() {
    both_are_served(ProcessorType::Dedicated, ProcessorType::Shared, 1);
}

/// The paper's own example: the C library does files, SELECT everything else.
#[test]
fn files_on_posix_and_the_rest_on_select() {
    use ProcessorType::{Dedicated, Shared};
    for (first, second) in
        [(Shared, Shared), (Shared, Dedicated), (Dedicated, Shared), (Dedicated, Dedicated)]
    {
        for wait in [WaitType::Native, WaitType::Sigwait, WaitType::Callback] {
            let files = config(first, ProviderType::Posix, OperationMask::ALL);
            let files = ProcessorConfig { wait, ..files };
            let rest = config(second, ProviderType::Select, OperationMask::ALL);
            let proactor = Proactor::new(&Config::two(files, rest)).unwrap();
            let _crew = Crew::new(&proactor, 1);
            let directory = directory();
            std::fs::write(directory.join("file"), pattern(100)).unwrap();
            let file = std::fs::File::open(directory.join("file")).unwrap();
            let file = File::new(&proactor, file).unwrap();
            let (stream, mut peer) = stream_and_peer(&proactor);
            let (done, results) = channel();
            for round in 0..50 {
                let (told, told_too) = (done.clone(), done.clone());
                stream
                    .read(vec![0; 8], move |BufResult(result, _)| told.send(result).unwrap())
                    .unwrap();
                file.read(round, vec![0; 10], move |BufResult(result, _)| {
                    told_too.send(result).unwrap();
                })
                .unwrap();
                assert_eq!(next(&results), Ok(10), "while the stream waits");
                peer.write_all(b"abc").unwrap();
                assert_eq!(next(&results), Ok(3));
            }
        }
    }
}

#[test]
fn what_no_processor_does_is_refused_with_its_buffer() {
    let files = config(ProcessorType::Shared, ProviderType::Select, OperationMask::FILES);
    let proactor = Proactor::new(&Config::one(files)).unwrap();
    let (stream, _peer) = stream_and_peer(&proactor);
    let refused = stream.read(vec![5; 3], |_| {}).unwrap_err();
    let operation = OperationKind::ReadStream;
    assert_eq!(refused.error, StartError::Unsupported { operation });
    assert!(refused.to_string().contains("READ_STREAM"));
    assert_eq!(refused.buffer, [5; 3]);
    assert_eq!(proactor.outstanding(), 0);
}

#[test]
fn an_operation_goes_to_the_first_that_supports_it() {
    let files = config(ProcessorType::Shared, ProviderType::Uring, OperationMask::FILES);
    let rest = config(ProcessorType::Shared, ProviderType::Select, OperationMask::ALL);
    let proactor = Proactor::new(&Config::two(files, rest)).unwrap();
    let directory = directory();
    let path = directory.join("file");
    std::fs::write(&path, b"of the file").unwrap();
    let file = File::new(&proactor, std::fs::File::open(&path).unwrap()).unwrap();
    let (stream, peer) = two_streams(&proactor);
    let copied = proactor.block_on(async {
        let BufResult(result, buffer) = file.read_async(0, vec![0; 64]).await;
        assert_eq!(result.unwrap(), 11);
        let _ = stream.write_async(buffer).await;
        peer.read_async(vec![0; 64]).await.1
    });
    assert_eq!(copied.unwrap(), b"of the file");
    let [files, rest] = proactor.effective() else { panic!("two processors") };
    assert_eq!(files.operations, OperationMask::FILES);
    // Only io_uring waits at words in memory.
    let is_done = |operation| rest.operations.contains(operation);
    let missing: Vec<_> =
        OperationKind::STARTABLE.into_iter().filter(|operation| !is_done(*operation)).collect();
    assert_eq!(missing, [OperationKind::WaitWord]);
}

/// While no thread handles events, an operation that is over waits for one that does.
#[test]
fn a_dedicated_leader_calls_no_handler() {
    let dedicated = config(ProcessorType::Dedicated, ProviderType::Select, OperationMask::ALL);
    let proactor = Proactor::new(&Config::one(dedicated)).unwrap();
    let (stream, mut peer) = stream_and_peer(&proactor);
    let (done, results) = channel();
    let tell = move |_| done.send(std::thread::current().id()).unwrap();
    stream.read(vec![0; 8], tell).unwrap();
    peer.write_all(b"x").unwrap();
    assert!(results.recv_timeout(Duration::from_millis(50)).is_err());
    assert_eq!(proactor.handle_events(Some(LOST)), 1);
    assert_eq!(next(&results), std::thread::current().id());
}

#[test]
fn a_wait_that_the_provider_lacks_is_replaced_and_reported() {
    for provider in [ProviderType::Auto, ProviderType::Combined] {
        let wait = WaitType::LinuxRt;
        let config = ProcessorConfig { provider, wait, ..ProcessorConfig::default() };
        let proactor = Proactor::new(&Config::one(config)).unwrap();
        let effective = &proactor.effective()[0];
        assert_eq!(effective.config.wait, WaitType::Epoll);
        assert!(
            effective.to_string().contains("waits with epoll, not with LinuxRt"),
            "{effective}"
        );
    }
}
