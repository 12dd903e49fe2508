use super::*;

#[test]
fn a_name_of_the_past_finds_nothing() {
    let mut records = Records::new();
    let old = records.create(Request::timer(), None);
    assert!(records.get(old).is_some());
    records.destroy(old.index);
    let new = records.create(Request::post(), None);
    assert_eq!(old.index, new.index);
    assert!(records.get(old).is_none());
    assert!(records.get(new).is_some());
    assert_eq!(Key::from_u64(new.to_u64()), new);
    assert!(records.get(Key { index: 1 << 20, generation: 0 }).is_none());
}

#[test]
fn places_are_used_again() {
    let mut records = Records::new();
    let first: Vec<Key> = (0..1000).map(|_| records.create(Request::post(), None)).collect();
    assert_eq!(records.live(), 1000);
    let chunks = records.chunks.len();
    for key in first {
        records.destroy(key.index);
    }
    for _ in 0..1000 {
        records.create(Request::post(), None);
    }
    assert_eq!(records.chunks.len(), chunks);
}

#[test]
#[should_panic(expected = "does not become")]
fn states_follow_their_order() {
    let mut records = Records::new();
    let key = records.create(Request::post(), None);
    records[key.index].become_(State::Posted);
    records[key.index].become_(State::Started);
}
