//! Closing a proactor with an operation that cannot be cancelled: it waits until the operation is over, and if
//! that takes too long, frees nothing that may still be written to.
//!
//! The operation is a read of a pipe by a thread of the C library. Users cannot start one, only an interrupt
//! strategy does; it stands for a disk that hangs.

use crate::operation::{Completion, Descriptor, Done, Memory, OperationKind, Request};
use crate::tests::common::*;
use crate::{Config, Proactor, ProcessorConfig, ProcessorType, ProviderType, WaitType};
use std::io::{PipeWriter, Write};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The buffer of the operation, and whether it was freed.
struct Held {
    bytes: Box<[u8; 8]>,
    is_freed: Arc<AtomicBool>,
}

impl Completion for Held {
    fn complete(self: Box<Self>, _: Done) {}
}

impl Drop for Held {
    fn drop(&mut self) {
        self.is_freed.store(true, Ordering::Relaxed);
    }
}

/// Returns a proactor with a read that a thread of the C library works on, the writer that ends it, the
/// address that it writes to, and whether that was freed.
fn stubborn(
    wait: WaitType,
    processor_type: ProcessorType,
) -> (Proactor, PipeWriter, *const u8, Arc<AtomicBool>) {
    let provider = ProviderType::Posix;
    let config = ProcessorConfig { provider, wait, processor_type, ..Default::default() };
    let proactor = Proactor::new(&Config::one(config)).unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    let number = reader.as_raw_fd();
    let is_freed = Arc::new(AtomicBool::new(false));
    let mut held = Box::new(Held { bytes: Box::new([0; 8]), is_freed: Arc::clone(&is_freed) });
    let memory = held.bytes.as_mut_ptr();
    let descriptor = Arc::new(Descriptor::new(reader.into(), 0).unwrap());
    let mut request = Request::new(OperationKind::ReadStream, descriptor);
    // SAFETY: the bytes are on the heap, and the completion has them for as long as the read takes.
    request.memory = unsafe { Memory::to_fill(memory, 8) };
    super::start_on(&proactor, 0, request, held);
    until(|| somebody_reads(number));
    (proactor, writer, memory, is_freed)
}

/// Returns whether a thread of this process is in a read of that descriptor.
fn somebody_reads(descriptor: i32) -> bool {
    let call = format!("{} {descriptor:#x} ", libc::SYS_read);
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    tasks.flatten().any(|task| {
        let said = std::fs::read_to_string(task.path().join("syscall"));
        said.is_ok_and(|said| said.starts_with(&call))
    })
}

fn each(test: impl Fn(WaitType, ProcessorType)) {
    for wait in [WaitType::Native, WaitType::Sigwait, WaitType::Callback] {
        for processor_type in [ProcessorType::Shared, ProcessorType::Dedicated] {
            test(wait, processor_type);
        }
    }
}

#[test]
fn what_is_over_in_time_is_freed() {
    each(|wait, processor_type| {
        let (proactor, mut writer, _, is_freed) = stubborn(wait, processor_type);
        let writes = thread::spawn(move || {
            thread::sleep(Duration::from_millis(20));
            writer.write_all(b"at last").unwrap();
        });
        drop(proactor);
        assert!(is_freed.load(Ordering::Relaxed), "{wait:?}, {processor_type:?}");
        writes.join().unwrap();
    });
}

#[test]
fn what_is_not_over_in_time_is_leaked() {
    each(|wait, processor_type| {
        let (proactor, mut writer, memory, is_freed) = stubborn(wait, processor_type);
        let drain_timeout = Duration::from_millis(30);
        proactor.inner().shards.lock(0).drain_timeout = drain_timeout;
        let begun = Instant::now();
        drop(proactor);
        assert!(begun.elapsed() >= drain_timeout, "it was not waited for");
        assert!(!is_freed.load(Ordering::Relaxed), "{wait:?}, {processor_type:?}");
        // The C library still reads, and writes to what it was given.
        writer.write_all(b"too late").unwrap();
        // SAFETY: the buffer was leaked, so it is there, and large enough.
        until(|| unsafe { memory.cast::<[u8; 8]>().read_volatile() } == *b"too late");
    });
}
