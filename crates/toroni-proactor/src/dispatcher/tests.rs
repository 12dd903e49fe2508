//! The paper's counts, notification states and levels, as they are.

use super::local_run::LocalRun;
use super::*;
use crate::config::create_engine;
use crate::core::Phase;
use crate::operation::{Descriptor, Done, OperationKind, OperationMask, Outcome, Pool};
use crate::processor::{Limit, Processor};
use crate::shards::{Advice, Group, Lookout, Shards, handle_events};
use crate::sys::ThreadId;
use crate::tests::common::*;
use crate::{Config, Datagrams, Proactor, ProcessorConfig, ProcessorType, ProviderType};
use std::io::Write;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

/// Returns the state of a proactor with these processors, and without threads.
fn core(types: &[ProcessorType]) -> Core {
    let mut pool = Pool::new();
    let mut processor = |(number, processor_type): (usize, &ProcessorType)| {
        let (provider, processor_type) = (ProviderType::Select, *processor_type);
        let config = ProcessorConfig { provider, processor_type, ..ProcessorConfig::default() };
        let (engine, _) = create_engine(&config).unwrap();
        let is_dedicated = processor_type == ProcessorType::Dedicated;
        Processor::new(number, is_dedicated, Limit::new(usize::MAX, None), engine, &mut pool)
    };
    let processors = types.iter().enumerate().map(&mut processor).collect();
    Core::new(pool, processors, Arc::new(Group::new(1)))
}

/// Adds this many followers, and a leader of the first processor, as if they slept and waited.
fn with(followers: usize, is_led: bool) -> Core {
    let mut core = core(&[ProcessorType::Shared]);
    core.dispatcher.followers = followers;
    if is_led {
        lead(&mut core, 0);
        core.dispatcher.leaders = 1;
    }
    core
}

fn lead(core: &mut Core, which: usize) {
    core.processors[which].acquire_leadership(ThreadId::current());
    core.processors[which].set_waiting(true);
}

/// A handler that reports when it is called, and returns when it is released.
struct Held(Sender<()>, Receiver<()>);

impl Completion for Held {
    fn complete(self: Box<Self>, _: Done) {
        self.0.send(()).unwrap();
        let _ = self.1.recv();
    }
}

fn post(core: &mut Core, level: Notify) {
    let key = core.pool.create(Request::post(), None);
    core.post_completion(key.index, level);
}

/// Returns what a post made necessary: how many followers are woken, and whether the leader is interrupted.
fn done(core: &mut Core) -> (usize, bool) {
    (core.dispatcher.take_wakes(), core.processors.iter().any(Processor::is_interrupted))
}

#[test]
fn the_state_follows_from_the_counts() {
    use NotificationState::{DoNothing, InterruptLeader, WakeupFollower};
    for (followers, is_led, state, what) in [
        (0, false, DoNothing, (0, false)),
        (1, false, WakeupFollower, (1, false)),
        (2, true, WakeupFollower, (1, false)),
        (0, true, InterruptLeader, (0, true)),
    ] {
        let mut core = with(followers, is_led);
        assert_eq!(core.dispatcher.notification_state(), state);
        post(&mut core, Notify::Strong);
        assert_eq!(done(&mut core), what, "{state:?}");
        // A processor that has got something to wait for has the same effect.
        let mut core = with(followers, is_led);
        core.notify_only_follower();
        assert_eq!(done(&mut core), what, "{state:?}");
    }
}

#[test]
fn a_level_of_none_wakes_no_thread() {
    for (followers, is_led) in [(2, true), (0, true), (1, false)] {
        let mut core = with(followers, is_led);
        post(&mut core, Notify::None);
        assert!(core.has_work());
        assert_eq!(done(&mut core), (0, false));
    }
}

/// A woken thread wakes the next, if there is more to do.
#[test]
fn one_wake_up_is_on_its_way_at_a_time() {
    let mut core = with(3, false);
    (0..3).for_each(|_| post(&mut core, Notify::Strong));
    assert_eq!(core.dispatcher.take_wakes(), 1);
    core.wake_everybody();
    assert_eq!(core.dispatcher.take_wakes(), 2, "the others, too");
}

/// A dedicated leader dispatches nothing, so an interrupt would be useless.
#[test]
fn a_dedicated_leader_is_not_interrupted_for_a_result() {
    let mut core = core(&[ProcessorType::Dedicated, ProcessorType::Shared]);
    lead(&mut core, 0);
    lead(&mut core, 1);
    core.dispatcher.leaders = 1;
    post(&mut core, Notify::Strong);
    assert!(!core.processors[0].is_interrupted() && core.processors[1].is_interrupted());
}

/// The only thread leads the other processor, and would stay in its wait if only followers were woken.
#[test]
fn a_dedicated_leader_interrupts_the_only_thread() {
    let config = |processor_type, operations| ProcessorConfig {
        provider: ProviderType::Select,
        processor_type,
        operations,
        ..ProcessorConfig::default()
    };
    let streams = OperationMask::of(&[OperationKind::ReadStream, OperationKind::WriteStream]);
    let config = Config::two(
        config(ProcessorType::Dedicated, streams),
        config(ProcessorType::Shared, OperationMask::ALL),
    );
    let proactor = Proactor::new(&config).unwrap();
    let _crew = Crew::new(&proactor, 1);
    // Something to lead for.
    let idle = Datagrams::bind(&proactor, ANY).unwrap();
    idle.read(vec![0; 8], |_| {}).unwrap();
    let (stream, mut peer) = stream_and_peer(&proactor);
    let (done, results) = channel();
    for _ in 0..100 {
        let done = done.clone();
        stream.read(vec![0; 8], move |result| done.send(result.0).unwrap()).unwrap();
        peer.write_all(b"x").unwrap();
        assert_eq!(next(&results), Ok(1));
    }
}

/// With threads in each of the three roles.
#[test]
fn each_thread_is_counted_once() {
    const THREADS: usize = 4;
    let shards = Shards::new(vec![core(&[ProcessorType::Shared])], 0);
    let counted = |followers, leaders, handlers| {
        until(|| {
            let locked = shards.lock(0);
            let of = &locked.dispatcher;
            assert_eq!(of.threads(), of.followers + of.leaders + of.handlers);
            (of.followers - of.woken, of.leaders, of.handlers) == (followers, leaders, handlers)
        });
    };
    thread::scope(|scope| {
        counted(0, 0, 0);
        for _ in 0..THREADS {
            scope.spawn(|| {
                while shards.lock(0).dispatches() {
                    handle_events(&shards, None, None);
                }
            });
        }
        counted(4, 0, 0);
        // An operation that does not end.
        let (reader, _writer) = std::io::pipe().unwrap();
        let descriptor = Arc::new(Descriptor::new(reader.into(), 0).unwrap());
        let (done, _idle) = channel();
        let never: Box<dyn Completion> = Box::new(Held(done, channel().1));
        let request = Request::new(OperationKind::WaitReadable, descriptor);
        let mut locked = shards.lock(0);
        let key = locked.pool.create(request, Some(never));
        locked.start_aio(0, key.index).unwrap();
        drop(locked);
        counted(3, 1, 0);
        // Two handlers that take their time.
        let (done, called) = channel();
        let begin = || {
            let (ends, end) = channel();
            shards.lock(0).post(Box::new(Held(done.clone(), end)), After::Posted);
            next(&called);
            ends
        };
        let ends = [begin(), begin()];
        counted(1, 1, 2);
        drop(ends);
        counted(3, 1, 0);
        let mut locked = shards.lock(0);
        locked.phase = Phase::Stopped;
        locked.wake_everybody();
        drop(locked);
        counted(0, 0, 0);
    });
}

/// The only thread, whose handlers do not sleep.
fn with_a_thread_that_collects() -> Core {
    let mut core = core(&[ProcessorType::Shared]);
    core.dispatcher.handlers = 1;
    core.dispatcher.handlers_sleep().store(false, Ordering::Relaxed);
    core
}

/// A read by a handler. An attempt finds nothing.
fn offer(descriptor: &Arc<Descriptor>, outcome: Option<Outcome>) -> local_run::Offer {
    local_run::Offer {
        processor: 0,
        request: Request::new(OperationKind::ReadStream, Arc::clone(descriptor)),
        completion: Box::new(Held(channel().0, channel().1)),
        outcome,
        attempt: |_| None,
    }
}

/// A thread whose handler has started something and does not return.
#[test]
fn the_run_of_a_handler_that_blocks_is_ended_at_the_second_check() {
    let mut core = with_a_thread_that_collects();
    let lent = core.lend_local_run();
    assert!(core.open_local_run(lent.run().unwrap()), "there is no other thread");
    let (reader, _writer) = std::io::pipe().unwrap();
    let descriptor = Arc::new(Descriptor::new(reader.into(), 0).unwrap());
    let offer = || offer(&descriptor, Some(Outcome::of(Ok(1))));
    assert!(local_run::collect(offer()).is_break());
    core.end_blocked_local_runs();
    assert_eq!(core.outstanding(), 0, "it may have been opened a moment ago");
    core.end_blocked_local_runs();
    assert_eq!((core.outstanding(), core.has_work()), (1, true));
    assert!(local_run::collect(offer()).is_continue(), "ended");
    // The descriptor has one result that waits, and then none.
    assert_eq!(descriptor.results(OperationKind::ReadStream), 1);
    let index = core.pop_completed(true, 0).unwrap();
    drop(core.pool.complete(index));
    assert_eq!(descriptor.results(OperationKind::ReadStream), 0);
}

/// Three rounds of a thread, in each of which a handler starts a read that waits for its turn.
fn keep_three(core: &mut Core, run: &LocalRun) {
    for _ in 0..3 {
        let (reader, _writer) = std::io::pipe().unwrap();
        let descriptor = Arc::new(Descriptor::new(reader.into(), 0).unwrap());
        assert!(core.open_local_run(run));
        assert!(local_run::collect(offer(&descriptor, None)).is_break());
        // Another thread is at work meanwhile.
        core.dispatcher.handlers = 2;
        core.end_local_round(run, 1, false);
        core.dispatcher.handlers = 1;
    }
    assert_eq!((core.kept(), core.has_work()), (3, false));
}

/// A thread keeps what waits for its turn. Another one with nothing to do takes it over.
#[test]
fn what_a_thread_keeps_is_shared_unless_all_cores_are_busy() {
    let mut core = with_a_thread_that_collects();
    let lent = core.lend_local_run();
    let run = lent.run().unwrap();
    keep_three(&mut core, run);
    assert!(!core.take_share(usize::MAX), "all cores are busy");
    assert_eq!((core.kept(), core.has_work()), (3, false));
    assert!(core.take_share(0));
    assert_eq!((core.kept(), core.has_work()), (0, true));
    // A thread of another shard helps, although this one gets on.
    while core.pop_completed(true, 0).is_some() {}
    keep_three(&mut core, run);
    assert!(core.needs_help());
    assert_eq!((core.kept(), core.has_work()), (0, true));
}

/// A thread that comes back continues with what it keeps. If no thread checks whether it does, it leaves everything to
/// the others.
#[test]
fn a_thread_that_returns_keeps_only_what_another_one_will_miss() {
    let mut core = with_a_thread_that_collects();
    (0..1000).for_each(|_| core.dispatcher.policy.note_arrival());
    for is_checked in [false, true] {
        let lent = core.lend_local_run();
        keep_three(&mut core, lent.run().unwrap());
        let tick = is_checked.then(|| {
            // The other thread waits.
            core.dispatcher.followers = 1;
            core.begin_tick().expect("something was taken")
        });
        core.return_local_run(lent.run());
        drop(lent);
        assert_eq!(core.kept(), if is_checked { 3 } else { 0 });
        assert_eq!(core.has_work(), !is_checked);
        // The same thread comes back.
        let lent = core.lend_local_run();
        assert_eq!(core.kept_in(lent.run().unwrap()), core.kept());
        // It is gone again, for good.
        core.return_local_run(lent.run());
        core.dispatcher.handlers = 0;
        core.end_tick(tick, false);
        assert_eq!(core.dispatcher.policy.threads_return(), !is_checked, "it was missed");
        core.end_local_runs();
        assert_eq!((core.kept(), core.has_work()), (0, true));
        core.dispatcher.handlers = 1;
        while core.pop_completed(true, 0).is_some() {}
    }
}

/// The thread that checks the engines keeps nothing itself.
#[test]
fn a_post_comes_after_what_another_thread_keeps() {
    let mut core = with_a_thread_that_collects();
    let other = core.lend_local_run();
    keep_three(&mut core, other.run().unwrap());
    core.end_runs_for_posts();
    assert_eq!((core.kept(), core.has_work()), (3, false), "there is no post");
    core.post(Box::new(Held(channel().0, channel().1)), After::Check);
    core.end_runs_for_posts();
    // As a check of the engines does.
    core.end_speculation();
    core.release_after_check();
    assert_eq!(core.kept(), 0);
    let mut order = Vec::new();
    while let Some(index) = core.pop_completed(true, 0) {
        order.push(core.pool[index].request.kind);
    }
    assert_eq!(order.pop(), Some(OperationKind::Post));
    assert_eq!(order, [OperationKind::ReadStream; 3]);
}

/// Results of others come before what a thread keeps, but not for ever.
#[test]
fn what_a_thread_keeps_has_its_turn_after_about_a_millisecond() {
    let mut core = with_a_thread_that_collects();
    let lent = core.lend_local_run();
    let run = lent.run().unwrap();
    keep_three(&mut core, run);
    // A turn of the three takes six.
    let in_a_millisecond = u64::try_from(core.dispatcher.policy.results_in_visit()).unwrap();
    core.end_overdue_local_runs();
    core.dispatcher.taken += in_a_millisecond.max(12);
    core.end_overdue_local_runs();
    assert_eq!(core.kept(), 3, "the check before was not longer ago");
    core.dispatcher.taken += 1;
    core.end_overdue_local_runs();
    assert_eq!((core.kept(), core.has_work()), (0, true));
}

/// Threads that return to their owners mostly come back at once. If one does not, and leaves work behind, none is
/// expected back for a while.
#[test]
fn a_thread_that_does_not_come_back_is_not_expected() {
    let mut core = core(&[ProcessorType::Shared]);
    let returns = |core: &Core| core.dispatcher.policy.threads_return();
    (0..1000).for_each(|_| core.dispatcher.policy.note_arrival());
    assert!(returns(&core));
    for (at_work, has_work, is_expected) in [(1, true, true), (0, false, true), (0, true, false)] {
        // This thread waits, and another one is at work.
        (core.dispatcher.followers, core.dispatcher.handlers) = (1, 1);
        core.dispatcher.taken += 1;
        let tick = core.begin_tick();
        assert!(tick.is_some());
        core.dispatcher.handlers = at_work;
        if has_work && !core.has_work() {
            post(&mut core, Notify::None);
        }
        core.end_tick(tick, false);
        assert_eq!(returns(&core), is_expected, "{at_work} at work");
        while core.pop_completed(true, 0).is_some() {}
    }
}

/// The last running thread may leave without waking a follower that checks whether it makes progress.
#[test]
fn a_follower_that_checks_does_not_wait_for_nobody() {
    // Each time, the running thread has to leave within a tick.
    for _ in 0..20 {
        let proactor = Proactor::new(&Config::default()).unwrap();
        let shards = &proactor.inner().shards;
        let deadline = Instant::now() + lost();
        thread::scope(|threads| {
            let mut follower = shards.lock(0);
            // This thread, and one in a handler.
            follower.dispatcher.handlers = 2;
            follower.dispatcher.taken += 1;
            threads.spawn(|| {
                let mut running = shards.lock(0);
                running.dispatcher.taken += 1;
                running.dispatcher.handlers -= 1;
            });
            follower.wait_as_follower(Some(deadline), None);
            assert!(Instant::now() < deadline, "no thread wakes it");
            // The other thread may still be on its way.
            drop(follower);
        });
        shards.lock(0).dispatcher.handlers = 0;
    }
}

/// A thread that leaves the rest to a running one may have left a call just before, when it ended its run.
#[test]
fn a_follower_delivers_its_call_before_it_waits() {
    let proactor = Proactor::new(&Config::default().with_shards(2)).unwrap();
    let shards = &proactor.inner().shards;
    let mut lookout = Lookout::default();
    // A thread of the other shard waits, and does not tick.
    assert_eq!(shards.lock(1).look_around(&mut lookout), Advice::Again);
    let mut follower = shards.lock(0);
    // This thread, and one in a handler.
    follower.dispatcher.handlers = 2;
    post(&mut follower, Notify::Strong);
    assert!(follower.dispatcher.calls.has_call());
    let deadline = Instant::now() + lost();
    follower.wait_as_follower(Some(deadline), None);
    assert!(Instant::now() < deadline, "it waited");
    assert!(!follower.dispatcher.calls.has_call());
    follower.dispatcher.handlers = 0;
    drop(follower);
    shards.lock(1).end_lookout(&mut lookout);
}
