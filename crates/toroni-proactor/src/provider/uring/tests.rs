use super::*;
use crate::config::create_engine;
use crate::core::Core;
use crate::operation::{Descriptor, Memory};
use crate::processor::Processor;
use crate::processor::attempt::Tried;
use crate::provider::Engine;
use crate::sys::ThreadId;
use crate::{ProcessorConfig, ProviderType};
use std::io::Write;
use std::os::unix::net::UnixStream;

/// The kernel reports these errors for operations that had begun, or that were tried again while they were
/// being cancelled.
#[test]
fn what_was_cancelled_and_moved_nothing_ends_as_cancelled() {
    let ring = Arc::new(Ring::new(false).unwrap());
    let mut uring = Uring::new(ring, true, false);
    let mut pool = Pool::new();
    let (reader, _writer) = std::io::pipe().unwrap();
    let on = Arc::new(Descriptor::new(reader.into(), 0).unwrap());
    let key = pool.create(Request::new(OperationKind::ReadStream, on), None);
    pool[key.index].is_cancelled = true;
    for errno in [Errno::CANCELED, Errno::INTR, Errno::AGAIN, Errno::INPROGRESS] {
        let outcome = uring.outcome(&mut pool, key, -errno.raw_os_error());
        assert_eq!(outcome.unwrap().result, Err(Errno::CANCELED), "{errno:?}");
    }
    uring.set_polled(key.index, true);
    let outcome = uring.outcome(&mut pool, key, i32::from(libc::POLLIN));
    assert_eq!(outcome.unwrap().result, Err(Errno::CANCELED), "the poll was over first");
}

/// A read that a handler starts is attempted before anything is submitted, and only once: if it finds
/// nothing, it is waited for.
#[test]
fn what_may_be_ready_is_not_submitted() {
    let ring = Arc::new(Ring::new(false).unwrap());
    let mut uring = Uring::new(Arc::clone(&ring), true, false);
    let mut pool = Pool::new();
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let on = Arc::new(Descriptor::new(ours.into(), 0).unwrap());
    let mut bytes = [0; 8];
    let mut read = |pool: &mut Pool| {
        let mut request = Request::new(OperationKind::ReadStream, Arc::clone(&on));
        // SAFETY: the bytes outlive the ring, and nothing else accesses them.
        request.memory = unsafe { Memory::to_fill(bytes.as_mut_ptr(), 8) };
        pool.create(request, None).index
    };

    let found = read(&mut pool);
    assert!(matches!(uring.start(&mut pool, found), Start::Ready));
    theirs.write_all(b"there").unwrap();
    let outcome = uring.attempt()(&mut pool[found].request);
    assert_eq!(outcome.unwrap().result, Ok(5));
    assert_eq!(uring.leave(&mut pool, found), None);
    assert!(!ring.has_rest());

    let waits = read(&mut pool);
    assert!(matches!(uring.start(&mut pool, waits), Start::Ready));
    let behind = read(&mut pool);
    assert!(matches!(uring.start(&mut pool, behind), Start::Started));
    assert!(uring.attempt()(&mut pool[waits].request).is_none());
    assert!(!ring.has_rest());
    uring.wait_on(&mut pool, waits);
    assert!(ring.has_rest());
    // A descriptor that is known not to be ready is not attempted until the ring has reported an event.
    theirs.write_all(b"later").unwrap();
    assert!(uring.attempt()(&mut pool[waits].request).is_none());
    on.edges().report(true);
    assert_eq!(uring.attempt()(&mut pool[waits].request).unwrap().result, Ok(5));
    assert_eq!(uring.leave(&mut pool, waits), Some(behind));
}

/// While the leader waits, a thread that finds that an operation has to wait submits it to the kernel.
#[test]
fn what_was_tried_in_vain_is_submitted_for_a_leader_that_waits() {
    let config = ProcessorConfig { provider: ProviderType::Uring, ..ProcessorConfig::default() };
    let (engine, _) = create_engine(&config).unwrap();
    let ring = Arc::new(Ring::new(false).unwrap());
    let uring = Uring::new(Arc::clone(&ring), true, false);
    let wait = uring.wait_strategy();
    let engine = Engine { provider: Box::new(uring), wait, ..engine };
    let mut pool = Pool::new();
    let processors = vec![Processor::new(
        0,
        false,
        crate::processor::Limit::new(usize::MAX, None),
        engine,
        &mut pool,
    )];
    let mut core = Core::new(pool, processors, Arc::new(crate::shards::Group::new(1)));

    let (ours, _theirs) = UnixStream::pair().unwrap();
    let on = Arc::new(Descriptor::new(ours.into(), 0).unwrap());
    let mut bytes = [0; 8];
    let mut request = Request::new(OperationKind::ReadStream, on);
    // SAFETY: the bytes outlive the ring, and nothing else accesses them.
    request.memory = unsafe { Memory::to_fill(bytes.as_mut_ptr(), 8) };
    let index = core.pool.create(request, None).index;
    core.start_aio(0, index).unwrap();
    assert!(core.withdraw(index), "it is tried first");

    core.processors[0].acquire_leadership(ThreadId::current());
    core.processors[0].set_waiting(true);
    let mut request = core.pool[index].request.lend();
    assert!(attempt::attempt(&mut request).is_none());
    assert!(matches!(core.tried(index, request, None), Tried::Waits));
    assert!(!ring.has_rest(), "the leader does not know of it");
}
