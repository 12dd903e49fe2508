use super::*;

#[test]
fn an_old_key_finds_nothing() {
    let mut pool = Pool::new();
    let old = pool.create(Request::timer(), None);
    assert!(pool.get(old).is_some());
    pool.destroy(old.index);
    let new = pool.create(Request::post(), None);
    assert_eq!(old.index, new.index);
    assert!(pool.get(old).is_none());
    assert!(pool.get(new).is_some());
    assert_eq!(Key::from_u64(new.to_u64()), new);
    assert!(pool.get(Key { index: 1 << 20, generation: 0 }).is_none());
}

#[test]
fn entries_are_used_again() {
    let mut pool = Pool::new();
    let first: Vec<Key> = (0..1000).map(|_| pool.create(Request::post(), None)).collect();
    assert_eq!(pool.live(), 1000);
    let chunks = pool.chunks.len();
    for key in first {
        pool.destroy(key.index);
    }
    for _ in 0..1000 {
        pool.create(Request::post(), None);
    }
    assert_eq!(pool.chunks.len(), chunks);
}

#[test]
#[should_panic(expected = "does not become")]
fn states_follow_their_order() {
    let mut pool = Pool::new();
    let key = pool.create(Request::post(), None);
    pool[key.index].become_(State::Posted);
    pool[key.index].become_(State::Started);
}
