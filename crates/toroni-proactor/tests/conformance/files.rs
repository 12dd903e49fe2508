//! Files: many transfers at once, and transfers that end early.

use super::Kind;
use super::common::*;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use toroni_proactor::{BufResult, File, Proactor, Rest};
use toroni_testkit::Directory;

/// Creates a file of this many bytes. Returns it and its content.
fn file_of(
    proactor: &Proactor,
    directory: &Directory,
    name: &str,
    length: usize,
) -> (File, Vec<u8>) {
    let content = pattern(length);
    let path = directory.join(name);
    std::fs::write(&path, &content).unwrap();
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    (File::new(proactor, file).unwrap(), content)
}

/// Each thread writes its own file in pieces, all at once, and reads them back, all at once.
pub(crate) fn many_files_at_once(kind: Kind) {
    const PIECE: usize = 1000;
    const PIECES: usize = 40;
    kind.each(|proactor| {
        let _crew = Crew::new(proactor, 2);
        let directory = directory();
        thread::scope(|scope| {
            for number in 0..4usize {
                let name = format!("file {number}");
                let (file, _) = file_of(proactor, &directory, &name, 0);
                scope.spawn(move || {
                    let content = pattern(PIECE * PIECES + number)[number..].to_vec();
                    let (done, results) = channel();
                    for (piece, bytes) in content.chunks(PIECE).enumerate() {
                        let done = done.clone();
                        let tell = move |result: BufResult<_, _>| done.send(result.0).unwrap();
                        file.write((piece * PIECE) as u64, bytes.to_vec(), tell).unwrap();
                    }
                    (0..PIECES).for_each(|_| assert_eq!(next(&results), Ok(PIECE)));
                    let (done, results) = channel();
                    for piece in 0..PIECES {
                        let done = done.clone();
                        let tell = move |BufResult(result, buffer): BufResult<_, Vec<u8>>| {
                            done.send((piece, result, buffer)).unwrap();
                        };
                        file.read((piece * PIECE) as u64, Vec::with_capacity(PIECE), tell).unwrap();
                    }
                    for _ in 0..PIECES {
                        let (piece, result, buffer) = next(&results);
                        assert_eq!(result, Ok(PIECE));
                        assert!(buffer == content[piece * PIECE..][..PIECE]);
                    }
                });
            }
        });
    });
}

/// However far each has come, it succeeds or is cancelled, and its buffer comes back.
pub(crate) fn cancelled_transfers_are_reported_once(kind: Kind) {
    const READS: usize = 60;
    kind.each_limited(Some(20), |proactor| {
        let _crew = Crew::new(proactor, 2);
        let directory = directory();
        let (file, content) = file_of(proactor, &directory, "file", 1 << 20);
        let expected = Arc::new(content);
        for all_at_once in [false, true] {
            let told = Arc::new(AtomicUsize::new(0));
            let (done, results) = channel();
            let mut operations = Vec::new();
            for _ in 0..READS {
                let buffer = vec![0; 1 << 20];
                let address = buffer.as_ptr() as usize;
                let (done, told) = (done.clone(), Arc::clone(&told));
                let tell = move |BufResult(result, buffer): BufResult<_, Vec<u8>>| {
                    told.fetch_add(1, Ordering::Relaxed);
                    assert_eq!(buffer.as_ptr() as usize, address, "the same buffer");
                    done.send((result, buffer)).unwrap();
                };
                operations.push(file.read(0, buffer, tell).unwrap());
            }
            if all_at_once {
                file.cancel();
            } else {
                // From the last to the first, so that earlier ones are still in progress.
                operations.iter().rev().for_each(|read| _ = proactor.cancel(*read));
            }
            for _ in 0..READS {
                match next(&results) {
                    (Ok(bytes), buffer) => {
                        assert!(bytes == expected.len() && buffer == *expected);
                    }
                    (Err(error), _) => assert!(error.is_cancelled(), "{error}"),
                }
            }
            until(|| proactor.outstanding() == 0);
            assert_eq!(told.load(Ordering::Relaxed), READS);
            assert!(!operations.iter().any(|read| proactor.cancel(*read)), "they are over");
        }
        // The file still works.
        let (done, results) = channel();
        file.read(5, vec![0; 8], move |result| done.send(result.1).unwrap()).unwrap();
        assert_eq!(next(&results), expected[5..13]);
    });
}

pub(crate) fn transfers_beyond_the_limit(kind: Kind) {
    const READS: usize = 100;
    kind.each_limited(Some(2), |proactor| {
        let directory = directory();
        let files: Vec<_> =
            (0..3).map(|n| file_of(proactor, &directory, &format!("{n}"), READS).0).collect();
        let content = pattern(READS);
        let (done, results) = channel();
        let crew = Crew::new(proactor, 1);
        for number in 0..READS {
            let done = done.clone();
            let tell = move |BufResult(result, buffer): BufResult<usize, Box<[u8; 1]>>| {
                done.send((number, result, *buffer)).unwrap();
            };
            files[number % 3].read(number as u64, Box::new([0]), tell).unwrap();
        }
        for _ in 0..READS {
            let (number, result, [byte]) = next(&results);
            assert_eq!((result, byte), (Ok(1), content[number]));
        }
        drop(crew);
        assert_eq!(proactor.outstanding(), 0);
    });
}

/// The threads that started them have ended before any thread handles events.
pub(crate) fn transfers_outlive_their_threads(kind: Kind) {
    kind.each(|proactor| {
        let directory = directory();
        let (file, content) = file_of(proactor, &directory, "file", 4000);
        let (done, results) = channel();
        for thread in 0..4usize {
            let (file, done) = (file.clone(), done.clone());
            let start = move || {
                let tell = move |BufResult(result, buffer): BufResult<_, Vec<u8>>| {
                    done.send((thread, result, buffer)).unwrap();
                };
                file.read(thread as u64 * 1000, vec![0; 1000], tell).unwrap();
            };
            thread::spawn(start).join().unwrap();
        }
        let _crew = Crew::new(proactor, 1);
        for _ in 0..4 {
            let (thread, result, buffer) = next(&results);
            assert_eq!(result, Ok(1000));
            assert!(buffer == content[thread * 1000..][..1000]);
        }
    });
}

/// While one thread calls a handler, the other leads.
pub(crate) fn a_handler_blocks_no_transfer(kind: Kind) {
    kind.each(|proactor| {
        let _crew = Crew::new(proactor, 2);
        let directory = directory();
        let (file, content) = file_of(proactor, &directory, "file", 100);
        for _ in 0..20 {
            let (release, blocked) = channel::<()>();
            let (entered, inside) = channel();
            file.read(0, vec![0; 1], move |_| {
                entered.send(()).unwrap();
                let _ = blocked.recv_timeout(LOST);
            })
            .unwrap();
            next(&inside);
            let (done, results) = channel();
            file.read(7, vec![0; 1], move |result| done.send(result.1).unwrap()).unwrap();
            assert_eq!(next(&results), content[7..8], "no thread leads while a handler runs");
            drop(release);
        }
    });
}

/// Each handler and each buffer is used or dropped, once.
pub(crate) fn a_proactor_is_dropped_amid_transfers(kind: Kind) {
    const WRITES: usize = 200;
    kind.each(|other| {
        let directory = directory();
        for handles in [false, true] {
            let proactor = Proactor::new(&same_as(other)).unwrap();
            let (file, _) = file_of(&proactor, &directory, "file", 0);
            let held = Arc::new(());
            for number in 0..WRITES {
                let token = Arc::clone(&held);
                let bytes = Rest::after(vec![number.to_le_bytes()[0]; 5000], 0);
                file.write(number as u64 * 5000, bytes, move |_| drop(token)).unwrap();
            }
            if handles {
                assert!(proactor.handle_events(Some(LOST)) > 0);
            }
            drop(proactor);
            assert_eq!(Arc::strong_count(&held), 1, "handlers are dropped");
            let left = file.read(0, vec![4; 3], |_| {}).unwrap_err();
            assert_eq!(left.buffer, [4; 3]);
        }
    });
}

/// Whether a pipe is a file must not depend on the engine.
pub(crate) fn what_has_no_positions_is_no_file(kind: Kind) {
    kind.each(|proactor| {
        let (reading, mut writing) = std::io::pipe().unwrap();
        writing.write_all(b"x").unwrap();
        let socket = std::net::UdpSocket::bind(ANY).unwrap();
        let flags = rustix::event::EventfdFlags::empty();
        let event = rustix::event::eventfd(1, flags).unwrap();
        for none in [OwnedFd::from(reading), writing.into(), socket.into(), event] {
            let error = File::new(proactor, none).err().unwrap();
            assert!(error.to_string().contains("Illegal seek"), "{error}");
        }
        let nothing = std::fs::File::open("/dev/null").unwrap();
        let nothing = File::new(proactor, nothing).unwrap();
        let _crew = Crew::new(proactor, 1);
        let (done, results) = channel();
        nothing.read(3, vec![0; 3], move |result| done.send(result.0).unwrap()).unwrap();
        assert_eq!(next(&results), Ok(0));
    });
}

/// To io_uring, the largest number means the file's own position; to the other engines, nothing.
pub(crate) fn positions_have_63_bits(kind: Kind) {
    kind.each(|proactor| {
        let directory = directory();
        let (file, _) = file_of(proactor, &directory, "file", 10);
        for offset in [u64::MAX, 1 << 63] {
            let refused = file.read(offset, vec![0; 3], |_| panic!("never")).unwrap_err();
            assert!(refused.to_string().contains("Invalid argument"), "{refused}");
            assert!(file.write(offset, "abc", |_| panic!("never")).is_err());
        }
        assert_eq!(std::fs::metadata(directory.join("file")).unwrap().len(), 10);
    });
}

/// `O_NONBLOCK` means nothing for files, but some kernels and file systems let io_uring answer `EAGAIN`.
pub(crate) fn non_blocking_files_are_read(kind: Kind) {
    use std::os::unix::fs::OpenOptionsExt;
    kind.each(|proactor| {
        let _crew = Crew::new(proactor, 1);
        let directory = directory();
        let path = directory.join("file");
        std::fs::write(&path, "content").unwrap();
        for path in [path.as_path(), "/proc/self/maps".as_ref(), "/proc/version".as_ref()] {
            let mut options = std::fs::OpenOptions::new();
            let file = options.read(true).custom_flags(libc::O_NONBLOCK).open(path).unwrap();
            let file = File::new(proactor, file).unwrap();
            let (done, results) = channel();
            file.read(0, vec![0; 7], move |result| done.send(result.0).unwrap()).unwrap();
            assert_eq!(next(&results), Ok(7), "{}", path.display());
        }
    });
}

/// More than any queue between a program and the kernel holds, before any thread waits.
pub(crate) fn thousands_of_transfers_at_once(kind: Kind) {
    const READS: usize = 4500;
    kind.each(|proactor| {
        let directory = directory();
        let (file, content) = file_of(proactor, &directory, "file", 100);
        let right = Arc::new(AtomicUsize::new(0));
        for number in 0..READS {
            let (right, expected) = (Arc::clone(&right), content[number % 100]);
            file.read(number as u64 % 100, vec![0; 1], move |BufResult(result, buffer)| {
                assert_eq!((result, buffer[0]), (Ok(1), expected));
                right.fetch_add(1, Ordering::Relaxed);
            })
            .unwrap();
        }
        let _crew = Crew::new(proactor, 2);
        until(|| proactor.outstanding() == 0);
        assert_eq!(right.load(Ordering::Relaxed), READS);
    });
}
