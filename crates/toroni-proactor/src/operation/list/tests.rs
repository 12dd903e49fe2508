use super::*;
use crate::operation::Request;

fn numbers(list: &List, pool: &Pool) -> Vec<u32> {
    let mut found = Vec::new();
    let mut next = list.first();
    while let Some(index) = next {
        found.push(index);
        next = list.after(pool, index);
    }
    assert_eq!(found.len(), list.len());
    found
}

/// Compares with a vector, from a fixed seed.
#[test]
fn behaves_as_a_vector() {
    let mut pool = Pool::new();
    let all: Vec<u32> = (0..40).map(|_| pool.create(Request::timer(), None).index).collect();
    let mut list = List::new(Membership::Completed);
    let mut model: Vec<u32> = Vec::new();
    let mut seed = 7u32;
    for _ in 0..4000 {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let index = all[(seed >> 8) as usize % all.len()];
        match model.iter().position(|other| *other == index) {
            Some(at) => {
                list.remove(&mut pool, index);
                model.remove(at);
            }
            None if seed.is_multiple_of(5) => {
                assert_eq!(list.pop(&mut pool), (!model.is_empty()).then(|| model.remove(0)))
            }
            None if seed.is_multiple_of(3) => {
                let after = model.get(seed as usize % 7).copied();
                list.insert(&mut pool, after, index);
                model.insert(after.map_or(0, |_| seed as usize % 7 + 1), index);
            }
            None => {
                list.push(&mut pool, index);
                model.push(index);
            }
        }
        assert_eq!(numbers(&list, &pool), model);
    }
}

#[test]
fn an_operation_is_in_a_list_and_in_a_queue_but_not_in_two_lists() {
    let mut pool = Pool::new();
    let index = pool.create(Request::timer(), None).index;
    let mut started = List::new(Membership::Started(0));
    let mut queue = List::new(Membership::Queued);
    started.push(&mut pool, index);
    queue.push(&mut pool, index);
    let mut completed = List::new(Membership::Completed);
    let twice = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        completed.push(&mut pool, index);
    }));
    assert!(twice.is_err());
    started.remove(&mut pool, index);
    queue.remove(&mut pool, index);
    completed.push(&mut pool, index);
}

#[test]
#[should_panic(expected = "the list that it is in")]
fn an_operation_is_not_removed_from_another_list() {
    let mut pool = Pool::new();
    let index = pool.create(Request::timer(), None).index;
    List::new(Membership::Started(0)).push(&mut pool, index);
    List::new(Membership::Started(1)).remove(&mut pool, index);
}
