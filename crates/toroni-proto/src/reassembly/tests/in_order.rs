//! What holds in the order of the source.

use super::*;

#[test]
fn what_comes_in_order_is_delivered_at_once_and_holds_nothing() {
    let mut packer = Packer::new();
    packer.topic("plant/boiler").message(10).message(0).flush().message(300);
    let mut receiver = Receiver::<InOrder>::new(packer.datagrams());
    assert_eq!(receiver.receive(0), Ok(Arrival::Delivered));
    let name = Seen::Topic("plant/boiler".to_owned());
    assert_eq!(receiver.seen(), [name, message(0, 10), message(1, 0)]);
    assert_eq!(receiver.receive(1), Ok(Arrival::Delivered));
    assert_eq!(receiver.seen(), [message(2, 300)]);
    assert_eq!(receiver.reassembly.held(), 0);
    assert_eq!(receiver.reassembly.next(), sequence(FIRST + 2));
}

#[test]
fn what_is_behind_a_gap_waits_and_is_delivered_when_the_gap_closes() {
    let mut packer = Packer::new();
    packer.message(1).flush().message(2).flush().message(3).flush().message(4);
    let mut receiver = Receiver::<InOrder>::new(packer.datagrams());
    assert_eq!(receiver.receive(2), Ok(Arrival::Held));
    assert_eq!(receiver.receive(1), Ok(Arrival::Held));
    assert_eq!(receiver.seen(), []);
    assert_eq!(receiver.receive(0), Ok(Arrival::Delivered));
    assert_eq!(receiver.seen(), [message(0, 1), message(1, 2), message(2, 3)]);
    assert_eq!(receiver.reassembly.held(), 0);
}

#[test]
fn duplicates_change_nothing_and_give_their_buffers_back() {
    let mut packer = Packer::new();
    packer.message(1).flush().message(2).flush().message(900).flush().message(4);
    let mut receiver = Receiver::<InOrder>::new(packer.datagrams());
    receiver.receive_all(&[0, 2]);
    assert_eq!(receiver.receive(0), Ok(Arrival::Duplicate));
    assert_eq!(receiver.receive(2), Ok(Arrival::Duplicate));
    receiver.receive_all(&[1]);
    // A part that was collected is there too.
    assert_eq!(receiver.receive(2), Ok(Arrival::Duplicate));
    assert_eq!(receiver.seen(), [message(0, 1), message(1, 2)]);
}

#[test]
fn a_gap_that_is_given_up_is_reported_with_its_exact_count() {
    let mut packer = Packer::new();
    packer.message(1).flush();
    packer.message(2).message(3).flush().topic("a").message(4).flush();
    packer.message(5);
    let mut receiver = Receiver::<InOrder>::new(packer.datagrams());
    receiver.receive_all(&[0, 3]);
    receiver.give_up(1, 2);
    assert_eq!(receiver.seen(), [message(0, 1), loss(1, 3, LostReason::Budget), message(4, 5)]);
}

#[test]
fn a_gap_in_which_no_message_was_is_no_loss() {
    let mut packer = Packer::new();
    packer.message(1).flush().topic("a").flush().message(2);
    let mut receiver = Receiver::<InOrder>::new(packer.datagrams());
    receiver.receive_all(&[0, 2]);
    receiver.give_up(1, 1);
    assert_eq!(receiver.seen(), [message(0, 1), message(1, 2)]);
}

#[test]
fn a_loss_is_reported_in_its_turn_and_may_still_arrive_before_it() {
    let mut packer = Packer::new();
    for length in 1..=5 {
        packer.message(length).flush();
    }
    let mut receiver = Receiver::<InOrder>::new(packer.datagrams());
    receiver.receive_all(&[0, 2, 4]);
    receiver.give_up(3, 1);
    assert_eq!(receiver.seen(), [message(0, 1)], "1 is still awaited");
    assert_eq!(receiver.receive(3), Ok(Arrival::Held));
    receiver.receive_all(&[1]);
    let all = [message(1, 2), message(2, 3), message(3, 4), message(4, 5)];
    assert_eq!(receiver.seen(), all);
}

#[test]
fn a_long_message_is_handed_out_from_its_buffers() {
    let mut packer = Packer::new();
    packer.message(50).message(3_000).message(7);
    let datagrams = packer.datagrams();
    let last = datagrams.len() as u64 - 1;
    let mut receiver = Receiver::<InOrder>::new(datagrams);
    for place in (0..last).rev() {
        receiver.receive_all(&[place]);
    }
    assert_eq!(receiver.seen(), [message(0, 50)]);
    assert_eq!(receiver.reassembly.held() as u64, last);
    receiver.receive_all(&[last]);
    assert_eq!(receiver.seen(), [message(1, 3_000), message(2, 7)]);
    assert_eq!(receiver.reassembly.held(), 0);
}

#[test]
fn a_message_that_ends_where_the_next_long_one_starts_shares_its_datagram() {
    let mut packer = Packer::new();
    packer.message(700).message(900).message(800);
    let datagrams = packer.datagrams();
    let all: Vec<u64> = (0..datagrams.len() as u64).collect();
    let mut receiver = Receiver::<InOrder>::new(datagrams);
    receiver.receive_all(&all);
    assert_eq!(receiver.seen(), [message(0, 700), message(1, 900), message(2, 800)]);
    assert_eq!(receiver.reassembly.held(), 0);
}

#[test]
fn a_message_of_which_a_part_is_lost_counts_once() {
    for lost in 0..6 {
        let mut packer = Packer::new();
        packer.message(1).flush().message(2_600).flush().message(3);
        let datagrams = packer.datagrams();
        assert_eq!(datagrams.len(), 8);
        let mut receiver = Receiver::<InOrder>::new(datagrams);
        let places: Vec<u64> = (0..8).filter(|place| *place != lost + 1).collect();
        receiver.receive_all(&places);
        receiver.give_up(lost + 1, 1);
        let wanted = [message(0, 1), loss(1, 1, LostReason::Budget), message(2, 3)];
        assert_eq!(receiver.seen(), wanted, "part {lost}");
        assert_eq!(receiver.reassembly.held(), 0);
    }
}

#[test]
fn a_lost_tail_is_found_by_the_next_session() {
    let mut packer = Packer::new();
    packer.message(1).flush().message(2).message(3);
    let mut receiver = Receiver::<InOrder>::new(packer.datagrams());
    receiver.receive_all(&[0]);
    receiver.session(2, 3);
    assert_eq!(receiver.seen(), [message(0, 1)], "1 is still awaited");
    receiver.give_up(1, 1);
    assert_eq!(receiver.seen(), []);
    receiver.session(2, 3);
    assert_eq!(receiver.seen(), [loss(1, 2, LostReason::Budget)]);
    receiver.session(2, 3);
    assert_eq!(receiver.seen(), []);
}

#[test]
fn a_session_in_the_middle_of_a_message_reports_nothing() {
    let mut packer = Packer::new();
    packer.message(1).flush().message(600).message(7);
    let mut receiver = Receiver::<InOrder>::new(packer.datagrams());
    receiver.receive_all(&[0, 1]);
    receiver.session(2, 2);
    receiver.receive_all(&[2]);
    assert_eq!(receiver.seen(), [message(0, 1), message(1, 600), message(2, 7)]);
}

#[test]
fn a_lost_start_is_reported_by_a_session_and_not_again_with_the_rest() {
    let mut packer = Packer::new();
    packer.message(1).flush().message(600).message(7);
    let mut receiver = Receiver::<InOrder>::new(packer.datagrams());
    receiver.receive_all(&[0]);
    receiver.give_up(1, 1);
    receiver.session(2, 2);
    receiver.receive_all(&[2]);
    assert_eq!(receiver.seen(), [message(0, 1), loss(1, 1, LostReason::Budget), message(2, 7)]);
}

#[test]
fn whoever_joins_in_the_middle_starts_with_the_first_message_that_starts() {
    let mut packer = Packer::new();
    packer.message(600).message(7).flush().message(8);
    let datagrams = packer.datagrams().split_off(1);
    let mut receiver = Receiver::<InOrder>::with(datagrams, None, 60);
    receiver.session(0, 1);
    receiver.receive_all(&[0, 1]);
    assert_eq!(receiver.seen(), [message(1, 7), message(2, 8)]);
}

#[test]
fn what_the_source_missed_is_reported_once_whether_its_datagram_arrives_or_not() {
    for arrives in [true, false] {
        let mut packer = Packer::new();
        packer.message(1).flush().lost(9).flush().message(2);
        let mut receiver = Receiver::<InOrder>::new(packer.datagrams());
        receiver.receive_all(&[0, 2]);
        if arrives {
            receiver.receive_all(&[1]);
        } else {
            receiver.give_up(1, 1);
        }
        let reason = if arrives { LostReason::Overtaken } else { LostReason::Budget };
        assert_eq!(receiver.seen(), [message(0, 1), loss(1, 9, reason), message(10, 2)]);
    }
}

#[test]
fn memory_is_bounded_and_a_full_one_takes_more_when_a_gap_is_given_up() {
    let mut packer = Packer::new();
    for length in 0..8 {
        packer.message(length).flush();
    }
    let mut receiver = Receiver::<InOrder>::with(packer.datagrams(), Some(0), 3);
    receiver.receive_all(&[2, 3, 4]);
    let Err(Refused::Full(buffer)) = receiver.receive(5) else { panic!("it has no room") };
    receiver.pool.give(buffer);
    receiver.give_up(0, 2);
    assert_eq!(receiver.reassembly.held(), 0);
    receiver.receive_all(&[5]);
    let wanted = [
        loss(0, 2, LostReason::Budget),
        message(2, 2),
        message(3, 3),
        message(4, 4),
        message(5, 5),
    ];
    assert_eq!(receiver.seen(), wanted);
}

#[test]
fn a_message_that_needs_more_memory_than_there_is_is_lost_and_the_next_is_not() {
    let mut packer = Packer::new();
    packer.message(1).message(3_000).message(2);
    let datagrams = packer.datagrams();
    let all: Vec<u64> = (0..datagrams.len() as u64).collect();
    let mut receiver = Receiver::<InOrder>::with(datagrams, Some(0), 3);
    receiver.receive_all(&all);
    assert_eq!(receiver.seen(), [message(0, 1), loss(1, 1, LostReason::Memory), message(2, 2)]);
    assert_eq!(receiver.reassembly.held(), 0);
}

#[test]
fn a_datagram_too_far_ahead_is_refused_until_the_stream_is_there() {
    let mut packer = Packer::new();
    packer.message(1).flush().message(2).flush().message(3);
    let mut receiver = Receiver::<InOrder>::new(packer.datagrams());
    assert_eq!(receiver.reassembly.end(), sequence(FIRST + 65_536));
    let far = |receiver: &mut Receiver<InOrder>| receiver.receive_as(2, sequence(FIRST + 65_536));
    let Err(Refused::TooFar(buffer)) = far(&mut receiver) else { panic!("it is too far") };
    receiver.pool.give(buffer);
    receiver.receive_all(&[0]);
    assert_eq!(far(&mut receiver), Ok(Arrival::Held));
    assert_eq!(receiver.receive(0), Ok(Arrival::Duplicate), "which shares its slot with it");
    assert_eq!(receiver.seen(), [message(0, 1)]);
}

#[test]
fn a_jump_is_one_loss_however_far_it_goes() {
    for distance in [3, 70_000, 900_000] {
        let mut packer = Packer::new();
        packer.message(1).message(600).flush().message(3).flush().message(4);
        let mut receiver = Receiver::<InOrder>::new(packer.datagrams());
        // The second part of the long message is missing, and the datagram behind it waits.
        receiver.receive_all(&[0, 2]);
        let to = sequence(FIRST + distance);
        let Receiver { reassembly, pool, out, .. } = &mut receiver;
        reassembly.skip_to(pool, to, LostReason::Jump, out);
        assert_eq!(reassembly.next(), to);
        assert_eq!(reassembly.held(), 0);
        receiver.session(distance, 50);
        let wanted = [
            message(0, 1),
            loss(1, 1, LostReason::Jump),
            message(2, 3),
            loss(3, 47, if distance == 3 { LostReason::Gone } else { LostReason::Jump }),
        ];
        assert_eq!(receiver.seen(), wanted, "{distance}");
    }
}

#[test]
fn a_sender_that_contradicts_itself_delivers_nothing_twice() {
    let mut packer = Packer::new();
    packer.message(1).flush().message(600).flush().message(3);
    let mut datagrams = packer.datagrams();
    // The last datagram says that its message is the first.
    datagrams[3][40..48].copy_from_slice(&0_u64.to_le_bytes());
    let mut receiver = Receiver::<InOrder>::new(datagrams);
    receiver.receive_all(&[0, 1]);
    receiver.out.contradicts = true;
    // A SESSION that counts many messages although the long one is not complete.
    receiver.session(2, 30);
    assert_eq!(receiver.seen(), [message(0, 1), loss(1, 28, LostReason::Gone)]);
    assert_eq!(receiver.reassembly.held(), 0, "what was collected is of no use any more");
    receiver.receive_all(&[2, 3]);
    assert_eq!(receiver.seen(), []);
}

#[test]
fn a_loss_that_was_reported_in_part_is_not_reported_twice() {
    let mut packer = Packer::new();
    packer.message(1).flush().message(2).flush().lost(9).flush().message(3);
    let mut datagrams = packer.datagrams();
    // The source says that it missed messages 1 to 9, but 1 was delivered.
    datagrams[2][40..48].copy_from_slice(&1_u64.to_le_bytes());
    let mut receiver = Receiver::<InOrder>::new(datagrams);
    receiver.out.contradicts = true;
    receiver.receive_all(&[0, 1, 2]);
    let wanted = [message(0, 1), message(1, 2), loss(2, 8, LostReason::Overtaken)];
    assert_eq!(receiver.seen(), wanted);
}

#[test]
fn a_part_with_another_place_or_length_ends_its_message() {
    // Of the second datagram: the chunk's flags, its topic, its offset.
    for (at, value) in [(67, 0), (68, 9), (72, 1)] {
        let mut packer = Packer::new();
        packer.message(600).flush().message(3);
        let mut datagrams = packer.datagrams();
        datagrams[1][at] = value;
        let mut receiver = Receiver::<InOrder>::new(datagrams);
        receiver.receive_all(&[0, 1, 2]);
        assert_eq!(receiver.seen(), [loss(0, 1, LostReason::Gone), message(1, 3)], "byte {at}");
        assert_eq!(receiver.reassembly.held(), 0);
    }
}

#[test]
fn a_part_that_says_it_is_the_last_too_early_completes_nothing() {
    let mut packer = Packer::new();
    packer.message(1_000).flush().message(3);
    let mut datagrams = packer.datagrams();
    datagrams[1][67] = 2;
    let mut receiver = Receiver::<InOrder>::new(datagrams);
    receiver.receive_all(&[0, 1, 2, 3]);
    assert_eq!(receiver.seen(), [loss(0, 1, LostReason::Gone), message(1, 3)]);
}

#[test]
fn when_the_stream_ends_all_buffers_come_back() {
    let mut packer = Packer::new();
    packer.message(1_500).flush().message(3).flush().message(4);
    let mut receiver = Receiver::<InOrder>::new(packer.datagrams());
    receiver.receive_all(&[0, 1, 5]);
    assert_eq!(receiver.reassembly.held(), 3);
    receiver.reassembly.clear(&mut receiver.pool);
    assert_eq!(receiver.pool.free(), 100);
}
