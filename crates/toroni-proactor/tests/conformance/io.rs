//! Each operation does what it promises.

use super::Kind;
use super::common::*;
use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_send_buffer_size};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use toroni_proactor::{
    BufResult, Datagrams, File, OperationKind, Proactor, Rest, Stream, WriteBuffer,
};

pub(crate) fn accepts_and_connects(kind: Kind) {
    kind.each(|proactor| {
        let _crew = Crew::new(proactor, 2);
        let (listener, address) = listener(proactor);
        let (accepted, both) = channel();
        let connected = accepted.clone();
        listener
            .accept(move |result| {
                let (stream, from) = result.unwrap();
                assert!(from.unwrap().ip().is_loopback());
                accepted.send(stream).unwrap();
            })
            .unwrap();
        Stream::connect(proactor, address, move |stream| {
            connected.send(stream.unwrap()).unwrap();
        })
        .unwrap();
        let (one, other) = (next(&both), next(&both));
        for (from, to) in [(&one, &other), (&other, &one)] {
            let (done, received) = channel();
            to.read(Vec::with_capacity(64), move |result| done.send(result).unwrap()).unwrap();
            from.write("hello", |BufResult(result, _)| assert_eq!(result.unwrap(), 5)).unwrap();
            let BufResult(result, buffer) = next(&received);
            assert_eq!((result.unwrap(), &buffer[..]), (5, &b"hello"[..]));
        }
    });
}

pub(crate) fn a_refused_connection_is_a_result(kind: Kind) {
    kind.each(|proactor| {
        let _crew = Crew::new(proactor, 1);
        let absent = NoListener::new();
        let (done, results) = channel();
        Stream::connect(proactor, absent.address, move |result| done.send(result).unwrap())
            .unwrap();
        let error = next(&results).unwrap_err();
        assert_eq!((error.operation, error.errno), (OperationKind::Connect, libc::ECONNREFUSED));
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
        let text = error.to_string();
        let number = error.descriptor.unwrap().to_string();
        assert!(text.contains("CONNECT") && text.contains(&number), "{text}");
    });
}

/// Writes back what it reads, until the end.
pub(crate) fn serve_echo(stream: Stream, buffer: Vec<u8>) {
    let again = stream.clone();
    let started = stream.read(buffer, move |BufResult(result, buffer)| {
        if let Ok(1..) = result {
            let stream = again.clone();
            write_all(again, buffer, move |buffer| serve_echo(stream, buffer));
        } else {
            let _ = again.shutdown(Shutdown::Write);
        }
    });
    drop(started);
}

/// Writes a whole buffer, and returns it.
pub(crate) fn write_all<B: WriteBuffer>(
    stream: Stream,
    buffer: B,
    then: impl FnOnce(B) + Send + 'static,
) {
    write_rest(stream, Rest::after(buffer, 0), then);
}

fn write_rest<B: WriteBuffer>(
    stream: Stream,
    rest: Rest<B>,
    then: impl FnOnce(B) + Send + 'static,
) {
    let again = stream.clone();
    let started = stream.write(rest, move |BufResult(result, rest)| {
        let Ok(bytes) = result else { return };
        let rest = rest.advance(bytes);
        if rest.is_empty() { then(rest.into_inner()) } else { write_rest(again, rest, then) }
    });
    drop(started);
}

/// Reads to the end, and sends what it has read.
pub(crate) fn read_all(stream: Stream, mut all: Vec<u8>, done: Sender<Vec<u8>>) {
    let again = stream.clone();
    stream
        .read(vec![0; 10_000], move |BufResult(result, buffer)| {
            all.extend(&buffer[..result.unwrap()]);
            if buffer.is_empty() {
                done.send(all).unwrap();
            } else {
                read_all(again, all, done);
            }
        })
        .unwrap();
}

pub(crate) fn streams_echo(kind: Kind) {
    kind.each(|proactor| {
        let _crew = Crew::new(proactor, 2);
        let (stream, mut peer) = stream_and_peer(proactor);
        serve_echo(stream, vec![0; 8192]);
        let sent = pattern(300_000);
        let mut writing = peer.try_clone().unwrap();
        let to_send = sent.clone();
        let writer = thread::spawn(move || {
            writing.write_all(&to_send).unwrap();
            writing.shutdown(Shutdown::Write).unwrap();
        });
        let mut received = Vec::new();
        peer.read_to_end(&mut received).unwrap();
        writer.join().unwrap();
        assert!(sent == received, "{} bytes came back", received.len());
    });
}

pub(crate) fn half_duplex(kind: Kind) {
    kind.each(|proactor| {
        let _crew = Crew::new(proactor, 2);
        let (stream, mut peer) = stream_and_peer(proactor);
        serve_echo(stream, vec![0; 512]);
        for round in 0..200u32 {
            peer.write_all(&round.to_be_bytes()).unwrap();
            let mut back = [0; 4];
            peer.read_exact(&mut back).unwrap();
            assert_eq!(u32::from_be_bytes(back), round);
        }
    });
}

/// Both ends write at once more than the socket holds, while a read is always in progress.
pub(crate) fn full_duplex(kind: Kind) {
    kind.each(|proactor| {
        let _crew = Crew::new(proactor, 2);
        let (one, other) = two_streams(proactor);
        let (done, received) = channel();
        let sent = pattern(3_000_000);
        for stream in [one, other] {
            read_all(stream.clone(), Vec::new(), done.clone());
            let ending = stream.clone();
            write_all(stream, sent.clone(), move |_| ending.shutdown(Shutdown::Write).unwrap());
        }
        for _ in 0..2 {
            assert!(next(&received) == sent);
        }
    });
}

pub(crate) fn shutdown_then_drain(kind: Kind) {
    kind.each(|proactor| {
        let _crew = Crew::new(proactor, 2);
        let (stream, mut peer) = stream_and_peer(proactor);
        let (done, received) = channel();
        let sent = pattern(100_000);
        peer.write_all(&sent).unwrap();
        peer.shutdown(Shutdown::Write).unwrap();
        // The other direction still works, before and after the end has been read.
        read_all(stream.clone(), Vec::new(), done);
        assert!(next(&received) == sent);
        write_all(stream.clone(), "answer", move |_| stream.shutdown(Shutdown::Both).unwrap());
        let mut answer = String::new();
        peer.read_to_string(&mut answer).unwrap();
        assert_eq!(answer, "answer");
    });
}

pub(crate) fn pipes_are_streams(kind: Kind) {
    kind.each(|proactor| {
        let _crew = Crew::new(proactor, 2);
        let (reading, writing) = std::io::pipe().unwrap();
        let reading = Stream::new(proactor, reading).unwrap();
        let writing = Stream::new(proactor, writing).unwrap();
        let (done, received) = channel();
        read_all(reading, Vec::new(), done);
        // More than a pipe holds.
        let sent = pattern(200_000);
        write_all(writing, sent.clone(), |_| {});
        assert!(next(&received) == sent);
    });
}

pub(crate) fn datagrams_echo(kind: Kind) {
    kind.each(|proactor| {
        let _crew = Crew::new(proactor, 2);
        let server = Datagrams::bind(proactor, ANY).unwrap();
        let client = Datagrams::bind(proactor, ANY).unwrap();
        let to = server.local_address().unwrap();
        let answering = server.clone();
        server
            .read(vec![0; 100], move |BufResult(datagram, buffer)| {
                let datagram = datagram.unwrap();
                assert!(!datagram.is_truncated);
                answering
                    .write(buffer, datagram.from, |BufResult(sent, _)| {
                        assert_eq!(sent.unwrap(), 12);
                    })
                    .unwrap();
            })
            .unwrap();
        let (done, received) = channel();
        client.read(vec![0; 5], move |result| done.send(result).unwrap()).unwrap();
        client
            .write("twelve bytes", Some(to), |BufResult(sent, _)| assert_eq!(sent, Ok(12)))
            .unwrap();
        let BufResult(datagram, buffer) = next(&received);
        let datagram = datagram.unwrap();
        assert_eq!((datagram.from, datagram.length), (Some(to), 5));
        assert!(datagram.is_truncated);
        assert_eq!(buffer, b"twelv");
    });
}

pub(crate) fn files_are_written_and_read(kind: Kind) {
    kind.each(|proactor| {
        let _crew = Crew::new(proactor, 2);
        let directory = directory();
        let mut options = std::fs::OpenOptions::new();
        options.read(true).write(true).create_new(true);
        let file = options.open(directory.join("file")).unwrap();
        let file = File::new(proactor, file).unwrap();
        let (done, results) = channel();
        let sent = pattern(50_000);
        let sender = done.clone();
        file.write(1000, sent.clone(), move |result| sender.send(result).unwrap()).unwrap();
        let BufResult(result, _) = next(&results);
        assert_eq!(result.unwrap(), 50_000);
        for (offset, expected) in [(1000, &sent[..]), (31_000, &sent[30_000..]), (51_000, &[])] {
            let sender = done.clone();
            file.read(offset, vec![7; 60_000], move |result| sender.send(result).unwrap()).unwrap();
            let BufResult(result, buffer) = next(&results);
            assert_eq!(result.unwrap(), expected.len());
            assert!(buffer == expected);
        }
        // A file that is opened for reading only.
        let reading = std::fs::File::open(directory.join("file")).unwrap();
        let reading = File::new(proactor, reading).unwrap();
        reading.write(0, sent, move |result| done.send(result).unwrap()).unwrap();
        let BufResult(result, buffer) = next(&results);
        assert_eq!(result.unwrap_err().errno, libc::EBADF);
        assert_eq!(buffer.len(), 50_000);
    });
}

pub(crate) fn futures_are_driven(kind: Kind) {
    kind.each(|proactor| {
        let (listener, address) = listener(proactor);
        let proactor_of_client = proactor.clone();
        let both = async move {
            let (server, client) =
                join(listener.accept_async(), Stream::connect_async(&proactor_of_client, address))
                    .await;
            let ((server, _), client) = (server.unwrap(), client.unwrap());
            let (read, written) =
                join(server.read_async(vec![0; 64]), client.write_async("by future")).await;
            assert_eq!(written.0.unwrap(), 9);
            // A future that is dropped cancels its operation, and nothing else.
            drop(server.read_async(vec![0; 64]));
            read
        };
        let BufResult(result, buffer) = proactor.block_on(both).unwrap();
        assert_eq!((result.unwrap(), &buffer[..]), (9, &b"by future"[..]));
        finishes(proactor);
    });
}

/// Nothing is left when the handlers of cancelled operations have been called.
fn finishes(proactor: &Proactor) {
    until(|| {
        proactor.handle_events(Some(std::time::Duration::ZERO));
        proactor.outstanding() == 0
    });
}

async fn join<A: Future + Unpin, B: Future + Unpin>(mut a: A, mut b: B) -> (A::Output, B::Output) {
    use std::pin::Pin;
    use std::task::Poll;
    let (mut of_a, mut of_b) = (None, None);
    std::future::poll_fn(move |context| {
        if of_a.is_none()
            && let Poll::Ready(output) = Pin::new(&mut a).poll(context)
        {
            of_a = Some(output);
        }
        if of_b.is_none()
            && let Poll::Ready(output) = Pin::new(&mut b).poll(context)
        {
            of_b = Some(output);
        }
        match (of_a.take(), of_b.take()) {
            (Some(a), Some(b)) => Poll::Ready((a, b)),
            (a, b) => {
                (of_a, of_b) = (a, b);
                Poll::Pending
            }
        }
    })
    .await
}

/// Many reads of one stream at the same time: each gets the next bytes.
pub(crate) fn reads_are_done_in_order(kind: Kind) {
    kind.each(|proactor| {
        let _crew = Crew::new(proactor, 1);
        let (stream, mut peer) = stream_and_peer(proactor);
        let order = Arc::new(Mutex::new(Vec::new()));
        let (done, finished) = channel();
        for number in 0..20u8 {
            let (order, done) = (Arc::clone(&order), done.clone());
            stream
                .read(Box::new([0u8; 1]), move |BufResult(result, buffer)| {
                    assert_eq!(result.unwrap(), 1);
                    order.lock().unwrap().push((number, buffer[0]));
                    done.send(()).unwrap();
                })
                .unwrap();
        }
        for byte in 0..20 {
            peer.write_all(&[byte]).unwrap();
        }
        (0..20).for_each(|_| next(&finished));
        let expected: Vec<_> = (0..20).map(|number| (number, number)).collect();
        assert_eq!(*order.lock().unwrap(), expected);
    });
}

/// Reads that a handler starts: the first is attempted in its turn, the others follow it in the queue. Some
/// find bytes then, some have to wait, and one is cancelled.
pub(crate) fn reads_of_handlers_are_done_in_order(kind: Kind) {
    kind.each(|proactor| {
        let _crew = Crew::new(proactor, 1);
        // After this many, handlers count as short.
        let (done, finished) = channel();
        (0..1000).for_each(|_| proactor.post(|| {}).unwrap());
        proactor.post(move || done.send(()).unwrap()).unwrap();
        next(&finished);
        for (early, cancelled) in (0..=6).flat_map(|early| [(early, 0), (early, 1), (early, 9)]) {
            let (stream, mut peer) = stream_and_peer(proactor);
            let mut bytes = 0..100u8;
            let mut write = move |count: usize| {
                let some: Vec<u8> = bytes.by_ref().take(count).collect();
                peer.write_all(&some).unwrap();
            };
            write(early);
            let stream = Arc::new(stream);
            let (reader, cancelling) = (Arc::clone(&stream), proactor.clone());
            let (told, results) = channel();
            let (given, back) = channel();
            let posted = proactor.post(move || {
                let read = |number: usize| {
                    let told = told.clone();
                    let tell = move |BufResult(result, buffer): BufResult<usize, Vec<u8>>| {
                        told.send((number, result.map(|_| buffer[0]))).unwrap();
                    };
                    reader.read(vec![0; 1], tell).unwrap()
                };
                let reads: Vec<_> = (0..6).map(read).collect();
                write(2);
                if let Some(read) = reads.get(cancelled) {
                    cancelling.cancel(*read);
                }
                given.send(write).unwrap();
            });
            posted.unwrap();
            // Either enough bytes are there already, or the rest comes later.
            let mut write = next(&back);
            thread::sleep(std::time::Duration::from_micros(200));
            write(6);
            let mut expected = 0;
            let mut numbers: Vec<usize> = Vec::new();
            for _ in 0..6 {
                match next(&results) {
                    (number, Ok(byte)) => {
                        assert_eq!(byte, expected, "of read {number}");
                        assert!(numbers.last().is_none_or(|last| *last < number));
                        expected += 1;
                        numbers.push(number);
                    }
                    (number, Err(error)) => {
                        assert!(number == cancelled && error.is_cancelled(), "{number}: {error}");
                    }
                }
            }
            assert!(numbers.len() >= 5);
        }
    });
}

/// More operations than an engine's queue to the kernel holds, and all of them end at once. In a process of its
/// own, because of the many descriptors.
pub(crate) fn hundreds_of_descriptors(kind: Kind) {
    const STREAMS: usize = 400;
    let test = kind.test("hundreds_of_descriptors");
    alone(&test, || {
        kind.each(|proactor| {
            let streams: Vec<_> = (0..STREAMS)
                .map(|_| {
                    let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
                    (Stream::new(proactor, ours).unwrap(), theirs)
                })
                .collect();
            let (done, results) = channel();
            // Two reads of each stream, so that one waits for the other.
            for (stream, _) in streams.iter().chain(&streams) {
                let done = done.clone();
                let tell = move |result: BufResult<usize, _>| done.send(result.0).unwrap();
                stream.read(Box::new([0u8; 1]), tell).unwrap();
            }
            let _crew = Crew::new(proactor, 2);
            for (_, peer) in &streams {
                (&mut &*peer).write_all(b"12").unwrap();
            }
            for _ in 0..2 * STREAMS {
                assert_eq!(next(&results), Ok(1));
            }
        });
    });
}

/// Each stream waits in both directions, and hardly any more descriptors are allowed: two entries for each
/// would be more than `ppoll` takes.
pub(crate) fn both_directions_up_to_the_limit(kind: Kind) {
    const LISTENERS: usize = 4;
    const STREAMS: usize = 50;
    /// The number of streams of each listener that are served.
    const SERVED: usize = 5;
    /// Far beyond what the sockets hold.
    static MUCH: [u8; 1 << 20] = [7; 1 << 20];
    let test = kind.test("both_directions_up_to_the_limit");
    alone(&test, || {
        kind.each(|proactor| {
            let listeners: Vec<_> =
                (0..LISTENERS).map(|_| TcpListener::bind(ANY).unwrap()).collect();
            let connect = |listener: &TcpListener| {
                set_socket_recv_buffer_size(listener, 10_000).unwrap();
                // It is not accepted yet, so it takes one descriptor only.
                let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
                set_socket_send_buffer_size(&stream, 10_000).unwrap();
                Stream::new(proactor, stream).unwrap()
            };
            let streams: Vec<_> = listeners
                .iter()
                .flat_map(|listener| (0..STREAMS).map(move |_| connect(listener)))
                .collect();
            limit_descriptors(open_descriptors() + 2 * LISTENERS * SERVED);
            let ((read, reads), (written, writes)) = (channel(), channel());
            for stream in &streams {
                let (read, written) = (read.clone(), written.clone());
                let tell = move |BufResult(result, _)| read.send(result).unwrap();
                stream.read(Box::new([0u8; 1]), tell).unwrap();
                let tell = move |BufResult(result, _)| written.send(result).unwrap();
                stream.write_all(&MUCH, tell).unwrap();
            }
            let _crew = Crew::new(proactor, 2);
            let accept = |listener: &TcpListener| listener.accept().unwrap().0;
            let mut peers: Vec<_> = listeners
                .iter()
                .flat_map(|listener| (0..SERVED).map(move |_| accept(listener)))
                .collect();
            for peer in &mut peers {
                peer.write_all(b"x").unwrap();
            }
            for peer in &mut peers {
                assert_eq!(next(&reads), Ok(1));
                peer.set_read_timeout(Some(lost())).unwrap();
                let mut all = vec![0; MUCH.len()];
                peer.read_exact(&mut all).unwrap();
                assert_eq!(next(&writes), Ok(()));
            }
        });
    });
}
