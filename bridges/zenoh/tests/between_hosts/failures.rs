//! Bridges that are killed or stopped, and links that are cut.

use crate::hosts::{Network, Pair, meet};
use std::time::{Duration, Instant};
use toroni_testkit::{long, wait};

/// An importing bridge is killed and restarted while messages flow.
#[test]
fn what_a_killed_importer_missed_is_reported() {
    let Some(Pair { network, exporter: _exporter, mut importer, listener }) = Pair::new() else {
        return;
    };
    let [a, b] = &network.hosts[..] else { unreachable!() };
    let publisher = a.start_publishing("line", 0..30_000, &["--rate", "5k/s"]);
    for least in [2_000, 8_000] {
        wait::until("messages arrive", || listener.account().received("line") > least);
        importer.kill();
        importer = b.bridge(&["--import", "**"]);
    }
    let _ = publisher.succeed();
    listener.wait_settled("line", 30_000);
    let missing = listener.account().balance_within_bounds("line", 30_000);
    eprintln!("two deaths of the importer cost {missing} messages, all of them reported");
}

/// An exporting bridge is killed and restarted while messages flow.
#[test]
fn what_a_killed_exporter_missed_is_reported() {
    let Some(Pair { network, mut exporter, importer: _importer, listener }) = Pair::new() else {
        return;
    };
    let [a, _] = &network.hosts[..] else { unreachable!() };
    let publisher = a.start_publishing("line", 0..30_000, &["--rate", "5k/s"]);
    for least in [2_000, 8_000] {
        wait::until("messages arrive", || listener.account().received("line") > least);
        exporter.kill();
        exporter = a.bridge(&["--export", "**"]);
    }
    let _ = publisher.succeed();
    listener.wait_settled("line", 30_000);
    let missing = listener.account().balance_within_bounds("line", 30_000);
    eprintln!("two deaths of the exporter cost {missing} messages, all of them reported");
}

/// Of three importers one stops. The others get everything, or exact reports; the stopped one learns what it missed when
/// it continues.
#[test]
fn a_stopped_importer_harms_only_itself() {
    let Some(network) = Network::new(3) else { return };
    let [a, b, c] = &network.hosts[..] else { unreachable!() };
    let listeners = [b, c].map(|host| {
        host.create_bus();
        host.listen(&["**"])
    });
    a.create_bus();
    let _exporter = a.bridge(&["--export", "**"]);
    let _lively = b.bridge(&["--import", "**"]);
    let stopped = c.bridge(&["--import", "**"]);
    meet(a, "hello", &[&listeners[0], &listeners[1]]);
    // Publishing takes 20 s. Zenoh closes the connection to the stopped bridge after 10 s.
    let count = 100_000;
    let publisher = a.start_publishing("line", 0..count, &["--rate", "5k/s"]);
    wait::until("messages arrive", || listeners[1].account().received("line") > 1_000);
    stopped.stop();
    let _ = publisher.succeed();
    listeners[0].wait_settled("line", count);
    let missing = listeners[0].account().balance("line", count);
    eprintln!("the other importer missed {missing} of {count}");
    assert!(missing < count / 10, "the stopped bridge cost the other one {missing} messages");
    stopped.resume();
    stopped.wait_for_error("the bridge has a new session");
    listeners[1].wait_settled("line", count);
    let missing = listeners[1].account().balance_within_bounds("line", count);
    eprintln!("the stopped importer missed {missing} messages, all of them reported");
}

/// Cuts a link for this time while messages flow.
fn cut(duration: Duration) {
    let Some(Pair { network, exporter: _exporter, importer: _importer, listener }) = Pair::new()
    else {
        return;
    };
    let [a, _] = &network.hosts[..] else { unreachable!() };
    let rate = 5_000;
    let count = rate * (duration.as_secs() + 10);
    let mut publisher = a.start_publishing("line", 0..count, &["--rate", &format!("{rate}/s")]);
    wait::until("messages arrive", || listener.account().received("line") > 2_000);
    network.cut(2);
    let until = Instant::now() + duration;
    std::thread::sleep(until.saturating_duration_since(Instant::now()));
    network.rejoin(2);
    assert!(publisher.finish_within(5 * wait::LIMIT).status.success());
    listener.wait_settled("line", count);
    let account = listener.account();
    // After 10 s the exporter counts as silent. When it is back it is joined again, so the report may be a bound.
    let missing = match duration.as_secs() {
        0..10 => account.balance("line", count),
        _ => account.balance_within_bounds("line", count),
    };
    eprintln!("a cut of {duration:?} cost {missing} of {count} messages, all of them reported");
    assert!(
        account.received("line") > 2_000,
        "nothing arrives after the cut: {}",
        account.summary()
    );
}

#[test]
fn a_link_is_cut_for_1_s() {
    cut(Duration::from_secs(1));
}

#[test]
fn a_link_is_cut_for_10_s() {
    cut(Duration::from_secs(10));
}

/// Takes two minutes.
#[test]
fn a_link_is_cut_for_60_s() {
    if long::or_skip() {
        cut(Duration::from_secs(60));
    }
}

/// SIGTERM ends a bridge in order: what was published before has been sent.
#[test]
fn a_bridge_that_is_asked_to_end_sends_what_it_has() {
    let Some(Pair { network, mut exporter, importer: _importer, listener }) = Pair::new() else {
        return;
    };
    let [a, _] = &network.hosts[..] else { unreachable!() };
    a.publish("line", 0..1_000, &[]);
    exporter.signal(rustix::process::Signal::TERM);
    assert!(exporter.wait().success(), "{}", exporter.errors());
    listener.wait_settled("line", 1_000);
    assert_eq!(listener.account().balance("line", 1_000), 0);
}
