//! Writes of whole buffers, reads that append, local sockets.

use super::Kind;
use super::common::*;
use rustix::io::ioctl_fionread;
use rustix::pipe::fcntl_setpipe_size;
use std::io::{PipeReader, Read};
use std::net::Shutdown;
use std::os::unix::net::UnixListener;
use std::sync::Barrier;
use std::sync::mpsc::channel;
use std::thread;
use toroni_proactor::{
    Append, BufResult, Listener, OperationKind, ProcessorType, StartError, Stream, WriteBuffer,
};

/// Several at the same time, each more than the socket holds: their parts do not mix.
pub(crate) fn whole_writes_stay_whole(kind: Kind) {
    const WRITES: usize = 6;
    kind.each_limited(Some(4), |proactor| {
        let _crew = Crew::new(proactor, 2);
        let (stream, mut peer) = stream_and_peer(proactor);
        let sent = pattern(1_500_000);
        let (done, results) = channel();
        for number in 0..WRITES {
            let done = done.clone();
            stream
                .write_all(sent.clone(), move |BufResult(result, buffer)| {
                    done.send((number, result, buffer.len())).unwrap();
                })
                .unwrap();
        }
        let again = stream.clone();
        stream
            .write_all("", move |BufResult(result, _)| {
                result.unwrap();
                again.shutdown(Shutdown::Write).unwrap();
            })
            .unwrap();
        let mut received = Vec::new();
        peer.read_to_end(&mut received).unwrap();
        assert_eq!(received.len(), WRITES * sent.len());
        assert!(received.chunks(sent.len()).all(|part| part == sent));
        // They complete in order, but two threads may call their handlers.
        let mut told: Vec<_> = (0..WRITES).map(|_| next(&results)).collect();
        told.sort_unstable_by_key(|(number, ..)| *number);
        assert_eq!(told, (0..WRITES).map(|n| (n, Ok(()), sent.len())).collect::<Vec<_>>());
    });
}

/// A long write to a fast peer blocks neither the thread that starts it nor other handlers.
pub(crate) fn a_whole_write_begins_with_its_share(kind: Kind) {
    const ALL: usize = 1 << 20;
    kind.each(|proactor| {
        let (mut reader, writer) = std::io::pipe().unwrap();
        // The pipe can hold all of it.
        fcntl_setpipe_size(&writer, ALL).unwrap();
        let moved = |reader: &PipeReader| ioctl_fionread(reader).unwrap();
        let stream = Stream::new(proactor, writer).unwrap();
        let (done, results) = channel();
        let sent = pattern(ALL);
        let tell = move |BufResult(result, _)| done.send(result).unwrap();
        stream.write_all(sent.clone(), tell).unwrap();
        // A dedicated leader may have continued.
        let by_start = moved(&reader);
        let is_alone = kind.processor == ProcessorType::Shared;
        assert!(!is_alone || by_start <= ALL as u64 / 4, "{by_start} bytes at once");
        let _crew = Crew::new(proactor, 1);
        next(&results).unwrap();
        let mut received = vec![0; ALL];
        reader.read_exact(&mut received).unwrap();
        assert!(received == sent);
    });
}

pub(crate) fn a_whole_write_ends_with_its_peer(kind: Kind) {
    kind.each(|proactor| {
        let _crew = Crew::new(proactor, 2);
        let (done, results) = channel();
        let begin = || {
            let (stream, mut peer) = stream_and_peer(proactor);
            let done = done.clone();
            let tell = move |result: BufResult<(), Vec<u8>>| done.send(result).unwrap();
            let operation = stream.write_all(vec![7; 20_000_000], tell).unwrap();
            // It has begun, and waits.
            peer.read_exact(&mut [0; 10_000]).unwrap();
            (stream, peer, operation)
        };
        let (_stream, peer, _) = begin();
        drop(peer);
        let BufResult(result, buffer) = next(&results);
        let error = result.unwrap_err();
        assert!(matches!(error.errno, libc::EPIPE | libc::ECONNRESET), "{error}");
        assert_eq!((error.operation, buffer.len()), (OperationKind::WriteStream, 20_000_000));

        let (_stream, _peer, operation) = begin();
        assert!(proactor.cancel(operation));
        let BufResult(result, buffer) = next(&results);
        assert!(result.unwrap_err().is_cancelled());
        assert_eq!(buffer.len(), 20_000_000);

        let (stream, _peer, _) = begin();
        drop(stream);
        assert!(next(&results).0.unwrap_err().is_cancelled());
    });
}

/// Pipes and local sockets are full in other ways than TCP.
pub(crate) fn whole_writes_to_pipes_and_local_sockets(kind: Kind) {
    kind.each(|proactor| {
        let _crew = Crew::new(proactor, 2);
        let sent = pattern(700_000);
        let (reading, writing) = std::io::pipe().unwrap();
        let (one, other) = std::os::unix::net::UnixStream::pair().unwrap();
        let ends: [(Box<dyn Read + Send>, Stream); 2] = [
            (Box::new(reading), Stream::new(proactor, writing).unwrap()),
            (Box::new(one), Stream::new(proactor, other).unwrap()),
        ];
        for (mut reading, writing) in ends {
            let reader = thread::spawn(move || {
                let mut all = Vec::new();
                reading.read_to_end(&mut all).map(|_| all).unwrap()
            });
            writing.write_all(sent.clone(), |BufResult(result, _)| result.unwrap()).unwrap();
            let closing = writing.clone();
            writing.write_all("the end", move |_| drop(closing)).unwrap();
            until(|| proactor.outstanding() == 0);
            drop(writing);
            let received = reader.join().unwrap();
            assert!(received[..sent.len()] == sent && received[sent.len()..] == *b"the end");
        }
    });
}

pub(crate) fn reads_need_room_and_may_append(kind: Kind) {
    kind.each(|proactor| {
        let _crew = Crew::new(proactor, 1);
        let (stream, mut peer) = stream_and_peer(proactor);
        std::io::Write::write_all(&mut peer, b"abcdef").unwrap();
        let refused = stream.read(Vec::new(), |_| panic!("is refused")).unwrap_err();
        assert_eq!(refused.error, StartError::NoRoom { operation: OperationKind::ReadStream });
        let mut some = Vec::with_capacity(8);
        some.extend(b"1234");
        let (done, results) = channel();
        let again = done.clone();
        stream.read(Append(some), move |result| done.send(result).unwrap()).unwrap();
        let BufResult(result, Append(mut some)) = next(&results);
        assert_eq!((result, &some[..]), (Ok(4), &b"1234abcd"[..]));
        let refused = stream.read(Append(some), |_| panic!("is refused")).unwrap_err();
        some = refused.buffer.0;
        assert_eq!(some, b"1234abcd", "it comes back as it was");
        some.reserve(100);
        stream.read(Append(some), move |result| again.send(result).unwrap()).unwrap();
        let BufResult(result, Append(some)) = next(&results);
        assert_eq!((result, &some[..]), (Ok(2), &b"1234abcdef"[..]));
    });
}

pub(crate) fn local_sockets_are_connected(kind: Kind) {
    kind.each(|proactor| {
        let _crew = Crew::new(proactor, 1);
        let directory = directory();
        let path = directory.join("socket");
        let connect = |path: &std::path::Path| {
            let (done, results) = channel();
            Stream::connect_unix(proactor, path, move |result| done.send(result).unwrap())
                .map_err(|refused| refused.error)?;
            Ok::<_, StartError>(next(&results))
        };
        let error = connect(&path).unwrap().unwrap_err();
        assert_eq!((error.operation, error.errno), (OperationKind::Connect, libc::ENOENT));
        let listener = UnixListener::bind(&path).unwrap();
        let listener = Listener::new(proactor, listener).unwrap();
        let (done, accepted) = channel();
        listener.accept(move |result| done.send(result).unwrap()).unwrap();
        let stream = connect(&path).unwrap().unwrap();
        let (peer, from) = next(&accepted).unwrap();
        assert_eq!(from, None);
        let (done, results) = channel();
        peer.read(vec![0; 8], move |result| done.send(result).unwrap()).unwrap();
        stream.write_all("local", |BufResult(result, _)| result.unwrap()).unwrap();
        assert_eq!(next(&results).0, Ok("local".source().1));
        drop(listener);
        let error = connect(&path).unwrap().unwrap_err();
        assert_eq!(error.errno, libc::ECONNREFUSED);
        let long = "x".repeat(200);
        let Err(StartError::Refused(error)) = connect(long.as_ref()) else { panic!("too long") };
        assert_eq!(error.errno, libc::ENAMETOOLONG);
    });
}

/// Several threads start writes, also when no write was in progress as they began.
pub(crate) fn whole_writes_of_many_threads_stay_whole(kind: Kind) {
    const THREADS: u8 = 3;
    const ROUNDS: usize = 8;
    const LENGTH: usize = 300_001;
    kind.each(|proactor| {
        let _crew = Crew::new(proactor, 1);
        let (ours, mut peer) = std::os::unix::net::UnixStream::pair().unwrap();
        let stream = Stream::new(proactor, ours).unwrap();
        // No write is sent in one step.
        rustix::net::sockopt::set_socket_send_buffer_size(&stream, 20_000).unwrap();
        let reader = thread::spawn(move || {
            let mut message = vec![0; LENGTH];
            for number in 0..usize::from(THREADS) * ROUNDS {
                peer.read_exact(&mut message).unwrap();
                let other = message.iter().position(|byte| *byte != message[0]);
                assert_eq!(other, None, "message {number} has a part of another");
            }
        });
        let barrier = Barrier::new(usize::from(THREADS));
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let (stream, barrier) = (&stream, &barrier);
                scope.spawn(move || {
                    for _ in 0..ROUNDS {
                        let message = vec![thread; LENGTH];
                        until(|| proactor.outstanding() == 0 || reader_is_gone(stream));
                        barrier.wait();
                        let written = stream.write_all(message, |_| {});
                        barrier.wait();
                        drop(written);
                    }
                });
            }
        });
        reader.join().unwrap();
        until(|| proactor.outstanding() == 0);
    });
}

/// A reader that has found an error: the writers need not wait for what it does not read.
fn reader_is_gone(stream: &Stream) -> bool {
    rustix::net::getpeername(stream).is_err()
}
