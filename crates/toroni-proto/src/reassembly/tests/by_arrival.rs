//! What holds in the order of arrival.

use super::*;

fn receiver(packer: &mut Packer) -> Receiver<ByArrival> {
    Receiver::new(packer.datagrams())
}

#[test]
fn what_is_complete_does_not_wait_for_a_gap() {
    let mut packer = Packer::new();
    packer.message(1).flush().message(2).flush().message(3);
    let mut receiver = receiver(&mut packer);
    receiver.receive_all(&[2]);
    assert_eq!(receiver.seen(), [message(2, 3)]);
    assert_eq!(receiver.reassembly.held(), 0, "nothing waits, so nothing is held");
    assert_eq!(receiver.receive(2), Ok(Arrival::Duplicate));
    receiver.receive_all(&[0]);
    receiver.give_up(1, 1);
    assert_eq!(receiver.seen(), [message(0, 1), loss(1, 1, LostReason::Budget)]);
    assert_eq!(receiver.reassembly.next(), sequence(FIRST + 3));
}

#[test]
fn a_long_message_is_delivered_when_its_parts_are_there_in_whatever_order() {
    for order in [[1, 2, 3, 4], [4, 3, 2, 1], [2, 4, 1, 3], [3, 1, 4, 2]] {
        let mut packer = Packer::new();
        packer.message(9).flush().message(1_700).flush().message(3);
        let mut receiver = receiver(&mut packer);
        receiver.receive_all(&[5]);
        assert_eq!(receiver.seen(), [message(2, 3)]);
        receiver.receive_all(&order);
        assert_eq!(receiver.seen(), [message(1, 1_700)], "{order:?}");
        assert_eq!(receiver.reassembly.held(), 0);
        receiver.receive_all(&[0]);
        assert_eq!(receiver.seen(), [message(0, 9)]);
        assert_eq!(receiver.reassembly.next(), sequence(FIRST + 6));
    }
}

#[test]
fn messages_that_share_a_datagram_with_their_parts_do_not_wait_for_each_other() {
    let mut packer = Packer::new();
    packer.message(700).message(900).message(5);
    let mut receiver = receiver(&mut packer);
    // The first has its end, and the second its start, in datagram 1.
    receiver.receive_all(&[1, 2, 3]);
    assert_eq!(receiver.seen(), [message(2, 5), message(1, 900)]);
    receiver.receive_all(&[0]);
    assert_eq!(receiver.seen(), [message(0, 700)]);
    assert_eq!(receiver.reassembly.held(), 0);
}

#[test]
fn a_message_of_which_a_part_is_lost_counts_once() {
    for lost in 0..6 {
        let mut packer = Packer::new();
        packer.message(1).flush().message(2_600).flush().message(3);
        let mut receiver = receiver(&mut packer);
        let places: Vec<u64> = (0..8).filter(|place| *place != lost + 1).collect();
        receiver.receive_all(&places);
        receiver.give_up(lost + 1, 1);
        let wanted = [message(0, 1), message(2, 3), loss(1, 1, LostReason::Budget)];
        assert_eq!(receiver.seen(), wanted, "part {lost}");
        assert_eq!(receiver.reassembly.held(), 0);
    }
}

#[test]
fn a_session_finds_a_lost_tail_and_nothing_in_the_middle_of_a_message() {
    let mut packer = Packer::new();
    packer.message(1).flush().message(600).flush().message(7).flush().message(8);
    let mut receiver = receiver(&mut packer);
    receiver.receive_all(&[0, 1]);
    receiver.session(2, 2);
    receiver.receive_all(&[2]);
    assert_eq!(receiver.seen(), [message(0, 1), message(1, 600)]);
    receiver.give_up(3, 2);
    receiver.session(5, 4);
    assert_eq!(receiver.seen(), [loss(2, 2, LostReason::Budget)]);
}

#[test]
fn what_the_source_missed_is_reported_once_whether_its_datagram_arrives_or_not() {
    for arrives in [true, false] {
        let mut packer = Packer::new();
        packer.message(1).flush().lost(9).flush().message(2);
        let mut receiver = receiver(&mut packer);
        receiver.receive_all(&[0, 2]);
        if arrives {
            receiver.receive_all(&[1]);
        } else {
            receiver.give_up(1, 1);
        }
        let reason = if arrives { LostReason::Overtaken } else { LostReason::Budget };
        assert_eq!(receiver.seen(), [message(0, 1), message(10, 2), loss(1, 9, reason)]);
    }
}

#[test]
fn memory_is_bounded_and_only_parts_need_it() {
    let mut packer = Packer::new();
    packer.message(600).flush().message(700).flush().message(5);
    let mut receiver = Receiver::<ByArrival>::with(packer.datagrams(), Some(0), 1);
    receiver.receive_all(&[1]);
    let Err(Refused::Full(buffer)) = receiver.receive(2) else { panic!("it has no room") };
    receiver.pool.give(buffer);
    receiver.receive_all(&[4]);
    assert_eq!(receiver.seen(), [message(2, 5)]);
    // With what is given up, the part that was held is of no use.
    receiver.give_up(0, 1);
    assert_eq!(receiver.reassembly.held(), 0);
    receiver.receive_all(&[2, 3]);
    let wanted = [loss(0, 1, LostReason::Budget), loss(1, 1, LostReason::Memory)];
    assert_eq!(receiver.seen(), wanted);
    assert_eq!(receiver.reassembly.held(), 0);
}

#[test]
fn a_message_that_needs_more_memory_than_there_is_is_lost_and_the_next_is_not() {
    let mut packer = Packer::new();
    packer.message(1).message(3_000).message(2);
    let datagrams = packer.datagrams();
    let all: Vec<u64> = (0..datagrams.len() as u64).collect();
    let mut receiver = Receiver::<ByArrival>::with(datagrams, Some(0), 3);
    receiver.receive_all(&all[..4]);
    assert_eq!(receiver.reassembly.held(), 0, "the fourth part finds no room, and frees all");
    receiver.receive_all(&all[4..]);
    let wanted = [message(0, 1), message(2, 2), loss(1, 1, LostReason::Memory)];
    let mut seen = receiver.seen();
    seen.sort_by_key(|seen| matches!(seen, Seen::Loss { .. }));
    assert_eq!(seen, wanted);
    assert_eq!(receiver.reassembly.held(), 0);
}

#[test]
fn a_jump_is_one_loss_however_far_it_goes() {
    for distance in [3, 70_000, 900_000] {
        let mut packer = Packer::new();
        packer.message(1).message(600).flush().message(3).flush().message(4);
        let mut receiver = receiver(&mut packer);
        receiver.receive_all(&[0, 2]);
        let to = sequence(FIRST + distance);
        let Receiver { reassembly, pool, out, .. } = &mut receiver;
        reassembly.skip_to(pool, to, LostReason::Jump, out);
        assert_eq!((reassembly.next(), reassembly.held()), (to, 0));
        receiver.session(distance, 50);
        let reason = if distance == 3 { LostReason::Gone } else { LostReason::Jump };
        let wanted =
            [message(0, 1), message(2, 3), loss(1, 1, LostReason::Jump), loss(3, 47, reason)];
        assert_eq!(receiver.seen(), wanted, "{distance}");
    }
}

#[test]
fn parts_that_do_not_belong_together_are_lost() {
    for (at, value) in [(67, 0), (68, 9), (72, 1)] {
        let mut packer = Packer::new();
        packer.message(600).flush().message(3);
        let mut datagrams = packer.datagrams();
        datagrams[1][at] = value;
        let mut receiver = Receiver::<ByArrival>::new(datagrams);
        receiver.receive_all(&[0, 1, 2]);
        let mut seen = receiver.seen();
        seen.sort_by_key(|seen| matches!(seen, Seen::Message { .. }));
        assert_eq!(seen, [loss(0, 1, LostReason::Gone), message(1, 3)], "byte {at}");
        assert_eq!(receiver.reassembly.held(), 0);
    }
}

#[test]
fn a_datagram_too_far_ahead_is_refused_and_the_end_gives_all_buffers_back() {
    let mut packer = Packer::new();
    packer.message(1_500).flush().message(3);
    let mut receiver = receiver(&mut packer);
    receiver.receive_all(&[0, 1, 3]);
    assert_eq!(receiver.reassembly.end(), sequence(FIRST + 65_536));
    let buffer = receiver.pool.take().unwrap();
    let Receiver { reassembly, pool, out, .. } = &mut receiver;
    let refused = reassembly.datagram(pool, sequence(FIRST + 65_536), buffer, 100, out);
    let Err(Refused::TooFar(buffer)) = refused else { panic!("it is too far") };
    pool.give(buffer);
    reassembly.clear(pool);
    assert_eq!((pool.free(), reassembly.held()), (100, 0));
}

#[test]
fn without_memory_only_whole_messages_are_delivered() {
    let mut packer = Packer::new();
    packer.message(1).message(600).flush().message(3);
    let mut receiver = Receiver::<ByArrival>::with(packer.datagrams(), Some(0), 0);
    receiver.receive_all(&[0, 1]);
    assert_eq!(receiver.seen(), [message(0, 1), loss(1, 1, LostReason::Memory)]);
    receiver.receive_all(&[2]);
    assert_eq!(receiver.seen(), [message(2, 3)]);
}

#[test]
fn a_message_without_its_start_is_reported_with_its_next_part() {
    let mut packer = Packer::new();
    packer.message(1).flush().message(1_000).flush().message(3);
    let mut receiver = receiver(&mut packer);
    receiver.receive_all(&[0]);
    receiver.give_up(1, 1);
    receiver.receive_all(&[2]);
    assert_eq!(receiver.seen(), [message(0, 1), loss(1, 1, LostReason::Budget)]);
    assert_eq!(receiver.reassembly.held(), 0);
    receiver.receive_all(&[3, 4]);
    assert_eq!(receiver.seen(), [message(2, 3)]);
}

#[test]
fn a_part_that_says_it_is_the_last_too_early_completes_nothing() {
    let mut packer = Packer::new();
    packer.message(1_000).flush().message(3);
    let mut datagrams = packer.datagrams();
    datagrams[1][67] = 2;
    let mut receiver = Receiver::<ByArrival>::new(datagrams);
    receiver.receive_all(&[0, 1, 2, 3]);
    assert_eq!(receiver.seen(), [loss(0, 1, LostReason::Gone), message(1, 3)]);
}

#[test]
fn a_sender_that_contradicts_itself_has_no_loss_reported_twice() {
    let mut packer = Packer::new();
    packer.message(1).flush().message(600).flush().message(3);
    let mut datagrams = packer.datagrams();
    // The first message is number 50, the long one is still number 1, and the last is number 60.
    datagrams[0][40..48].copy_from_slice(&50_u64.to_le_bytes());
    datagrams[3][40..48].copy_from_slice(&60_u64.to_le_bytes());
    let mut receiver = Receiver::<ByArrival>::new(datagrams);
    receiver.out.contradicts = true;
    receiver.receive_all(&[0, 1, 2, 3]);
    let losses: Vec<Seen> =
        receiver.seen().into_iter().filter(|seen| matches!(seen, Seen::Loss { .. })).collect();
    let wanted = [loss(0, 50, LostReason::Gone), loss(51, 9, LostReason::Gone)];
    assert_eq!(losses, wanted);
}

#[test]
fn what_has_arrived_is_not_given_up() {
    let mut packer = Packer::new();
    packer.message(1).flush().message(1_000).flush().message(3);
    let mut receiver = receiver(&mut packer);
    receiver.receive_all(&[2, 3]);
    assert_eq!(receiver.reassembly.held(), 2);
    receiver.give_up(0, 5);
    let wanted = [loss(0, 2, LostReason::Budget)];
    assert_eq!(receiver.seen(), wanted);
    assert_eq!(receiver.reassembly.held(), 0);
}

#[test]
fn a_slot_that_is_used_again_remembers_nothing() {
    let mut packer = Packer::new();
    packer.message(1).flush().message(2);
    let mut receiver = receiver(&mut packer);
    receiver.receive_all(&[0]);
    let to = sequence(FIRST + 65_536);
    let Receiver { reassembly, pool, out, .. } = &mut receiver;
    reassembly.skip_to(pool, to, LostReason::Jump, out);
    assert_eq!(receiver.receive_as(1, to), Ok(Arrival::Delivered));
    assert_eq!(receiver.seen(), [message(0, 1), message(1, 2)]);
}

#[test]
fn a_datagram_that_arrives_after_it_was_given_up_leaves_no_trace_of_that() {
    let mut packer = Packer::new();
    packer.message(1).flush().message(2);
    let mut receiver = receiver(&mut packer);
    receiver.give_up(1, 1);
    receiver.receive_all(&[1, 0]);
    assert_eq!(receiver.seen(), [message(1, 2), message(0, 1)]);
    // One lap later, its slot belongs to a datagram that is still missing.
    let missing = sequence(FIRST + 65_537);
    let Receiver { reassembly, pool, out, .. } = &mut receiver;
    reassembly.skip_to(pool, missing, LostReason::Jump, out);
    assert_eq!(receiver.receive_as(1, missing.plus(1)), Ok(Arrival::Delivered));
    assert_eq!(receiver.reassembly.next(), missing);
}

#[test]
fn of_several_reasons_for_one_loss_the_first_is_reported() {
    let mut packer = Packer::new();
    packer.message(600).flush().message(600);
    let mut receiver = Receiver::<ByArrival>::with(packer.datagrams(), Some(0), 1);
    // There is no room for the start of the first message beside the end of the second.
    receiver.receive_all(&[3, 0]);
    receiver.give_up(1, 2);
    assert_eq!(receiver.seen(), [loss(0, 2, LostReason::Memory)]);
}
