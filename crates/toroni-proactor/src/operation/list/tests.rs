use super::*;
use crate::operation::Request;

fn numbers(list: &List, records: &Records) -> Vec<u32> {
    let mut found = Vec::new();
    let mut next = list.first();
    while let Some(index) = next {
        found.push(index);
        next = list.after(records, index);
    }
    assert_eq!(found.len(), list.len());
    found
}

/// Against the obvious model, from a fixed seed.
#[test]
fn behaves_as_a_vector() {
    let mut records = Records::new();
    let all: Vec<u32> = (0..40).map(|_| records.create(Request::timer(), None).index).collect();
    let mut list = List::new(Membership::Completed);
    let mut model: Vec<u32> = Vec::new();
    let mut seed = 7u32;
    for _ in 0..4000 {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let index = all[(seed >> 8) as usize % all.len()];
        match model.iter().position(|other| *other == index) {
            Some(at) => {
                list.remove(&mut records, index);
                model.remove(at);
            }
            None if seed.is_multiple_of(5) => {
                assert_eq!(list.pop(&mut records), (!model.is_empty()).then(|| model.remove(0)))
            }
            None if seed.is_multiple_of(3) => {
                let behind = model.get(seed as usize % 7).copied();
                list.insert(&mut records, behind, index);
                model.insert(behind.map_or(0, |_| seed as usize % 7 + 1), index);
            }
            None => {
                list.push(&mut records, index);
                model.push(index);
            }
        }
        assert_eq!(numbers(&list, &records), model);
    }
}

#[test]
fn a_record_is_in_a_list_and_in_a_queue_but_not_in_two_lists() {
    let mut records = Records::new();
    let index = records.create(Request::timer(), None).index;
    let mut started = List::new(Membership::Started(0));
    let mut queue = List::new(Membership::Queued);
    started.push(&mut records, index);
    queue.push(&mut records, index);
    let mut completed = List::new(Membership::Completed);
    let twice = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        completed.push(&mut records, index);
    }));
    assert!(twice.is_err());
    started.remove(&mut records, index);
    queue.remove(&mut records, index);
    completed.push(&mut records, index);
}

#[test]
#[should_panic(expected = "the list that it is in")]
fn a_record_is_not_removed_from_another_list() {
    let mut records = Records::new();
    let index = records.create(Request::timer(), None).index;
    List::new(Membership::Started(0)).push(&mut records, index);
    List::new(Membership::Started(1)).remove(&mut records, index);
}
